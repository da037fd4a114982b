"""One host: its power, its cable, its disk, its firewall, its sshd, and programs on it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from support import proc
from support.hosts import sshd
from support.hosts.bridge import Bridge, run_ip
from support.hosts.needs import SBIN, find_program
from support.waiting import wait_until

USER = "trainer"
"""A user without rights beside root; both take the pool's key."""
_USER_ID = 2222
_PRIVATE = ("root", "home", "run", "var/tmp", "etc/ssh")
"""Folders that are the host's own and stay when its power goes; `srv` and `tmp` too."""
_FILES = tuple(
    f"etc/{name}" for name in ("hosts", "hostname", "nsswitch.conf", "machine-id", "passwd", "shadow", "group")
)
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_FILLER = "filler"
_NAMES_BY_FILES_ONLY = "passwd: files\ngroup: files\nshadow: files\nhosts: files\n"
"""No name server is in reach; asking for one costs each rank ten seconds."""
_REPOSITORY = Path(__file__).parents[3]


class Host:
    """Made by a pool. Paths are the host's own; `seen` tells where this machine sees them."""

    def __init__(self, folder: Path, bridge: Bridge, number: int, *, disk_mib: int | None = None) -> None:
        """`disk_mib`: `/srv` is a file system of this size, empty after each start; else a folder that stays."""
        self.name = f"node{number}"
        self.number = number
        self.address = bridge.address(number)
        self.folder = folder
        self.key_file = folder / "etc/ssh" / sshd.HOST_KEY
        self._bridge = bridge
        self._disk_mib = disk_mib
        self._machine: subprocess.Popen[bytes] | None = None
        self._cable = ""
        self._lay_out()

    # --- power -------------------------------------------------------------------------------------------------

    @property
    def is_on(self) -> bool:
        return self._machine is not None and self._machine.poll() is None

    @property
    def first_pid(self) -> int:
        """The pid, on this machine, of the host's first process; `nsenter --target` takes it.

        Written to `FOLDER/first-pid` too, for other processes; the file is gone while the power is off.
        """
        assert self.is_on, f"{self.name} is off"
        return int((self.folder / "first-pid").read_text())

    def power_on(self, *, with_sshd: bool = True) -> None:
        """Boot: a new boot id, the same disks and address; sshd is up when this returns."""
        assert not self.is_on, f"{self.name} is on"
        (self.folder / "boot-id").write_text(f"{uuid.uuid4()}\n")
        with (self.folder / "console.log").open("ab") as log:
            self._machine = subprocess.Popen(self._boot_command(), stdout=subprocess.PIPE, stderr=log)
        try:
            self._come_up()
            if with_sshd:
                self.start_sshd()
        except BaseException:
            self.power_off()
            raise

    def power_off(self) -> None:
        """As when the plug is pulled: every process is gone at once, and nobody is told."""
        machine, self._machine = self._machine, None
        if machine is None:
            return
        pids = self.processes()
        for pid in proc.children(machine.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        machine.kill()
        machine.wait(10)
        assert machine.stdout is not None
        machine.stdout.close()
        (self.folder / "first-pid").unlink(missing_ok=True)
        wait_until(lambda: not any(map(proc.lives, pids)), description=f"every process of {self.name} is gone")

    def processes(self) -> list[int]:
        """Pids, on this machine, of every living process of the host but the first."""
        try:
            first = int((self.folder / "first-pid").read_text())
            mine = os.readlink(f"/proc/{first}/ns/pid")
        except (OSError, ValueError):
            return []
        found = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
        return [pid for pid in found if pid != first and _namespace_of(pid) == mine and proc.lives(pid)]

    # --- the cable ---------------------------------------------------------------------------------------------

    def cut_link(self) -> None:
        """Pull the network cable: nothing goes in or out, and no connection is told so."""
        run_ip("link", "set", self._cable, "down")

    def restore_link(self) -> None:
        """Plug it in again."""
        run_ip("link", "set", self._cable, "up")

    def firewall(self, *rules: str) -> None:
        """Replace what comes in by these rules of nftables, e.g. `tcp dport 20000-65535 drop`; none: everything."""
        chain = "\n".join(("type filter hook input priority 0; policy accept;", *rules))
        table = f"add table inet test\ndelete table inet test\ntable inet test {{\nchain input {{\n{chain}\n}}\n}}\n"
        self.run(find_program("nft"), "-f", "-", text=table)

    # --- the disk ----------------------------------------------------------------------------------------------

    def seen(self, path: str) -> Path:
        """Where this machine sees an absolute path of the host, while its power is on."""
        return Path(f"/proc/{self.first_pid}/root{path}")

    def fill_disk(self, leave_bytes: int = 0) -> None:
        """Take what is left of `/srv`, which has to be a small file system of its own."""
        assert self._disk_mib, "the host was made without disk_mib"
        filler = self.seen(f"/srv/{_FILLER}")
        there = os.statvfs(filler.parent)
        with filler.open("ab") as file:
            left = there.f_bavail * there.f_frsize - leave_bytes
            with suppress(OSError):
                while left > 0:
                    left -= file.write(b"\0" * min(left, 1 << 20))
                    file.flush()

    def free_disk(self) -> None:
        """Give it back."""
        self.seen(f"/srv/{_FILLER}").unlink(missing_ok=True)

    # --- programs ----------------------------------------------------------------------------------------------

    def start(self, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a program there, as root in `/root`; its process here is `nsenter`, whose child it is.

        `options` go to `Popen`; `environment` is added to a bare one.
        """
        environment = {"PATH": f"/usr/bin:/bin:{SBIN}", "HOME": "/root", **options.pop("environment", {})}
        return subprocess.Popen([*self._enter(), *argv], env=environment, **options)

    def run(self, *argv: str, text: str = "", environment: Mapping[str, str] | None = None) -> str:
        """Run a program there to its end; returns what it wrote. `text` is its input."""
        process = self.start(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            environment=dict(environment or {}),
        )
        out, err = process.communicate(text.encode(), timeout=60)
        assert process.returncode == 0, f"{self.name}: {' '.join(argv)}: {err.decode(errors='replace').strip()}"
        return bytes(out).decode(errors="replace")

    # --- sshd --------------------------------------------------------------------------------------------------

    @property
    def host_key(self) -> str:
        """The public host key that has to be pinned: `ssh-ed25519 AAAA…`."""
        return sshd.public_half(self.key_file)

    def start_sshd(self) -> None:
        """Start it and wait until it takes connections."""
        self.run(find_program("sshd"), "-f", "/etc/ssh/sshd_config", "-E", "/run/sshd.log")
        wait_until(self._takes_connections, description=f"sshd of {self.name} answers")

    def stop_sshd(self, *, drop_sessions: bool = False) -> None:
        """End the listener; sessions go on, as under systemd, unless they are dropped."""
        if drop_sessions:
            for pid in self.processes():
                with suppress(OSError):
                    if Path(f"/proc/{pid}/comm").read_text().startswith("sshd"):
                        os.kill(pid, signal.SIGKILL)
        else:
            self.run("kill", (self.folder / "run/sshd.pid").read_text().strip())
        wait_until(lambda: not self._takes_connections(), description=f"sshd of {self.name} is down")

    def restart_sshd(self, *, drop_sessions: bool = False) -> None:
        """Stop and start it."""
        self.stop_sshd(drop_sessions=drop_sessions)
        self.start_sshd()

    def change_host_key(self) -> None:
        """A new host key, as after a reinstallation, or of a machine that took the address."""
        for path in (self.key_file, self.key_file.with_name(f"{sshd.HOST_KEY}.pub")):
            path.unlink()
        sshd.make_key(self.key_file, self.name)
        self.restart_sshd()

    def authorize(self, public_key: str) -> None:
        """Let the holder of this key log in as root and as `USER`, and nobody else."""
        for user in ("root", USER):
            self.let_in(user, [public_key])

    def let_in(self, user: str, public_keys: Sequence[str]) -> None:
        """Let the holders of these keys log in as this user, and nobody else."""
        folder = self.folder / ("root" if user == "root" else f"home/{user}") / ".ssh"
        owner = folder.parent.stat().st_uid
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / "authorized_keys").write_text("".join(f"{key}\n" for key in public_keys))
        for path in (folder, folder / "authorized_keys"):
            os.chown(path, owner, owner)

    def add_user(self, name: str, number: int) -> None:
        """One without rights; while the power is off."""
        home = self.folder / "home" / name
        home.mkdir(mode=0o700)
        os.chown(home, number, number)
        self._append("passwd", name, f"x:{number}:{number}::/home/{name}:/bin/bash")
        self._append("shadow", name, "*:20000:0:99999:7:::")
        self._append("group", name, f"x:{number}:")

    # --- plumbing ----------------------------------------------------------------------------------------------

    def _lay_out(self) -> None:
        for name in (*_PRIVATE, "srv", "tmp"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "root").chmod(0o700)
        for name in ("tmp", "var/tmp"):
            (self.folder / name).chmod(0o1777)
        for name in ("passwd", "shadow", "group"):
            shutil.copy(f"/etc/{name}", self.folder / "etc" / name)
        self.add_user(USER, _USER_ID)
        (self.folder / "etc/hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {self.name}\n")
        (self.folder / "etc/nsswitch.conf").write_text(_NAMES_BY_FILES_ONLY)
        (self.folder / "etc/hostname").write_text(f"{self.name}\n")
        (self.folder / "etc/machine-id").write_text(f"{uuid.uuid4().hex}\n")
        sshd.make_key(self.key_file, self.name)
        sshd.write_configuration(self.folder / "etc/ssh", self.address)
        here = [name for name in (*_PRIVATE, *_FILES) if Path("/", name).exists()]
        binds = [*((name, f"/{name}") for name in here), ("boot-id", _BOOT_ID)]
        told = {"name": self.name, "shown": self._show_programs(), "binds": binds, "disk_mib": self._disk_mib}
        (self.folder / "machine.json").write_text(json.dumps(told))

    def _show_programs(self) -> list[tuple[str, str]]:
        """This interpreter, its packages and this repository, where they lie below a folder that the host hides."""
        hidden = [Path("/", name) for name in (*_PRIVATE, "srv", "tmp")]
        places = {Path(place).resolve() for place in (_REPOSITORY, sys.prefix, sys.base_prefix)}
        shown = []
        for place in places:
            if any(place.is_relative_to(folder) for folder in hidden) and not places & set(place.parents):
                inside = self.folder / place.relative_to("/")
                inside.mkdir(parents=True)
                shown.append((str(place), str(inside)))
        return shown

    def _append(self, file: str, user: str, rest: str) -> None:
        path = self.folder / "etc" / file
        kept = [old for old in path.read_text().splitlines() if not old.startswith(f"{user}:")]
        path.write_text("\n".join([*kept, f"{user}:{rest}", ""]))

    def _boot_command(self) -> list[str]:
        program = Path(__file__).with_name("first_process.py")
        fresh = ["unshare", "--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child"]
        return ["setpriv", "--pdeathsig", "KILL", *fresh, sys.executable, "-I", str(program), str(self.folder)]

    def _come_up(self) -> None:
        machine = self._machine
        assert machine is not None
        assert machine.stdout is not None
        said = machine.stdout.readline()
        assert said == b"up\n", f"{self.name} did not boot: {(self.folder / 'console.log').read_text()}"
        (first,) = proc.children(machine.pid)
        (self.folder / "run/sshd").mkdir(exist_ok=True)
        (self.folder / "first-pid").write_text(str(first))
        self._cable = self._bridge.plug(first, self.number)

    def _enter(self) -> list[str]:
        every = ("--net", "--mount", "--pid", "--uts", "--ipc")
        return ["nsenter", "--target", str(self.first_pid), *every, "--wd=/root"]

    def _takes_connections(self) -> bool:
        try:
            socket.create_connection((self.address, 22), timeout=1).close()
        except OSError:
            return False
        return True


def _namespace_of(pid: int) -> str:
    with suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/pid")
    return ""
