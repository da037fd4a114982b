"""Slurm batch scripts: the `#SBATCH` lines, and the training that the body starts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from shunter.errors import ShunterError
from shunter.importing.notes import Imported, Kind
from shunter.importing.shell import logical_lines, take_apart, take_script

RUN_FILE: Final = "run.sh"

_SHIM: Final = """\
#!/usr/bin/env bash
# The body of a Slurm batch script, with the variables and commands that Slurm would have given it. Every node runs it.
export SLURM_NODEID="$SHUNTER_NODE_RANK" SLURM_NNODES="$SHUNTER_NUM_NODES" SLURM_JOB_NUM_NODES="$SHUNTER_NUM_NODES"
export SLURM_GPUS_ON_NODE="$SHUNTER_RANKS_PER_NODE" SLURM_JOB_ID="$SHUNTER_JOB_ID" SLURM_SUBMIT_DIR="$PWD"
export SLURM_JOB_NODELIST="$MASTER_ADDR" SLURM_NODELIST="$MASTER_ADDR" SLURM_NTASKS="$SHUNTER_WORLD_SIZE"
scontrol() { echo "$MASTER_ADDR"; }
srun() {
  while [[ "${1:-}" == -* ]]; do
    case "$1" in
      -[NncwptJoeGAqC] | --nodes | --ntasks | --ntasks-per-node | --cpus-per-task | --gpus | --gpus-per-node | \\
      --gpus-per-task | --nodelist | --mem | --time | --partition | --jobid) shift 2 ;;
      *) shift ;;
    esac
  done
  "$@"
}

"""
_SHORT: Final[Mapping[str, str]] = {
    "J": "job-name", "N": "nodes", "n": "ntasks", "G": "gpus", "c": "cpus-per-task", "t": "time", "p": "partition",
    "q": "qos", "A": "account", "o": "output", "e": "error", "C": "constraint", "a": "array", "d": "dependency",
    "D": "chdir", "w": "nodelist", "x": "exclude",
}  # fmt: skip
_LEFT_OUT: Final[Mapping[str, str]] = {
    "partition": "providers are chosen by placement",
    "qos": "set priority to low, normal or high",
    "account": "money is counted by project and labels",
    "output": "output is kept by the service: shunter logs",
    "error": "output is kept by the service: shunter logs",
    "mail-type": "webhooks are set up at the service",
    "mail-user": "webhooks are set up at the service",
    "exclusive": "nodes are not shared",
    "requeue": "jobs are recovered after lost nodes by themselves (recovery.node_recoveries)",
    "no-requeue": "set recovery.node_recoveries to 0",
    "signal": "ranks get SIGTERM and time for a last checkpoint",
    "export": "set environment.variables",
    "chdir": "the source folder is the working directory",
    "ntasks": "the number of ranks follows from the GPUs",
    "ntasks-per-node": "the number of ranks follows from the GPUs",
    "open-mode": "output is kept by the service: shunter logs",
    "comment": "set labels",
    "get-user-env": "set environment.variables",
}
_REFUSED: Final[Mapping[str, str]] = {
    "array": "submit one job for each task: shunter submit --set",
    "dependency": "a job does not wait for another; submit it when that one has ended",
    "constraint": "set resources.gpu_models and min_gpu_memory_gib",
    "nodelist": "nodes cannot be named",
    "exclude": "nodes cannot be named",
    "reservation": "set resources.capacity to reserved where the provider has one",
    "begin": "a job starts as soon as there are nodes",
}


def is_batch_script(text: str) -> bool:
    """Whether Slurm would read options from it."""
    return re.search(r"^#SBATCH\s", text, re.MULTILINE) is not None


def take_batch_script(found: Imported, text: str) -> None:
    """A batch script.

    Raises:
        ShunterError: its body does nothing.
    """
    options = dict(_options(text))
    nodes = _nodes(found, options.pop("nodes", "1"))
    tasks = _tasks(options, nodes)
    gpus = _gpus(found, options, nodes, tasks)
    if gpus:
        found.ranks("--gres, --gpus", nodes, gpus)
    else:
        found.ranks("--nodes", nodes, 1, kind=Kind.ASSUMED, why="one GPU a node; the script asks for none")
    if (cpus := options.pop("cpus-per-task", "")).isdecimal():
        per_gpu = int(cpus) * tasks / found.get("resources.gpus_per_node")
        found.mapped(f"--cpus-per-task={cpus}", "resources.min_cpus_per_gpu", per_gpu)
    for name, value in options.items():
        _take_option(found, name, value)
    if not list(logical_lines(text)):
        raise ShunterError("the script does nothing")
    per_node = int(found.get("resources.gpus_per_node"))
    counts = {"SLURM_NNODES": nodes, "SLURM_JOB_NUM_NODES": nodes, "SLURM_GPUS_ON_NODE": per_node}
    script = take_apart(text, {name: str(count) for name, count in counts.items()})
    found.assumed("the folder", "source", {"kind": "folder", "path": "."}, "the folder of the document")
    if script is not None:
        take_script(found, script)
        return
    body = "\n".join(line for line in text.splitlines() if not line.startswith("#!"))
    found.files[RUN_FILE] = f"{_SHIM}{body.strip()}\n"
    found.mapped("the body", "workload", {"kind": "script", "command": ["bash", RUN_FILE], "launcher": "plain"})
    found.refused("the body", f"a shell program: written to {RUN_FILE}; take out what is about the old cluster")


def _options(text: str) -> Iterator[tuple[str, str]]:
    for line in re.findall(r"^#SBATCH\s+(.+)$", text, re.MULTILINE):
        words = shlex.split(line, comments=True)
        while words:
            name, equals, value = words.pop(0).partition("=")
            short = not name.startswith("--")
            if short and len(name) > 2:
                name, value, equals = name[:2], name[2:], "="
            if not equals and words and not words[0].startswith("-"):
                value = words.pop(0)
            name = name.lstrip("-")
            yield (_SHORT.get(name, name) if short else name), value


def _tasks(options: Mapping[str, str], nodes: int) -> int:
    """Slurm's tasks of a node."""
    per_node, in_all = options.get("ntasks-per-node", ""), options.get("ntasks", "")
    if per_node.isdecimal():
        return int(per_node) or 1
    return max(int(in_all) // nodes, 1) if in_all.isdecimal() else 1


def _gpus(found: Imported, options: dict[str, str], nodes: int, tasks: int) -> int:
    """GPUs of a node, and their model. Of several options the last one in this list holds."""
    gres = options.pop("gres", "")
    asked = [part.removeprefix("gpu").lstrip(":") or "1" for part in gres.split(",") if part.startswith("gpu")]
    counted = [(text, 1.0) for text in asked[:1]]
    for name, factor in (("gpus", 1 / nodes), ("gpus-per-task", float(tasks)), ("gpus-per-node", 1.0)):
        counted += [(options.pop(name), factor)] if name in options else []
    if not counted:
        return 0
    text, factor = counted[-1]
    model, _, count = text.rpartition(":")
    if model:
        found.mapped(f"GPU model {model}", "resources.gpu_models", [model.upper() if model.isalnum() else model])
    return max(int(int(count) * factor), 1) if count.isdecimal() else 0


def _nodes(found: Imported, text: str) -> int:
    least, _, most = text.partition("-")
    if most:
        found.dropped(f"--nodes {text}", f"a job runs on a fixed number of nodes; {most} are asked for")
    number = most or least
    return int(number) if number.isdecimal() and int(number) else 1


def _take_option(found: Imported, name: str, value: str) -> None:
    part = f"--{name}={value}" if value else f"--{name}"
    if name in _TAKEN:
        _TAKEN[name](found, part, value)
    elif name in _LEFT_OUT:
        found.dropped(part, _LEFT_OUT[name])
    else:
        found.refused(part, _REFUSED.get(name, "it is not known here; nothing was made of it"))


def _take_name(found: Imported, part: str, value: str) -> None:
    found.mapped(part, "name", re.sub(r"[^A-Za-z0-9 ._-]", "-", value)[:63].strip(" ._-") or "job")


def _take_time(found: Imported, part: str, value: str) -> None:
    seconds = seconds_of(value)
    if seconds:
        found.mapped(part, "limits.max_duration_s", seconds)
    else:
        found.refused(part, "set limits.max_duration_s")


def _take_memory(found: Imported, part: str, value: str) -> None:
    units = {"K": 2**-20, "M": 2**-10, "": 2**-10, "G": 1.0, "T": 1024.0}
    match = re.fullmatch(r"(\d+)([KMGT]?)B?", value.upper())
    if not match or match[1] == "0":
        found.dropped(part, "all memory of a node")
        return
    per_node = 1 if "per-gpu" in part else int(found.get("resources.gpus_per_node") or 1)
    found.mapped(part, "resources.min_memory_gib_per_gpu", round(int(match[1]) * units[match[2]] / per_node, 2))


_TAKEN: Final[Mapping[str, Callable[[Imported, str, str], None]]] = {
    "job-name": _take_name,
    "time": _take_time,
    "cpus-per-gpu": lambda found, part, value: found.mapped(part, "resources.min_cpus_per_gpu", float(value)),
    "mem": _take_memory,
    "mem-per-gpu": _take_memory,
}


def seconds_of(text: str) -> int | None:
    """Slurm's times: `30`, `30:00`, `1:30:00`, `2-12`, `2-12:30`, `2-12:30:00`."""
    days, dash, clock = text.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdecimal() for part in [*parts, *([days] if dash else [])]) or len(parts) > 3:
        return None
    numbers = [int(part) for part in parts]
    if dash:
        hours, minutes, seconds = [*numbers, 0, 0][:3]
        return int(days) * 86400 + hours * 3600 + minutes * 60 + seconds
    if len(numbers) == 1:
        return numbers[0] * 60
    hours, minutes, seconds = [0, *numbers][-3:]
    return hours * 3600 + minutes * 60 + seconds
