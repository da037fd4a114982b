"""Secrets of a data directory: made once, readable by their owner only, never overwritten."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def ensure(path: Path, prefix: str = "") -> None:
    """Make the file with a fresh secret unless it exists. Two starters end with the same secret.

    The text is written to a file of its own first and linked into place, so that nobody ever reads half of it.
    """
    if path.exists():
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "w") as file:
            file.write(f"{prefix}{secrets.token_urlsafe(32)}\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            return
    finally:
        draft.unlink(missing_ok=True)
