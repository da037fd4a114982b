"""Wall clocks that a test sets, one for each process: a small library is preloaded, and told by a file in the
process's working folder.

(libfaketime 0.9.10 does not do: with the monotonic clock left alone, Python's `time.sleep` fails under it.) Monotonic
clocks, the boot clock, sleeps and the times of files stay the kernel's own: no administrator can set those either.
"""

from __future__ import annotations

import atexit
import os
import shutil
import struct
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

import pytest

_SOURCE: Final = Path(__file__).with_name("wall_clock.c")
_NAME: Final = "wall-clock"
_COMPILERS: Final = ("cc", "gcc", "clang")


def can_set_clocks() -> bool:
    """Whether there is a compiler for the library."""
    return any(shutil.which(name) for name in _COMPILERS)


def settable_clock() -> dict[str, str]:
    """The environment of a process whose clock `set_clock` sets. Skips where there is no C compiler."""
    if not can_set_clocks():
        if os.environ.get("CI") == "true":
            pytest.fail("there is no C compiler")
        pytest.skip("there is no C compiler")
    return {"LD_PRELOAD": str(_library())}


def set_clock(folder: Path, ahead_s: float) -> None:
    """Processes that were started in this folder read a wall clock so far ahead (negative: behind), at once or within
    a second."""
    path = folder / _NAME
    if not path.exists():
        draft = folder / f".{_NAME}"
        draft.write_bytes(struct.pack("d", ahead_s))
        draft.replace(path)
    with path.open("r+b", buffering=0) as file:  # in place: processes have it mapped
        file.write(struct.pack("d", ahead_s))


@cache
def _library() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="shclk"))
    folder.chmod(0o755)  # PostgreSQL runs as another user
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    library = folder / "wall_clock.so"
    compiler = next(name for name in _COMPILERS if shutil.which(name))
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(_SOURCE), "-lm"], check=True)
    return library
