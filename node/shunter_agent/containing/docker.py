"""The machine's docker: how it is called, and what its words mean."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import NamedTuple, Sequence

REFUSED = "image_refused"
NO_DOCKER = "no_docker"
UNREACHABLE = "image_unreachable"
FULL = "disk_full"
NOT_STARTED = "container_not_started"
CLASSES = {REFUSED: "user", NO_DOCKER: "user", UNREACHABLE: "node", FULL: "node", NOT_STARTED: "node"}
"""Whose fault each is. A machine without docker is the user's: every other one of its kind lacks it too."""

_HOW = (
    "`environment.image` needs docker on the machine: choose a machine image that has it (`placement.options`, or the "
    "provider's settings), install it on a host of your own, or leave `environment.image` out"
)
_TOOLKIT = (
    "docker gives containers no GPU here, since the NVIDIA container toolkit is missing: choose a machine image that "
    "has it (`placement.options`, or the provider's settings), install nvidia-container-toolkit on a host of your own, "
    "or leave `environment.image` out"
)
_INSTALL = (
    ("apt-get", "update", "-q"),
    ("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "-q", "--no-install-recommends", "docker.io"),
)
_SIGNS: tuple[tuple[str, str], ...] = (
    ("", r"toomanyrequests|too many requests"),
    (FULL, r"no space left on device|disk quota exceeded"),
    (
        REFUSED,
        r"manifest unknown|manifest for .* not found|name unknown|no matching manifest|does not exist|invalid reference"
        r"|no such image|unauthorized|authentication required|no basic auth credentials|insufficient_scope"
        r"|\b(?<!permission )denied\b|repository name must",
    ),
)
"""What `docker pull` says when it fails; anything else is the network's, and may go by."""


class ImageFault(Exception):
    """The image does not run here. The text is for the user, `reason` a slug of `CLASSES`."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Passing(Exception):
    """It may go well the next time."""


class Answer(NamedTuple):
    """What a call of docker came to."""

    status: int
    words: str


def call(argv: Sequence[str], within_s: float = 60.0) -> Answer:
    """Run a short command to its end."""
    try:
        done = subprocess.run(
            list(argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=within_s
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Answer(-1, str(error))
    return Answer(done.returncode, done.stdout.decode("utf-8", "replace").strip())


def find(may_install: bool) -> tuple[str, ...]:
    """How this user calls docker: as it is, for root and the group `docker`, else with sudo, if that asks for nothing.

    Raises:
        ImageFault: there is none.
        Passing: its daemon does not answer.
    """
    if shutil.which("docker") is None and not (may_install and _install()):
        raise ImageFault(NO_DOCKER, f"there is no docker; {_HOW}")
    told = []
    for docker in (("docker",), ("sudo", "-n", "docker")):
        answer = call((*docker, "version", "--format", "{{.Server.Version}}"))
        if answer.status == 0:
            return docker
        told.append(answer.words)
    if "permission denied" in told[0]:
        who = f"the user {os.getuid()} may not call docker: it is neither root nor in the group docker, and has no sudo"
        raise ImageFault(NO_DOCKER, f"{who}; {_HOW}")
    raise Passing(f"docker does not answer: {told[0]}")


def pull_fault(words: str) -> ImageFault | None:
    """Why `docker pull` failed for good; None: it may go well the next time."""
    reason = next((reason for reason, pattern in _SIGNS if re.search(pattern, words, re.IGNORECASE)), "")
    return ImageFault(reason, words) if reason else None


def start_fault(answer: Answer) -> ImageFault | None:
    """Why a container of the image cannot start, or not with the agent in it; None: it can, or docker has a cold."""
    words = answer.words
    if re.search(r"could not select device driver|nvidia-container|unknown or invalid runtime", words):
        return ImageFault(NO_DOCKER, f"{_TOOLKIT}\n{words}")
    if re.search(r"exec format error", words):
        return ImageFault(REFUSED, f"it is made for another kind of processor\n{words}")
    if answer.status in (126, 127):
        return ImageFault(REFUSED, f"there is no python3 in it, which the node's agent needs\n{words}")
    if answer.status == 1:
        return ImageFault(REFUSED, f"its python3 is older than 3.8, which the node's agent needs\n{words}".rstrip())
    return pull_fault(words) if answer.status else None


def layers(output: str) -> str:
    """How far `docker pull` is, by its output; empty while it says nothing."""
    seen = set(re.findall(r"^([0-9a-f]{12}): ", output, re.MULTILINE))
    done = set(re.findall(r"^([0-9a-f]{12}): (?:Pull complete|Already exists)", output, re.MULTILINE))
    return f"{len(done)} of {len(seen)} layers" if seen else ""


def _install() -> bool:
    """Debian's and Ubuntu's own package, on a machine that was made for the job."""
    if shutil.which("apt-get") is None:
        return False
    prefix = () if os.getuid() == 0 else ("sudo", "-n")
    for command in _INSTALL:
        call((*prefix, *command), within_s=600.0)
    return shutil.which("docker") is not None
