"""Commands that are a part of the service: `up`, `service`, `worker` and others. The SDK only starts them, by name."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Final, NamedTuple

import typer

from shunter.cli.codes import ExitCode


class Role(NamedTuple):
    """A part of the service that a command starts."""

    help: str
    argv: tuple[str, ...]
    needs: tuple[str, ...]
    """Packages that come with the extra."""
    extra: str


ROLES: Final = {
    "up": Role(
        "Run the whole service on this machine: API, worker and Redis.",
        ("shunter_service", "up"),
        ("litestar", "sqlalchemy", "celery", "redis"),
        "all",
    ),
    "service": Role("Run the API alone.", ("shunter_service", "api"), ("litestar", "sqlalchemy"), "service"),
    "worker": Role("Run a worker alone.", ("shunter_workers",), ("celery", "sqlalchemy", "redis"), "workers"),
    "backup": Role(
        "Copy what a service keeps into a folder, while it runs.",
        ("shunter_service", "backup"),
        ("sqlalchemy", "pydantic_settings", "fsspec"),
        "service",
    ),
    "restore": Role(
        "Make a data directory from a backup.",
        ("shunter_service", "restore"),
        ("sqlalchemy", "pydantic_settings", "alembic"),
        "service",
    ),
    "migrate": Role(
        "Bring a database to the newest schema, or back to that of an older release.",
        ("shunter_service", "migrate"),
        ("sqlalchemy", "pydantic_settings", "alembic"),
        "service",
    ),
    "keys": Role(
        "List, create and revoke the keys of a service, on the machine of its database.",
        ("shunter_service", "keys"),
        ("sqlalchemy", "pydantic_settings"),
        "service",
    ),
    "activity": Role(
        "Statements, steps, messages and exchanges per second of the service's processes on this machine.",
        ("shunter_service", "activity"),
        ("pydantic_settings",),
        "service",
    ),
    "provider": Role(
        "List provider plugins and instances, check one, begin a new plugin.",
        ("shunter_workers.provider",),
        (),
        "workers",
    ),
}

_ANYTHING: Final = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for name, role in ROLES.items():
        app.command(
            name, help=role.help, rich_help_panel="Service", context_settings=_ANYTHING, options_metavar="[OPTIONS]"
        )(_starter(name, role))


def missing(role: Role) -> list[str]:
    """The packages that this installation lacks for a role."""
    return [package for package in role.needs if find_spec(package) is None]


def _starter(name: str, role: Role) -> Callable[[typer.Context], None]:
    def start(context: typer.Context) -> None:
        if lacking := missing(role):
            print(
                f"error: `shunter {name}` needs {', '.join(lacking)} - pip install 'shunter[{role.extra}]'",
                file=sys.stderr,
            )
            raise typer.Exit(ExitCode.USAGE)
        # exec: signals, the terminal and the exit code are the role's own
        os.execv(sys.executable, [sys.executable, "-m", *role.argv, *context.args])  # noqa: S606

    return start
