"""What `hints` say of a program that is never run here, against the memory of a GPU.

A stated `memory_gib` is believed. Of a number of parameters only the least is certain: that their weights lie somewhere
on the ranks. What training them whole would take is told as a note, since an adapter or offloading takes less.
"""

from __future__ import annotations

from typing import Final

from shunter_schemas.hints import Hints
from shunter_schemas.job import JobSpec
from shunter_schemas.strategies import DeepSpeedStrategy

from shunter_planner.memory.estimate import GIB
from shunter_planner.search.machines import Machine

_WEIGHT_BYTES: Final = 2
"""Of a parameter in 16 bits, the least in which a model is trained or adapted that is not quantized."""
_TRAINED_BYTES: Final = 16
"""Of a parameter with gradient and Adam's state, in mixed precision (ZeRO, arXiv:1910.02054, section 3.1)."""


def hints_of(document: JobSpec) -> Hints | None:
    """Of a script, or of a `python` model."""
    workload = document.workload
    found: Hints | None = getattr(workload, "hints", None) or getattr(getattr(workload, "model", None), "hints", None)
    return found


def too_large(document: JobSpec, machine: Machine) -> str | None:
    """Why the program surely does not fit, by its hints; None: it may."""
    hints, room_gib = hints_of(document), _room_gib(machine)
    if hints is None or not room_gib:
        return None
    if hints.memory_gib is not None:
        if hints.memory_gib <= room_gib:
            return None
        return f"hints.memory_gib is {hints.memory_gib:g} a rank, {_there(machine)}"
    if hints.parameters is None or not _is_script(document):
        return None
    least_gib = _WEIGHT_BYTES * hints.parameters / _split_over(document, machine) / GIB
    if least_gib <= room_gib:
        return None
    return (
        f"the weights of {hints.parameters:.3g} parameters (hints.parameters) alone take {least_gib:.1f} GiB a rank in "
        f"16 bits, {_there(machine)}; give hints.memory_gib if the program needs less"
    )


def tight(document: JobSpec, machine: Machine) -> str | None:
    """What a person should know of a script that fits only if it does not train everything on the GPU."""
    hints, room_gib = hints_of(document), _room_gib(machine)
    if hints is None or hints.parameters is None or hints.memory_gib is not None or not room_gib:
        return None
    need_gib = _TRAINED_BYTES * hints.parameters / machine.world / GIB
    if not _is_script(document) or need_gib <= room_gib:
        return None
    return (
        f"training all of {hints.parameters:.3g} parameters with Adam takes at least {need_gib:.1f} GiB a rank, split "
        f"over all {machine.world} ranks; {_there(machine)}: an adapter, offloading or more GPUs take less"
    )


def _is_script(document: JobSpec) -> bool:
    return document.workload.kind == "script"


def _split_over(document: JobSpec, machine: Machine) -> int:
    """Ranks that share the weights, at the most."""
    strategy = document.strategy
    whole = strategy.kind == "ddp" or (isinstance(strategy, DeepSpeedStrategy) and strategy.zero_stage < 3)
    return 1 if whole else machine.world


def _room_gib(machine: Machine) -> float:
    return machine.host_gib if machine.gpu is None else machine.gpu.memory_gib


def _there(machine: Machine) -> str:
    name = f" ({machine.gpu_model})" if machine.gpu_model else ""
    return f"{_room_gib(machine):.1f} GiB there{name}"
