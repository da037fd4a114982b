"""SkyPilot's task files. Several documents in one file (pipelines) and services are refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from shunter.errors import ShunterError
from shunter.importing.notes import Imported, Kind
from shunter.importing.shell import take_apart, take_script

FIELDS: Final = frozenset(
    {"name", "workdir", "num_nodes", "resources", "envs", "secrets", "volumes", "file_mounts", "setup", "run"}
    | {"config", "service", "experimental", "event_callback"}
)
RUN_FILE: Final = "run.sh"

_SHIM: Final = """\
#!/usr/bin/env bash
# The `run` of a SkyPilot task, with the variables that SkyPilot would have set.
export SKYPILOT_NODE_RANK="$SHUNTER_NODE_RANK" SKYPILOT_NUM_NODES="$SHUNTER_NUM_NODES"
export SKYPILOT_NUM_GPUS_PER_NODE="$SHUNTER_RANKS_PER_NODE" SKYPILOT_NODE_IPS="$MASTER_ADDR"
export SKYPILOT_TASK_ID="$SHUNTER_JOB_ID" SKYPILOT_SETUP_NODE_RANK="$SHUNTER_NODE_RANK"

"""
_REFUSED: Final[Mapping[str, str]] = {
    "service": "a service is no training",
    "volumes": "volumes cannot be mounted; checkpoints go to ${checkpoint_dir}, results to ${output_dir}",
    "config": "settings of SkyPilot itself",
    "experimental": "settings of SkyPilot itself",
    "event_callback": "webhooks are set up at the service",
}
_SHAPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    # what stands in these fields of a task
    "resources": Mapping,
    "envs": Mapping,
    "secrets": (Mapping, list),
    "file_mounts": Mapping,
}
_MOST: Final = 100_000
"""Of nodes, and of GPUs of one: more is a typing error."""
_PLACES: Final = ("infra", "cloud", "region", "zone")
_LEFT_OUT: Final[Mapping[str, str]] = {
    "instance_type": "nodes are chosen by what they have; set gpu_models, min_cpus_per_gpu and the like",
    "disk_tier": "the disk is sized from inputs and checkpoints",
    "network_tier": "set resources.interconnect to rdma where the training needs it",
    "accelerator_args": "TPU settings",
    "autostop": "nodes are given back when the job ends",
    "job_recovery": "jobs are recovered after lost nodes by themselves (recovery.node_recoveries)",
    "ports": "no port is opened",
    "local_disk": "the disk is sized from inputs and checkpoints",
    "priority": "set priority to low, normal or high",
}


def take_task(found: Imported, task: Mapping[str, Any]) -> None:
    """A task.

    Raises:
        ShunterError: it runs nothing, or a part is not of the shape that SkyPilot gives it.
    """
    for field, shape in _SHAPES.items():
        if task.get(field) is not None and not isinstance(task[field], shape):
            raise ShunterError(f"{field}: no task has this here; names with values belong there")
    if not str(task.get("run") or "").strip():
        raise ShunterError("the task has no `run`: there is nothing to train")
    if name := task.get("name"):
        found.mapped("name", "name", _name(str(name)))
    for field in task:
        if field in _REFUSED:
            found.refused(field, _REFUSED[field])
        elif field not in FIELDS:
            found.refused(field, "it is not known here; nothing was made of it")
    _take_workdir(found, task.get("workdir"))
    nodes = _count("num_nodes", task.get("num_nodes"))
    resources = task.get("resources") or {}
    gpus = _take_resources(found, resources, nodes)
    _take_variables(found, task)
    _take_mounts(found, task.get("file_mounts") or {})
    if setup := str(task.get("setup") or "").strip():
        found.mapped("setup", "environment.setup", [setup])
    _take_run(found, str(task["run"]), {**_constants(task), **_counts(nodes, gpus)})


def _take_workdir(found: Imported, workdir: Any) -> None:
    if isinstance(workdir, Mapping):
        url, ref = workdir.get("url"), workdir.get("ref")
        source = {"kind": "git", "url": url, **({"ref": ref} if ref else {})}
        found.mapped("workdir", "source", source)
    elif workdir:
        found.mapped("workdir", "source", {"kind": "folder", "path": str(workdir)})
    else:
        found.assumed("workdir", "source", {"kind": "folder", "path": "."}, "the folder of the document")


def _take_resources(found: Imported, resources: Mapping[str, Any], nodes: int) -> int:
    """Sets what it says; the number of GPUs of a node."""
    for name in ("any_of", "ordered"):
        if name in resources:
            found.refused(f"resources.{name}", "pairs of place and GPU; give gpu_models and placement as lists instead")
    gpus = _take_accelerators(found, resources.get("accelerators"), nodes)
    for name, value in resources.items():
        if name in _PLACES:
            found.refused(f"resources.{name} {value}", "set placement.providers or placement.jurisdictions")
        elif name in _LEFT_OUT:
            found.dropped(f"resources.{name}", _LEFT_OUT[name])
        elif name in _RESOURCES:
            _RESOURCES[name](found, value, nodes, gpus)
        elif name not in ("accelerators", "any_of", "ordered"):
            found.refused(f"resources.{name}", "it is not known here; nothing was made of it")
    return gpus


def _take_accelerators(found: Imported, accelerators: Any, nodes: int) -> int:
    if accelerators is None:
        found.on_cpus = True
        each = " of each node" if nodes > 1 else ""
        why = f"no GPU is asked for: one rank on CPUs{each}"
        found.ranks("resources.accelerators", nodes, 1, kind=Kind.ASSUMED, why=why)
        return 0
    named = accelerators if isinstance(accelerators, Mapping | list) else [accelerators]
    pairs = [f"{model}:{count}" for model, count in named.items()] if isinstance(named, Mapping) else map(str, named)
    models, counts = list[str](), set[int]()
    for pair in pairs:
        model, _, count = pair.partition(":")
        models.append(model)
        counts.add(_count("resources.accelerators", count))
    if not counts:
        raise ShunterError("resources.accelerators: it names no GPU")
    if len(counts) > 1:
        found.refused("resources.accelerators", f"every model is taken {max(counts)} times; counts differ in the file")
    gpus = max(counts)
    found.ranks("resources.accelerators", nodes, gpus)
    found.put("resources.gpu_models", models)
    return gpus


def _take_spot(found: Imported, value: Any, _: int, __: int) -> None:
    if value:
        found.mapped("resources.use_spot", "resources.capacity", "spot")


def _take_disk(found: Imported, value: Any, _: int, __: int) -> None:
    if number := _least(value):
        found.mapped("resources.disk_size", "resources.disk_gib", number)


def _take_cpus(found: Imported, value: Any, _: int, gpus: int) -> None:
    if gpus and (number := _least(value)):
        found.mapped("resources.cpus", "resources.min_cpus_per_gpu", number / gpus)


def _take_memory(found: Imported, value: Any, _: int, gpus: int) -> None:
    if gpus and (number := _least(value)):
        found.mapped("resources.memory", "resources.min_memory_gib_per_gpu", number / gpus)


def _take_price(found: Imported, value: Any, nodes: int, _: int) -> None:
    if number := _least(value):
        found.mapped("resources.max_hourly_cost", "limits.max_usd_per_hour", number * nodes)


def _take_image(found: Imported, value: Any, _: int, __: int) -> None:
    image = str(value)
    if image.startswith("docker:"):
        found.mapped("resources.image_id", "environment.image", image.removeprefix("docker:"))
    else:
        found.refused("resources.image_id", "a machine image of one cloud; use a container image or environment.setup")


def _take_labels(found: Imported, value: Any, _: int, __: int) -> None:
    if isinstance(value, Mapping):
        found.mapped("resources.labels", "labels", {str(name): str(text) for name, text in value.items()})
    elif value is not None:
        found.refused("resources.labels", "they are no names with values; set labels")


_RESOURCES: Final = {
    "use_spot": _take_spot,
    "disk_size": _take_disk,
    "cpus": _take_cpus,
    "memory": _take_memory,
    "max_hourly_cost": _take_price,
    "image_id": _take_image,
    "labels": _take_labels,
}


def _take_variables(found: Imported, task: Mapping[str, Any]) -> None:
    for name, value in _constants(task).items():
        found.variable(name, value)
    if found.get("environment.variables"):
        found.mapped("envs", "environment.variables", found.get("environment.variables"))
    missing = [name for name, value in (task.get("envs") or {}).items() if value is None]
    if missing:
        found.refused(f"envs {', '.join(missing)}", "they have no value in the file; set environment.variables")
    if secrets := list(task.get("secrets") or {}):
        found.mapped("secrets", "environment.secrets", secrets)


def _take_mounts(found: Imported, mounts: Mapping[str, Any]) -> None:
    for number, (target, origin) in enumerate(mounts.items()):
        place = origin.get("source") if isinstance(origin, Mapping) else origin
        mode = str(origin.get("mode", "MOUNT")) if isinstance(origin, Mapping) else "COPY"
        if mode.startswith("MOUNT") or not place:
            found.refused(
                f"file_mounts {target}",
                "a writable bucket; checkpoints go to ${checkpoint_dir}, results to ${output_dir}",
            )
            continue
        name = re.sub(r"[^A-Za-z0-9_-]", "-", str(target).strip("/~.")) or f"mount-{number}"
        name = name if name[0].isalpha() else f"m-{name}"
        found.put("inputs", {**(found.get("inputs") or {}), name: {"from": str(place)}})
        found.mapped(f"file_mounts {target}", "inputs", found.get("inputs"))
        found.refused(f"{target} in the program", f"read-only data of the input is in ${{inputs.{name}}}")


def _take_run(found: Imported, run: str, known: Mapping[str, str]) -> None:
    script = take_apart(run, known)
    if script is not None:
        take_script(found, script)
        return
    found.files[RUN_FILE] = f"{_SHIM}{run.rstrip()}\n"
    workload = {"kind": "script", "command": ["bash", RUN_FILE], "launcher": "plain"}
    found.mapped("run", "workload", workload)
    found.assumed("run", "source", {"kind": "folder", "path": "."}, "the folder of the document")
    found.dropped("run", f"a shell program: written to {RUN_FILE}, which every node runs with SkyPilot's variables")


def _constants(task: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in (task.get("envs") or {}).items() if value is not None}


def _counts(nodes: int, gpus: int) -> dict[str, str]:
    return {"SKYPILOT_NUM_NODES": str(nodes), "SKYPILOT_NUM_GPUS_PER_NODE": str(gpus)}


def _count(part: str, value: Any) -> int:
    """How many; 1 where nothing is said, and of a part of a GPU."""
    try:
        number = float(value or 1)
    except (TypeError, ValueError):
        number = -1.0
    if not 0 < number <= _MOST:
        raise ShunterError(f"{part}: {value!r} is no number of nodes or GPUs")
    return max(1, int(number))


def _least(value: Any) -> float | None:
    found = re.match(r"\d+(\.\d+)?", str(value))
    return float(found[0]) if found else None


def _name(text: str) -> str:
    cut = re.sub(r"[^A-Za-z0-9 ._-]", "-", text)[:63].strip(" ._-")
    return cut or "job"
