"""The hosts that these tests run on are machines of their own, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.hosts import Host, Pool, make_pool
from support.hosts.bridge import sweep
from support.waiting import wait_until

_DIES = """
import os, pathlib, signal, sys
from support.hosts import make_pool
with make_pool(pathlib.Path(sys.argv[1]), 1) as pool:
    pool.hosts[0].start(["sleep", "1000"])
    print(pool.bridge.name, pool.hosts[0].first_pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def shared_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    with make_pool(tmp_path_factory.mktemp("hosts"), 2, disk_mib=4) as made:
        yield made


@pytest.fixture
def pool(shared_pool: Pool) -> Pool:
    shared_pool.reset()
    return shared_pool


def reaches(source: Host, target: Host, port: int = 22) -> bool:
    program = f"import socket; socket.create_connection(({target.address!r}, {port}), 1)"
    return source.start([sys.executable, "-c", program], stderr=subprocess.DEVNULL).wait(30) == 0


def test_hosts_differ_in_all_that_tells_machines_apart(pool: Pool) -> None:
    files = "/proc/sys/kernel/random/boot_id /etc/machine-id /etc/hostname /etc/ssh/ssh_host_ed25519_key.pub"
    asked = f"cat {files}; hostname; ip -br a"

    one, two = (host.run("sh", "-c", asked).splitlines() for host in pool.hosts)

    assert not set(one) & set(two) - {"lo               UNKNOWN        127.0.0.1/8 ::1/128 "}


def test_a_hosts_own_folders_are_not_this_machines(pool: Pool, tmp_path: Path) -> None:
    host = pool.hosts[0]

    host.run("sh", "-c", "echo there > /tmp/mine; echo there > /root/mine")

    assert not Path("/root/mine").exists()
    assert host.seen("/tmp/mine").read_text() == "there\n"
    assert not host.seen(str(tmp_path)).exists()


def test_root_and_a_user_log_in_with_the_pools_key_and_the_pinned_host_key(pool: Pool, tmp_path: Path) -> None:
    known = pool.known_hosts(tmp_path / "known_hosts")
    options = ("-F", "none", "-o", f"UserKnownHostsFile={known}", "-o", "BatchMode=yes", "-i", str(pool.client_key))

    said = [
        subprocess.run(["ssh", *options, f"{user}@{pool.hosts[0].address}", "whoami; hostname"], capture_output=True)
        for user in ("root", "trainer")
    ]

    assert [answer.stdout for answer in said] == [b"root\nnode0\n", b"trainer\nnode0\n"]


def test_without_power_nothing_of_a_host_runs_and_its_disk_is_there_when_it_is_back(pool: Pool) -> None:
    host, other = pool.hosts
    sleeper = host.start(["sleep", "1000"])
    host.run("sh", "-c", "echo kept > /root/kept")
    boot = (host.folder / "boot-id").read_text()

    host.power_off()

    assert sleeper.wait(5) != 0
    assert not host.processes()
    assert not reaches(other, host)
    host.power_on()
    assert (host.seen("/root/kept").read_text(), boot != (host.folder / "boot-id").read_text()) == ("kept\n", True)
    assert reaches(other, host)


def test_a_cut_link_lets_nothing_through_until_it_is_restored(pool: Pool) -> None:
    host, other = pool.hosts

    host.cut_link()

    assert not reaches(other, host)
    assert not reaches(host, other)
    host.restore_link()
    wait_until(lambda: reaches(other, host), description="the link is back")


def test_a_firewall_closes_what_it_names_and_nothing_else(pool: Pool) -> None:
    host, other = pool.hosts

    host.firewall("tcp dport 22 reject with tcp reset")

    assert not reaches(other, host)
    assert reaches(host, other)
    host.firewall()
    assert reaches(other, host)


def test_a_small_disk_can_be_filled_and_freed(pool: Pool) -> None:
    host = pool.hosts[0]

    host.fill_disk()

    with pytest.raises(AssertionError, match="No space left"):
        host.run("sh", "-c", "head -c 65536 /dev/zero > /srv/more")
    host.free_disk()
    host.run("sh", "-c", "head -c 65536 /dev/zero > /srv/more")


def test_a_sshd_that_starts_anew_can_have_another_host_key(pool: Pool) -> None:
    host = pool.hosts[0]
    before = host.host_key

    host.change_host_key()

    assert host.host_key != before
    assert reaches(pool.hosts[1], host)


def test_nothing_is_left_of_a_test_run_that_was_killed(pool: Pool, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}

    died = subprocess.run(
        [sys.executable, "-c", _DIES, str(tmp_path / "hosts")], env=environment, capture_output=True, text=True
    )

    assert died.returncode == -signal.SIGKILL, died.stderr
    bridge, first = died.stdout.split()
    wait_until(lambda: not Path(f"/proc/{first}").exists(), description="the host ends with its maker")
    sweep()
    assert not Path(f"/sys/class/net/{bridge}").exists()
    assert Path(f"/sys/class/net/{pool.bridge.name}").exists(), "what lives is left alone"
