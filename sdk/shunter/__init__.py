"""Shunter's client: submit a training, follow it, fetch what it made.

    import shunter

    with shunter.Client() as client:
        job = client.submit("job.json")
        job = client.wait(job.id, progress=True)
        client.download_artifacts(job.id, "out")

`AsyncClient` is the same for an event loop. Names are loaded on first use, so that `import shunter` costs next to
nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from shunter import errors
from shunter.errors import ShunterError

if TYPE_CHECKING:
    from shunter.async_client import AsyncClient
    from shunter.client import Client
    from shunter.connection import Connection, find_connection

    __version__: str

__all__ = ["AsyncClient", "Client", "Connection", "ShunterError", "__version__", "errors", "find_connection"]

_HOMES = {
    "AsyncClient": "shunter.async_client",
    "Client": "shunter.client",
    "Connection": "shunter.connection",
    "find_connection": "shunter.connection",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name == "__version__":
        return _version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("shunter")
    except PackageNotFoundError:  # a source tree on the path, not an installation
        return "0+unknown"
