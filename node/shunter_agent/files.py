"""Small files written whole, text made fit for JSON, the last lines of a log, digests."""

from __future__ import annotations

import contextlib
import json
import math
import os
from typing import Any, Iterator

BLOCK = 1 << 18
FULL_BYTES = 1 << 16


def clean(value: Any) -> Any:
    """The value with lone surrogates replaced and numbers that JSON cannot carry set to null."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {clean(str(key)): clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(item) for item in value]
    return value


def to_json(value: Any) -> bytes:
    """One line of valid JSON, whatever text the value holds."""
    return json.dumps(clean(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8")


def write_json(path: str, value: Any, durable: bool = True) -> None:
    """Replace the file at once: a reader, or a crash, meets the old file or the new one."""
    partial = f"{path}.tmp-{os.getpid()}"
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        try:
            write_all(descriptor, to_json(value))
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(partial, path)
    except OSError:
        _remove(partial)
        raise
    if durable:
        sync_folder(os.path.dirname(path))


def read_json(path: str) -> dict[str, Any] | None:
    """The object in the file; None when there is none that can be read."""
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte, also where the kernel takes only some at a time."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def sync_folder(path: str) -> None:
    """Make renames in the folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def tail(path: str, lines: int = 50, limit: int = 8192) -> str:
    """The last lines of a log, at most `limit` bytes; carriage returns of progress bars count as line ends."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 4 * limit))
            data = file.read()
    except OSError:
        return ""
    text = data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    kept = [line for line in text.split("\n") if line.strip()][-lines:]
    return cut("\n".join(kept), limit)


def cut(text: str, limit: int = 8192) -> str:
    """The end of the text, at most `limit` bytes of UTF-8."""
    data = text.encode("utf-8", "replace")
    return text if len(data) <= limit else data[-limit:].decode("utf-8", "ignore")


def is_full(folder: str) -> bool:
    """Whether the disk has no room to speak of."""
    there = os.statvfs(folder)
    return there.f_bavail * there.f_frsize < FULL_BYTES


def digest(path: str) -> str:
    """SHA-256 of the file, in hexadecimal."""
    import hashlib

    state = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(BLOCK), b""):
            state.update(block)
    return state.hexdigest()


def walk_files(folder: str) -> Iterator[str]:
    """Paths of the regular files below the folder, relative to it, in order; links are not followed."""
    for where, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(where, name)
            if os.path.isfile(path) and not os.path.islink(path):
                yield os.path.relpath(path, folder)


def take_write_permission(folder: str) -> None:
    """Of the files below a folder; its folders keep it, so that it can be removed."""
    for name in walk_files(folder):
        path = os.path.join(folder, name)
        os.chmod(path, os.stat(path).st_mode & ~0o222)


def remove_tree(path: str) -> None:
    """Remove a folder with all it holds; what is not there is gone already."""
    import shutil

    shutil.rmtree(path, ignore_errors=True)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
