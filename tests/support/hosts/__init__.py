"""Hosts for tests: machines of their own as far as a program on them can see, made of kernel namespaces.

Each has its own network (one interface on a bridge), processes, mounts, host name, boot id, users' homes, `/tmp`,
`/run`, `/dev/shm` and `/srv`, and a real sshd with its own host key. Nothing of the machine's own `/tmp` or `/root` is
visible there; programs and this repository are. A host's first process holds everything together: when that ends, for
whatever reason, the kernel ends all others and takes the network down. It ends with the process that made it.

    with make_pool(folder, 2) as pool:
        pool.hosts[0].run("hostname")
        ssh(pool.hosts[0].address, 22, "root", pool.client_key, pool.hosts[0].host_key)
"""

from __future__ import annotations

from support.hosts.host import Host
from support.hosts.needs import skip_without_hosts
from support.hosts.pool import Pool, make_pool

__all__ = ["Host", "Pool", "make_pool", "skip_without_hosts"]
