"""The DeepSpeed file of a script, checked before any rank starts, by the rules that the service has for such documents.

The rules travel with the trainer and run in the job's own interpreter, since the agent is standard library only.
"""

from __future__ import annotations

import json
import os

from shunter_agent.launching.ranks import Crew, locate
from shunter_agent.preparing.shell import SetupFailed, Shell


def check_deepspeed_file(shell: Shell, crew: Crew, environment: dict[str, str]) -> None:
    """Refuse a file that cannot work on this job's ranks.

    Raises:
        SetupFailed: there is no such file, or it is wrong; each line names the place.
    """
    document, name = crew.document, crew.document["strategy"]["deepspeed_file"]
    path = locate(crew, name)
    if not os.path.isfile(path):
        raise SetupFailed(f"there is no DeepSpeed file {name}")
    workload = document["workload"]
    program = {
        "name": name,
        "arguments": list(workload.get("arguments") or ()),
        "launcher": workload.get("launcher") or "torch",
        "world_size": int(crew.ranks["world_size"]),
        "ranks": "of this job",
    }
    search = os.pathsep.join([crew.layout.trainer, environment.get("PYTHONPATH") or ""]).rstrip(os.pathsep)
    argv = (crew.ready.python, "-m", "shunter_schemas.deepspeed", path, json.dumps(program))
    shell.run(argv, crew.ready.cwd, {**environment, "PYTHONPATH": search}, f"check {name}")
