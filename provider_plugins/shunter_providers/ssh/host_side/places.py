"""Where things lie on a host, and the lock that makes changes there one at a time.

BASE/                     0700
    lock
    cache/<sha256>        files by their content, shared by all nodes of the host
    nodes/<token>/
        lease.json        ours: who holds which slots, since which boot
        agent.json        the agent's: its process, once it lives
        service-url       ours: where the agent finds the service at this moment
        released          ours: somebody asked for the end; nothing starts here any more
        …                 the launch's own files, and what the agent makes
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from contextlib import contextmanager
from typing import Any, Iterator, NamedTuple

TOKEN = re.compile(r"[a-z][a-z0-9-]{0,39}")
DIGEST = re.compile(r"[0-9a-f]{64}")
LOCK_WITHIN_S = 10.0


class Refused(Exception):
    """The answer is no; `kind` is a slug for the program, the text is for a reader."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Places(NamedTuple):
    """The folders of one base."""

    base: str

    @property
    def nodes(self) -> str:
        return os.path.join(self.base, "nodes")

    @property
    def cache(self) -> str:
        return os.path.join(self.base, "cache")

    def node(self, token: str) -> str:
        """A node's folder.

        Raises:
            Refused: this is no token (it would become a path).
        """
        if not TOKEN.fullmatch(token):
            raise Refused("invalid", f"{token!r} is no node token")
        return os.path.join(self.nodes, token)

    def blob(self, digest: str) -> str:
        """Where a file of this content lies.

        Raises:
            Refused: this is no digest.
        """
        if not DIGEST.fullmatch(digest):
            raise Refused("invalid", f"{digest!r} is no SHA-256")
        return os.path.join(self.cache, digest)


def places_of(request: dict[str, Any]) -> Places:
    """The folders of the request's base, made where they lack.

    Raises:
        Refused: they cannot be made or written.
    """
    places = Places(os.path.abspath(os.path.expanduser(request["base"])))
    try:
        for folder in (places.base, places.nodes, places.cache):
            os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as error:
        raise Refused("folder", f"the folder {places.base} cannot be made: {error.strerror}") from error
    if os.stat(places.base).st_uid != os.getuid() or not os.access(places.nodes, os.W_OK):
        raise Refused("folder", f"the folder {places.base} is not this user's own")
    return places


@contextmanager
def locked(places: Places) -> Iterator[None]:
    """Alone among all who change this base.

    Raises:
        Refused: somebody holds the lock for too long.
    """
    descriptor = os.open(os.path.join(places.base, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    give_up_at = time.monotonic() + LOCK_WITHIN_S
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > give_up_at:
                    raise Refused("busy", f"another call holds {places.base}/lock") from None
                time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)


def read_json(path: str) -> dict[str, Any] | None:
    """The object in a file; None: there is none that can be read."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def write_file(path: str, content: bytes, mode: int = 0o600) -> None:
    """Write a file whole, or not at all."""
    draft = f"{path}.new-{os.getpid()}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise


def boot_id() -> str:
    """The kernel's id of this boot."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
