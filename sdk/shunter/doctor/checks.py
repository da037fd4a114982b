"""The examination, in the order in which things build on each other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from shunter.doctor import machine, service
from shunter.doctor.findings import Finding


def examine(url: str | None = None, api_key: str | None = None, data_dir: Path | None = None) -> Iterator[Finding]:
    """Everything that was looked at, as it is looked at."""
    yield machine.python()
    yield machine.package()
    yield from machine.extras()
    yield from machine.torch()
    yield machine.broker()
    yield machine.sqlite()
    yield from service.data_directory(data_dir)
    yield from service.reachable(url, api_key, data_dir)
