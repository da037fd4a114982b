"""Commands about the service and the installation: `providers`, `doctor`, `completion`."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from typing import Annotated, Final

import typer

from shunter.cli.codes import ExitCode
from shunter.cli.command import Context, command


class Shell(StrEnum):
    """Shells that can be completed."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


WhichShell = Annotated[Shell, typer.Argument(help="The shell.")]

_MARKS: Final = {"ok": "ok     ", "note": "note   ", "problem": "PROBLEM"}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "providers", panel="Service")(providers)
    command(app, "doctor", panel="Service")(doctor)
    app.command("completion", rich_help_panel="Service")(completion)


def providers(context: Context) -> None:
    """List the configured provider instances and how they are."""
    from shunter.cli import output

    with context.client() as client:
        found = client.providers()
    if context.as_json:
        output.print_json_list(found)
        return
    headings = ["NAME", "PLUGIN", "STATUS", "BILLS", "READ", "DETAIL"]
    rows = [[p.name, p.plugin, p.status, "yes" if p.bills else "no", output.age(p.read_at), p.detail] for p in found]
    if context.wide:
        headings += ["ACCOUNT", "CAPABILITIES"]
        for row, p in zip(rows, found, strict=True):
            row += [p.account or "", " ".join(f"{name}={value}" for name, value in p.capabilities.items() if value)]
    output.print_table(headings, rows, empty="no providers")


def doctor(context: Context) -> int:
    """Check this installation and the service, and say what to mend; exits 1 where something is wrong."""
    from shunter.cli import output
    from shunter.doctor import Verdict, examine

    found = []
    for one in examine(context.url, context.api_key, context.data_dir):
        found.append(one)
        if not context.as_json:
            fix = f"\n           {one.fix}" if one.fix else ""
            print(f"{_MARKS[one.verdict]}  {one.name}: {one.detail}{fix}", flush=True)
    problems = sum(one.verdict is Verdict.PROBLEM for one in found)
    if context.as_json:
        output.print_data([{**one._asdict(), "verdict": str(one.verdict)} for one in found])
    elif problems:
        output.say(f"{problems} to mend")
    return ExitCode.FAILED if problems else ExitCode.SUCCEEDED


def completion(shell: WhichShell) -> None:
    """Print what a shell needs to complete commands, options, states and job ids: eval "$(shunter completion bash)"."""
    # The protocol by which the shell's own script asks later; asked so, the program prints that script.
    environment = {**os.environ, "_SHUNTER_COMPLETE": f"source_{shell.value}"}
    os.execve(sys.executable, [sys.executable, "-m", "shunter"], environment)  # noqa: S606
