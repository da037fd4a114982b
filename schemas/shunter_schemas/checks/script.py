"""A `script` against itself, and the names in `${…}`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from shunter_schemas.checks.gang import ranks_place, world_size_of
from shunter_schemas.faults import Fault, pointer
from shunter_schemas.job import JobSpec
from shunter_schemas.nearest import did_you_mean
from shunter_schemas.script import SUBSTITUTIONS, ScriptWorkload
from shunter_schemas.strategies import OwnStrategy

_SUBSTITUTION = re.compile(r"\$\{([^{}]*)(\}?)")
_LAUNCHERS: Final = frozenset({"torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "srun"})
_LAUNCHER_MODULES: Final = frozenset(
    {"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch", "deepspeed.launcher.runner"}
)
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")


def _program(job: JobSpec) -> Iterator[Fault]:
    script = job.workload
    if not isinstance(script, ScriptWorkload):
        return
    if (script.entrypoint is None) == (script.command is None):
        found = "neither is given" if script.command is None else "both are given"
        yield Fault("/workload", f"needs exactly one of `entrypoint` and `command`; {found}")
    if script.command is not None and script.module:
        yield Fault("/workload/module", "this is about `entrypoint`, and `command` is given; leave one of them out")
    if script.command is not None and script.launcher in {"torchrun", "accelerate"}:
        detail = f"`{script.launcher}` starts Python, and `command` is given; use `plain`, `torch` or `entrypoint`"
        yield Fault("/workload/launcher", detail)
    if script.entrypoint is not None:
        yield from _entrypoint(job, script.entrypoint, is_module=script.module)
    elif script.launcher == "torch" and (starter := _starter(script.command or ())):
        yield from _started_twice(job, starter)


def _starter(command: Sequence[str]) -> str | None:
    """The launcher that a command is; None: some other program."""
    if not command:
        return None
    program = command[0].rpartition("/")[2]
    if program in _LAUNCHERS:
        return program
    module = command[2] if len(command) > 2 and program.startswith("python") and command[1] == "-m" else ""
    return module if module in _LAUNCHER_MODULES else None


def _started_twice(job: JobSpec, starter: str) -> Iterator[Fault]:
    ranks = world_size_of(job)
    if ranks != 1:
        many = f"each of {ranks} ranks ({ranks_place(job)})" if ranks else f"each rank ({ranks_place(job)})"
        detail = f"`{starter}` starts ranks itself, and `workload.launcher` torch starts it for {many}"
        yield Fault("/workload/command/0", f"{detail}; use launcher plain, or `entrypoint` without it")


def _entrypoint(job: JobSpec, entrypoint: str, *, is_module: bool) -> Iterator[Fault]:
    place = "/workload/entrypoint"
    if is_module:
        if not _MODULE.fullmatch(entrypoint) or entrypoint.endswith(".py"):
            yield Fault(place, "must be a module name such as `package.train`, since `module` is true")
    elif job.source is None:
        yield Fault(place, "a script needs `source`, where this file is; add it")


def _resumption(job: JobSpec) -> Iterator[Fault]:
    script = job.workload
    if not isinstance(script, ScriptWorkload):
        return
    if script.resume_arguments and script.checkpoint is None:
        detail = "needs `workload.checkpoint`, which says how checkpoints are recognised; add it"
        yield Fault("/workload/resume_arguments", detail)
    changes_size = job.recovery.min_gpus is not None
    if changes_size and (script.checkpoint is None or script.checkpoint.world_size == "fixed"):
        detail = "a script that goes on with fewer ranks needs `workload.checkpoint.world_size`: `any`"
        yield Fault("/recovery/min_gpus", detail)


def _substitutions(job: JobSpec) -> Iterator[Fault]:
    texts: list[tuple[tuple[str | int, ...], str]] = [
        (("environment", "variables", name), value) for name, value in job.environment.variables.items()
    ]
    if isinstance(job.workload, ScriptWorkload):
        for field in ("command", "arguments", "resume_arguments"):
            for index, argument in enumerate(getattr(job.workload, field) or ()):
                texts.append((("workload", field, index), argument))
    for path, text in texts:
        for match in _SUBSTITUTION.finditer(text):
            detail = _substitution(
                job, match.group(1), closed=bool(match.group(2)), resuming="resume_arguments" in path
            )
            if detail:
                yield Fault(pointer(path), detail)


def _substitution(job: JobSpec, name: str, *, closed: bool, resuming: bool) -> str | None:
    if not closed:
        return "`${` without `}`"
    if name.startswith("inputs."):
        wanted = name.removeprefix("inputs.")
        if wanted not in job.inputs:
            return f"there is no input of this name in `inputs`{did_you_mean(wanted, job.inputs)}"
    elif name not in SUBSTITUTIONS:
        known = ", ".join(f"${{{each}}}" for each in ("inputs.NAME", *SUBSTITUTIONS))
        shells = f"; a shell's own variable stands without braces: `${name}`" if name.isidentifier() else ""
        return f"unknown substitution; known: {known}{did_you_mean(name, SUBSTITUTIONS) or shells}"
    elif name == "deepspeed_config" and not _has_deepspeed(job):
        return "`${deepspeed_config}` needs `strategy`: deepspeed, or own with `deepspeed_file`"
    elif name == "latest_checkpoint" and not resuming:
        return "`${latest_checkpoint}` stands in `workload.resume_arguments` only: at the first start there is none"
    return None


def _hands_over(job: JobSpec, script: ScriptWorkload) -> bool:
    """Whether something brings the DeepSpeed document of the strategy to the program."""
    texts = (*(script.command or ()), *script.arguments, *job.environment.variables.values())
    return script.launcher == "accelerate" or any(
        f"${{{name}}}" in text for name in ("deepspeed_config", "accelerate_config") for text in texts
    )


def _has_deepspeed(job: JobSpec) -> bool:
    return job.strategy.kind == "deepspeed" or getattr(job.strategy, "deepspeed_file", None) is not None


def _strategy(job: JobSpec) -> Iterator[Fault]:
    """A script spreads itself; a strategy reaches it through its launcher, as far as that can carry one."""
    script, strategy = job.workload, job.strategy
    if not isinstance(script, ScriptWorkload) or strategy.kind in {"own", "auto"}:
        return
    place = "/strategy/kind"
    if strategy.kind == "ddp":
        if script.launcher == "plain":
            detail = "`ddp` needs one process a rank, and `workload.launcher` plain starts one a node; use torch"
            yield Fault(place, detail)
        for name in sorted(strategy.model_fields_set - {"kind"}):
            yield Fault(f"/strategy/{name}", "a script makes its own DistributedDataParallel; set this there")
        return
    if strategy.kind != "deepspeed" and script.launcher != "accelerate":
        detail = f"`{strategy.kind}` reaches a script through accelerate only, and `workload.launcher` is "
        yield Fault(
            place,
            f"{detail}{script.launcher}; use launcher accelerate, or strategy own for a program that shards itself",
        )
    if strategy.kind == "deepspeed" and not _hands_over(job, script):
        detail = "nothing hands the configuration to the program; name `${deepspeed_config}` in `workload.arguments`"
        yield Fault(place, f"{detail}, use launcher accelerate, or strategy own for a program that brings its own")
    if script.launcher == "accelerate" and job.resources.cpu_processes is not None:
        detail = f"accelerate does not do `{strategy.kind}` on CPUs, and `resources.cpu_processes` asks for them"
        yield Fault(place, f"{detail}; use GPUs, ddp, or own")


def _deepspeed_on_cpus(job: JobSpec) -> Iterator[Fault]:
    """Accelerate 1.15 tells no rank of the others there: each takes all of the data."""
    script, strategy = job.workload, job.strategy
    if not isinstance(script, ScriptWorkload) or not isinstance(strategy, OwnStrategy):
        return
    on_cpus = job.resources.cpu_processes is not None and world_size_of(job) != 1
    if strategy.deepspeed_file is not None and script.launcher == "accelerate" and on_cpus:
        detail = f"accelerate does not do DeepSpeed (/strategy/deepspeed_file) on CPUs ({ranks_place(job)})"
        yield Fault("/workload/launcher", f"{detail}; use GPUs, or launcher torch for a program that calls DeepSpeed")


CHECKS = (_program, _resumption, _substitutions, _strategy, _deepspeed_on_cpus)
