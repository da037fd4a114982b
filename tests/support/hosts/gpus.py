"""GPUs as far as an agent looks at them: NVIDIA's tool, and a driver that answers. Nothing can compute on them."""

from __future__ import annotations

import subprocess

from support.hosts.host import Host

_TOOL = """\
#!/bin/sh
n=0
while [ $n -lt {number} ]; do
    echo "$n, {name}, 81559, GPU-$n, 555.42"
    n=$((n + 1))
done
"""
_DRIVER = """\
int cuInit(unsigned flags) {{ return 0; }}
int cuDeviceGetCount(int *count) {{ *count = {number}; return 0; }}
"""

H100 = {"gpu_model": "H100", "gpu_memory_gib": 80.0}
"""What they are in an offer."""
ENVIRONMENT = {"LD_LIBRARY_PATH": "/root/lib"}
"""Of agents on such hosts."""


def set_gpus(host: Host, number: int, *, name: str = "NVIDIA H100 80GB HBM3", under: str = "root") -> None:
    """From now on the host shows this many. `under`: the folder of the host whose `bin` and `lib` they lie in."""
    tool = host.folder / under / "bin/nvidia-smi"
    library = host.folder / under / "lib/libcuda.so.1"
    for path in (tool, library):
        path.parent.mkdir(exist_ok=True)
    tool.write_text(_TOOL.format(number=number, name=name))
    tool.chmod(0o755)
    if not library.exists():
        argv = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
        subprocess.run(argv, input=_DRIVER.format(number=number), text=True, check=True)
