"""What the agent tells of its machine in the `boot` record."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import struct
import sys
from typing import Any

from shunter_agent import __version__
from shunter_agent.keeping.clock import boot_id

_GPU_FIELDS = ("index", "name", "memory.total", "uuid", "driver_version")
_SIOCGIFADDR = 0x8915
_INITIALISE_CUDA = """
import ctypes, sys
code = ctypes.CDLL("libcuda.so.1").cuInit(0)
sys.exit(f"cuInit fails with error {code}" if code else 0)
"""


def boot_record(gpus: list[dict[str, Any]], folder: str, cuda: str = "") -> dict[str, Any]:
    """The data of `boot`; `folder` is the agent's, `cuda` what is wrong with it."""
    return {
        "boot_id": boot_id(),
        "hostname": socket.gethostname(),
        "agent_version": __version__,
        "python": ".".join(str(part) for part in sys.version_info[:3]),
        "cpus": cpus(),
        "memory_gib": round(memory_bytes() / (1 << 30), 2),
        "gpus": gpus,
        "addresses": addresses(),
        "disk_free_gib": round(shutil.disk_usage(folder).free / (1 << 30), 2),
        "cuda_error": cuda,
    }


def has_gpus() -> bool:
    """Whether NVIDIA's tool is here: asking it takes seconds, so nobody should wait for `gpus`."""
    return shutil.which("nvidia-smi") is not None


def gpus() -> list[dict[str, Any]]:
    """The GPUs as NVIDIA's tool lists them; none when it fails or takes longer than 30 s."""
    import subprocess

    try:
        listing = subprocess.run(
            ["nvidia-smi", f"--query-gpu={','.join(_GPU_FIELDS)}", "--format=csv,noheader,nounits"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return parse_gpus(listing.stdout.decode("utf-8", "replace"))


def parse_gpus(listing: str) -> list[dict[str, Any]]:
    """Rows of `index, name, MiB, uuid, driver`."""
    found = []
    for line in listing.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(_GPU_FIELDS) or not cells[0].isdigit():
            continue
        memory = float(cells[2]) / 1024 if cells[2].replace(".", "", 1).isdigit() else 0.0
        found.append(
            {
                "index": int(cells[0]),
                "name": cells[1],
                "memory_gib": round(memory, 2),
                "uuid": cells[3],
                "driver": cells[4],
            }
        )
    return found


def cpus() -> int:
    """Processors that this process may use, a container's quota included."""
    count = len(os.sched_getaffinity(0))
    quota = _read("/sys/fs/cgroup/cpu.max")
    if quota and not quota.startswith("max"):
        limit, period = quota.split()[:2]
        count = min(count, max(1, int(limit) // int(period)))
    return count


def memory_bytes() -> int:
    """The machine's memory, or the container's limit where that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _read("/sys/fs/cgroup/memory.max")
    return min(total, int(limit)) if limit and limit.isdigit() else total


def addresses() -> list[str]:
    """IPv4 addresses of the interfaces, and global IPv6 ones; not the loopback's."""
    return [address for address, _ in interfaces()]


def interfaces() -> list[tuple[str, str]]:
    """Each of those addresses with the name of its interface."""
    found = []
    for _, name in socket.if_nameindex():
        address = _ipv4(name)
        if address is not None and not address.startswith(("127.", "169.254.")):
            found.append((address, name))
    for line in (_read("/proc/net/if_inet6") or "").splitlines():
        digits, _, _, scope, _, name = line.split()
        if scope == "00":
            found.append((socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits)), name))
    return found


def cuda_error() -> str:
    """Why the driver serves no programs, where it does not: the GPUs may be listed all the same. Takes a second."""
    import subprocess

    argv = [sys.executable, "-I", "-c", _INITIALISE_CUDA]
    try:
        answer = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    said = answer.stderr.decode("utf-8", "replace").strip()
    return "" if answer.returncode == 0 else (said.splitlines() or [f"exit {answer.returncode}"])[-1]


def _ipv4(interface: str) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        try:
            answer = fcntl.ioctl(handle.fileno(), _SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        except OSError:
            return None
    return socket.inet_ntoa(answer[20:24])


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return None
