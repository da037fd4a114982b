"""What a command that does not exist is called here: the words of other tools. Typing errors are typer's own part."""

from __future__ import annotations

import re
from typing import Final

_ELSEWHERE: Final = {
    # the word of other tools, also of Slurm's: the command here
    **dict.fromkeys(("launch", "apply", "create", "sbatch", "post"), "submit"),
    **dict.fromkeys(("exec", "torchrun", "accelerate", "python", "srun"), "run"),
    **dict.fromkeys(("list", "ls", "ps", "queue", "squeue"), "jobs"),
    **dict.fromkeys(("status", "show", "get", "describe", "inspect"), "job"),
    **dict.fromkeys(("stop", "kill", "down", "abort", "scancel"), "cancel"),
    **dict.fromkeys(("rm", "remove"), "delete"),
    **dict.fromkeys(("attach", "wait", "follow"), "watch"),
    **dict.fromkeys(("log", "tail", "output"), "logs"),
    **dict.fromkeys(("download", "fetch", "pull"), "artifacts"),
    **dict.fromkeys(("optimize", "estimate", "price"), "plan"),
    **dict.fromkeys(("gpus", "show-gpus", "offer"), "offers"),
    **dict.fromkeys(("start", "server", "serve"), "up"),
    **dict.fromkeys(("check", "info"), "doctor"),
    **dict.fromkeys(("cost", "cost-report", "bill"), "costs"),
    **dict.fromkeys(("new", "config", "import", "convert"), "init"),
    **dict.fromkeys(("shell", "login"), "ssh"),
    **dict.fromkeys(("test", "try"), "rehearse"),
    **dict.fromkeys(("restart", "again"), "retry"),
    **dict.fromkeys(("edit", "set", "patch"), "update"),
}


def meant_by(message: str) -> str | None:
    """The command that another tool's word means, out of the message about a command that does not exist."""
    found = re.match(r"No such command '([^']*)'", message)
    return _ELSEWHERE.get(found[1].lower()) if found else None
