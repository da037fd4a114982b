"""`shunter`: the commands, and what happens when the command line itself is wrong."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.exceptions import TyperException

from shunter.cli import (
    beginning,
    changing,
    curves,
    documents,
    fleet,
    jobs,
    outputs,
    planning,
    reaching,
    receipts,
    rehearsing,
    roles,
    service,
)
from shunter.cli.codes import ExitCode
from shunter.cli.other_words import meant_by

app = typer.Typer(
    name="shunter",
    help="Train on many GPUs from one document.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        import shunter

        print(f"shunter {shunter.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Train on many GPUs from one document: submit it, follow it, fetch what it made."""


for commands in (
    documents,
    planning,
    rehearsing,
    jobs,
    receipts,
    changing,
    outputs,
    curves,
    reaching,
    beginning,
    fleet,
    service,
    roles,
):
    commands.register(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (default: that of the process); the exit code."""
    try:
        return app(arguments, prog_name="shunter", standalone_mode=False) or ExitCode.SUCCEEDED
    except typer.Abort:
        return ExitCode.INTERRUPTED
    except TyperException as error:
        return _tell_usage(error, as_json="--json" in (sys.argv if arguments is None else arguments))


def _tell_usage(error: TyperException, *, as_json: bool) -> int:
    context = getattr(error, "ctx", None)
    message = getattr(error, "format_message", lambda: str(error))()
    path = context.command_path if context else "shunter"
    if type(error).__name__ == "NoArgsIsHelpError":
        print(context.get_help() if context else message)
        return ExitCode.USAGE
    message, hint = " ".join(message.split()), f"see {path} --help"
    if context is not None and context.parent is None and message.startswith("No such option"):
        hint = "options stand behind the command: shunter jobs --json"
    elif meant := meant_by(message):
        message, hint = message.partition(".")[0], f"here it is `shunter {meant}`; all commands: {path} --help"
    told = {"error": "UsageError", "message": message, "hint": hint, "errors": []}
    print(json.dumps(told) if as_json else f"error: {message} - {hint}", file=sys.stderr)
    return getattr(error, "exit_code", ExitCode.USAGE)
