"""What travels to a node: the agent as a zip application, the trainer as a zip on `PYTHONPATH`, and `launch.json`.

The archives hold sources only and are byte for byte the same on every machine and day: fixed times, modes and order.
"""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Mapping
from functools import cache
from importlib import util
from pathlib import Path

from shunter_providers.contract import Launch
from shunter_schemas.node_sync import LaunchFile

ARGV = ("{python}", "agent.pyz", "start", "--dir", ".")

_AGENT_MAIN = b"""\
import runpy

runpy.run_module("shunter_agent", run_name="__main__", alter_sys=True)
"""
_SHEBANG = b"#!/usr/bin/env python3\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip can tell
_MODE = 0o644 << 16


def pack_launch(launch: LaunchFile) -> Launch:
    """Everything that starts one node's agent."""
    files = {
        "agent.pyz": agent_archive(),
        "trainer.zip": trainer_archive(),
        "launch.json": launch.model_dump_json(exclude=None if launch.container else {"container"}).encode(),
    }
    return Launch(argv=ARGV, files=files)


@cache
def agent_archive() -> bytes:
    """`shunter_agent` as a zip application."""
    return _SHEBANG + _zip({"__main__.py": _AGENT_MAIN, **_sources("shunter_agent")})


@cache
def trainer_archive() -> bytes:
    """`shunter_trainer` and what it imports of ours."""
    return _zip({**_sources("shunter_trainer"), **_sources("shunter_schemas")})


def _sources(package: str) -> dict[str, bytes]:
    root = _folder(package)
    return {
        f"{package}/{path.relative_to(root).as_posix()}": path.read_bytes()
        for path in root.rglob("*.py")
        if "__pycache__" not in path.parts
    }


def _folder(package: str) -> Path:
    """Where an installed package lies, without importing it: the trainer would pull torch."""
    spec = util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(f"the package {package} is not installed here ({sys.prefix})")
    return Path(next(iter(spec.submodule_search_locations)))


def _zip(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = _MODE
            entry.create_system = 3
            archive.writestr(entry, files[name])
    return buffer.getvalue()
