"""Namespaces of a test's own: mounts and a network that nobody else sees, and that go when its processes do."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from support.waiting import wait_until

_CLONE_NEWNS = 0x00020000
_CLONE_NEWNET = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)


@contextmanager
def own_mounts() -> Iterator[None]:
    """This thread, and every process that it starts, sees mounts that nobody else does. Skips where that takes root."""
    _require_root("mounting takes root")
    here = os.getcwd()
    with _unshared("mnt", _CLONE_NEWNS):
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
        yield
    os.chdir(here)


@contextmanager
def own_network() -> Iterator[None]:
    """This thread, and what it starts, has a network of its own: loopback, and nothing else. Skips without root."""
    _require_root("a network namespace takes root")
    _require_program("ip", "iproute2")
    with _unshared("net", _CLONE_NEWNET):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        yield


class FarNetwork:
    """Another network, joined to this one by a cable that can be pulled. Only within `own_network`."""

    near_address = "10.77.0.1"
    far_address = "10.77.0.2"

    def __init__(self) -> None:
        self._holder = subprocess.Popen(["unshare", "--net", "sleep", "900"])
        wait_until(self._is_apart, description="the far network is there")
        self._run("ip", "link", "add", "near", "type", "veth", "peer", "name", "far", "netns", str(self._holder.pid))
        self._run("ip", "address", "add", f"{self.near_address}/30", "dev", "near")
        self._run("ip", "link", "set", "near", "up")
        for command in (("address", "add", f"{self.far_address}/30", "dev", "far"), ("link", "set", "far", "up")):
            self._run(*self.there, "ip", *command)
        self._run(*self.there, "ip", "link", "set", "lo", "up")

    @property
    def there(self) -> tuple[str, ...]:
        """What makes a command run over there, as the same process."""
        return ("nsenter", f"--net=/proc/{self._holder.pid}/ns/net")

    def holds(self, pid: int) -> bool:
        """Whether a process is over there."""
        return os.readlink(f"/proc/{pid}/ns/net") == os.readlink(f"/proc/{self._holder.pid}/ns/net")

    def unplug(self) -> None:
        self._run("ip", "link", "set", "near", "down")

    def plug_in(self) -> None:
        self._run("ip", "link", "set", "near", "up")

    def close(self) -> None:
        self._holder.kill()
        self._holder.wait(5)

    def _is_apart(self) -> bool:
        with suppress(FileNotFoundError):
            return os.readlink(f"/proc/{self._holder.pid}/ns/net") != os.readlink("/proc/thread-self/ns/net")
        return False

    def _run(self, *argv: str) -> None:
        subprocess.run(argv, check=True)


@contextmanager
def far_network() -> Iterator[FarNetwork]:
    """A network on the other side of a cable."""
    made = FarNetwork()
    try:
        yield made
    finally:
        made.close()


def small_disk(folder: Path, size_mib: int) -> SmallDisk:
    """A file system of this size at `folder`, which is made. Only within `own_mounts`."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_mib}m,mode=700", "tmpfs", str(folder)], check=True)
    return SmallDisk(folder)


class SmallDisk:
    """Can be filled to the last byte, and emptied again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self) -> None:
        """Take every byte that is left."""
        descriptor = os.open(self._filler, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            for block in (1 << 20, 1 << 12, 1):
                _write_all_there_is(descriptor, block)
        finally:
            os.close(descriptor)

    def free(self) -> None:
        """Give it back."""
        self._filler.unlink(missing_ok=True)

    def leave(self) -> None:
        """Unmount it, with what is on it left where it was mounted: it would go with the namespace."""
        left = self.folder.with_name(f"{self.folder.name}.left")
        subprocess.run(["cp", "--archive", str(self.folder), str(left)], check=True)
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)
        left.replace(self.folder)

    @property
    def left_bytes(self) -> int:
        there = os.statvfs(self.folder)
        return there.f_bavail * there.f_frsize


@contextmanager
def _unshared(kind: str, flag: int) -> Iterator[None]:
    before = os.open(f"/proc/thread-self/ns/{kind}", os.O_RDONLY)
    try:
        _check(_LIBC.unshare(flag))
        try:
            yield
        finally:
            _check(_LIBC.setns(before, flag))
    finally:
        os.close(before)


def _require_root(why: str) -> None:
    if os.geteuid() != 0:
        pytest.skip(why)


def _require_program(name: str, package: str) -> None:
    if shutil.which(name) is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{name} is not installed (Debian: {package})")
        pytest.skip(f"{name} is not installed (Debian: {package})")


def _write_all_there_is(descriptor: int, block: int) -> None:
    try:
        while True:
            os.lseek(descriptor, 0, os.SEEK_END)
            os.write(descriptor, b"\0" * block)
    except OSError:
        return


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
