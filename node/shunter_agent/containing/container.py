"""The container of a node: its name, and docker's command lines."""

from __future__ import annotations

import glob
import os
import stat
from typing import Any, Mapping, NamedTuple, Sequence

from shunter_agent.exchange.objects import CACHE_VARIABLE
from shunter_agent.keeping.layout import Layout

LABEL = "shunter.node"
_PYTHON_IS_OLD = "import sys; sys.exit(sys.version_info < (3, 8))"
_DEVICES = ("/dev/infiniband", "/dev/kfd", "/dev/dri")
"""Handed in where the machine has them: InfiniBand, and GPUs other than NVIDIA's."""
_STACK_BYTES = 64 << 20
_PROXIES = ("http_proxy", "https_proxy", "no_proxy")


class Wanted(NamedTuple):
    """What the launch file says of the container."""

    image: str
    gpus: bool
    may_install: bool

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Wanted:
        return cls(str(found["image"]), bool(found.get("gpus")), bool(found.get("may_install")))


class Container(NamedTuple):
    """One node's. `docker` is how docker is called, `image` the id of the image that is here."""

    docker: Sequence[str]
    image: str
    layout: Layout
    node: str
    job: str
    gpus: bool

    @property
    def name(self) -> str:
        return f"shunter-{self.node}"

    def check_argv(self) -> list[str]:
        """Starts it as it will be started, only to ask for the version of its Python."""
        return [*self._run(), *self._folders(), "--entrypoint", "python3", self.image, "-c", _PYTHON_IS_OLD]

    def run_argv(self) -> list[str]:
        """Runs the agent in it, to its end; its exit status is docker's."""
        named = ["--name", self.name, "--label", f"{LABEL}={self.node}", "--label", f"shunter.job={self.job}"]
        root = self.layout.root
        argv = ["--entrypoint", "python3", self.image, self.layout.program, "contained", "--dir", root]
        return [*self._run(), *named, "--env-file", self.layout.container_environment, *self._folders(), *argv]

    def attach_argv(self) -> list[str]:
        """Waits for one that runs, as `run_argv` does."""
        return [*self.docker, "attach", "--no-stdin", self.name]

    def _folders(self) -> list[str]:
        """At the same paths as outside."""
        root, cache = self.layout.root, os.environ.get(CACHE_VARIABLE)
        kept = ["--volume", f"{cache}:{cache}:ro"] if cache and os.path.isdir(cache) else []
        return ["--volume", f"{root}:{root}", "--workdir", root, *kept]

    def _run(self) -> list[str]:
        return [
            *self.docker,
            *("run", "--rm", "--log-driver", "none"),
            # The machine's own: ports, shared memory, and pids, by which ranks are signalled and found again.
            *("--network", "host", "--ipc", "host", "--pid", "host", "--uts", "host", "--userns", "host"),
            # What a debugger, numactl and RDMA need; the node is no more another job's than without an image.
            *("--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined"),
            *("--security-opt", "label=disable"),
            *("--cap-add", "SYS_PTRACE", "--cap-add", "SYS_NICE", "--cap-add", "IPC_LOCK"),
            *("--ulimit", f"stack={_STACK_BYTES}"),
            *_user(os.getuid(), os.getgid(), os.getgroups(), self.layout.root),
            *(_gpus() if self.gpus else ()),
            *_devices(_DEVICES),
        ]


def handed_on(environment: Mapping[str, str]) -> str:
    """The file of variables that the agent inside gets: ours, the marks by which a node is found, and proxies."""
    kept = {name: value for name, value in environment.items() if "SHUNTER_" in name or name.lower() in _PROXIES}
    return "".join(f"{name}={value}\n" for name, value in sorted(kept.items()) if "\n" not in value)


def _user(uid: int, gid: int, groups: Sequence[int], home: str) -> list[str]:
    """The user that the agent has outside, whoever the image is for: what ranks write is read and removed by it."""
    if uid == 0:
        return ["--user", "0:0"]
    others = [word for group in groups if group != gid for word in ("--group-add", str(group))]
    # Unlike root's, its memory is pinned for RDMA only within a limit; and the image knows no home of it.
    return ["--user", f"{uid}:{gid}", *others, "--ulimit", "memlock=-1", "--env", f"HOME={home}"]


def _gpus() -> list[str]:
    """All: which of them are the job's is told to ranks by CUDA_VISIBLE_DEVICES, as without an image.

    By their names too: what the toolkit alone hands in is taken away again when systemd reloads its units.
    """
    named = _devices(sorted(glob.glob("/dev/nvidia*")))
    return ["--gpus", "all", "--env", "NVIDIA_DRIVER_CAPABILITIES=compute,utility", *named]


def _devices(paths: Sequence[str]) -> list[str]:
    """Those that are there; a folder in which there is no device would be refused."""
    there = [path for path in paths if any(map(_is_device, [path, *glob.glob(f"{path}/*")]))]
    return [word for path in there for word in ("--device", path)]


def _is_device(path: str) -> bool:
    try:
        return stat.S_ISCHR(os.stat(path).st_mode)
    except OSError:
        return False
