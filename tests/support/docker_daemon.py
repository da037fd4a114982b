"""A docker daemon of a test's own: no bridge, no rules of a firewall, everything under one folder."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from support.waiting import wait_until

CLIENT = "/usr/bin/docker"


def lacking() -> str:
    """Why there can be none here; empty: it can."""
    if os.getuid() != 0:
        return "only root starts a docker daemon"
    if not Path(CLIENT).exists() or _dockerd() is None:
        return "docker.io is not installed"
    return ""


class DockerDaemon:
    """Started at once; `close` ends it, and whatever runs under it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._log = (folder / "dockerd.log").open("wb")
        program = _dockerd()
        assert program is not None, lacking()
        argv = [program, "--data-root", folder / "data", "--exec-root", folder / "exec", "-H", self.host]
        argv += ["--pidfile", folder / "pid", "--bridge", "none", "--iptables=false", "--ip-masq=false"]
        argv += ["--storage-driver", "vfs"]
        self._process = subprocess.Popen(list(map(str, argv)), stdout=self._log, stderr=self._log)
        wait_until(lambda: self.run("version")[0] == 0, timeout_s=30, description=f"dockerd in {folder} answers")

    @property
    def host(self) -> str:
        return f"unix://{self.folder / 'sock'}"

    @property
    def environment(self) -> dict[str, str]:
        """For whoever shall use this daemon."""
        return {"DOCKER_HOST": self.host, "PATH": f"{Path(CLIENT).parent}:{os.environ['PATH']}"}

    def run(self, *argv: str) -> tuple[int, str]:
        """Exit status and output of one command."""
        done = subprocess.run([CLIENT, "-H", self.host, *argv], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def containers(self) -> list[str]:
        """Names of all containers, also of those that have ended."""
        return self.run("ps", "--all", "--format", "{{.Names}}")[1].split()

    def remove_containers(self) -> None:
        """All of them, whatever runs in them."""
        for name in self.containers():
            self.run("rm", "--force", name)

    def close(self) -> None:
        """End it."""
        self.remove_containers()
        self._process.terminate()
        self._process.wait(30)
        self._log.close()
        for name in (self.folder / "exec" / "netns").glob("*"):
            subprocess.run(["umount", name], check=True)  # it leaves that of the host mounted


def _dockerd() -> str | None:
    return shutil.which("dockerd", path=f"{os.environ['PATH']}:/usr/sbin")
