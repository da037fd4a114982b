"""Commands that reach a job's nodes themselves: `ssh`, `debug`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shunter.cli.arguments import JobId
from shunter.cli.command import Context, command

RankOf = Annotated[int, typer.Option("--rank", min=0, help="The node of this rank.")]
Wanted = Annotated[list[str] | None, typer.Argument(metavar="COMMAND", help="Run this instead of a shell.")]
Minutes = Annotated[float, typer.Option("--minutes", min=1, max=1440, help="How long the key lets in.")]
Into = Annotated[
    Path | None, typer.Option("--into", metavar="FILE", help="The archive. Default: shunter-debug-JOB.tar.gz.")
]

_PANEL = "Nodes"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "ssh", panel=_PANEL)(ssh)
    command(app, "debug", panel=_PANEL)(debug)


def ssh(context: Context, job_id: JobId, wanted: Wanted = None, rank: RankOf = 0, minutes: Minutes = 60) -> int:
    """Open a shell on a node of a job, in the job's folder, or run a command there: `shunter ssh JOB -- nvidia-smi`."""
    import subprocess
    import sys

    from shunter import shells

    with shells.key_pair() as (private, public), context.client() as client:
        call = client.open_shell(job_id, public, rank=rank, duration_s=60 * minutes)
        terminal = not wanted and sys.stdin.isatty()
        argv = shells.ssh_command(call.answer or {}, private, wanted or (), terminal=terminal)
        return subprocess.run(argv, check=False).returncode


def debug(context: Context, job_id: JobId, into: Into = None) -> None:
    """Collect what is known of a job in one archive, without secrets: for whoever looks for a fault."""
    import json

    from shunter.debugging import LAST_LINES, Collected, write_bundle

    with context.client() as client:
        found = Collected(
            job=client.get(job_id),
            report=client.debug(job_id),
            lines=list(client.logs(job_id, tail=LAST_LINES)),
            peeks=client.peek(job_id),
        )
    path = into or Path(f"shunter-debug-{job_id}.tar.gz")
    names = write_bundle(path, found)
    if context.as_json:
        print(json.dumps({"path": str(path), "files": names}))
    else:
        print(f"{path}: {', '.join(names)}")
