"""What a host is: looked at, never believed."""

from __future__ import annotations

import fcntl
import getpass
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
from typing import Any

from shunter_providers.ssh.host_side.places import boot_id, places_of

_GPU_FIELDS = "index,name,memory.total,uuid,driver_version"
_SIOCGIFADDR = 0x8915
_SHM = "/dev/shm"  # noqa: S108 - looked at, not written


def look(request: dict[str, Any]) -> dict[str, Any]:
    """Everything that an offer or an acceptance needs to know of the host."""
    places = places_of(request)
    gpus = _gpus()
    address = _own_address()
    return {
        "python": ".".join(str(part) for part in sys.version_info[:3]),
        "executable": sys.executable,
        "boot_id": boot_id(),
        "machine_id": _first_line("/etc/machine-id") or _first_line("/var/lib/dbus/machine-id"),
        "hostname": socket.gethostname(),
        "user": getpass.getuser(),
        "clock": time.time(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2.0**30, 1),
        "disk_gib": round(shutil.disk_usage(places.base).free / 2.0**30, 2),
        "shm_gib": round(shutil.disk_usage(_SHM).total / 2.0**30, 2) if os.path.isdir(_SHM) else 0.0,
        "gpus": gpus,
        "usable_gpus": _usable_gpus() if gpus else 0,
        "address": address,
        "interface": interface_of(address) if address else None,
        "kills_at_logout": _kills_at_logout(),
    }


def interface_of(address: str) -> str | None:
    """The interface that has this IPv4 address."""
    for _, name in socket.if_nameindex():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
            try:
                answer = fcntl.ioctl(handle.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue
        if socket.inet_ntoa(answer[20:24]) == address:
            return name
    return None


def _own_address() -> str | None:
    """The address at which the caller reached this host: `SSH_CONNECTION` is `client port server port`."""
    words = os.environ.get("SSH_CONNECTION", "").split()
    return words[2] if len(words) == 4 else None


def _gpus() -> list[dict[str, Any]]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, "--query-gpu=" + _GPU_FIELDS, "--format=csv,noheader,nounits"]
    try:
        shown = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    found = []
    for line in shown.stdout.decode("utf-8", "replace").splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 5 and cells[0].isdigit() and cells[2].isdigit():
            found.append(
                {"index": int(cells[0]), "name": cells[1], "mib": int(cells[2]), "uuid": cells[3], "driver": cells[4]}
            )
    return found


def _usable_gpus() -> int:
    """How many the driver itself gives to a program: `nvidia-smi` also lists those that it does not."""
    import ctypes

    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


def _kills_at_logout() -> bool:
    """Whether logind ends what a user left running when his last session closes."""
    if not os.path.isdir("/run/systemd/system") or os.getuid() == 0:
        return False
    if os.path.exists(os.path.join("/var/lib/systemd/linger", getpass.getuser())):
        return False
    manager = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
    try:
        told = subprocess.run(
            ("busctl", "get-property", *manager, "KillUserProcesses"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=5,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return told.stdout.strip() == b"b true"


def _first_line(path: str) -> str | None:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.readline().strip() or None
    except OSError:
        return None
