"""One training on one kind of machine: every way to cut it that fits, the best of them, or why none does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shunter_schemas.job import JobSpec
from shunter_schemas.training import TrainingWorkload

from shunter_planner.hardware.fabrics import fabric_of
from shunter_planner.memory.estimate import GIB, Memory, peak_memory
from shunter_planner.models.document import Known
from shunter_planner.recipe import Checkpointing, Cut, Recipe, Spread, recipe_of
from shunter_planner.search.machines import Machine
from shunter_planner.search.spreads import automatic_spreads, is_offloaded, spreads_of
from shunter_planner.timing.estimate import StepTime, cpu_step_time, step_time

ROOM: Final = 0.97
"""Of a GPU's memory, what a plan of ours fills at the most: predictions err by a few per cent."""
SURELY_TOO_LARGE: Final = 1.10
"""A plan that the user fixed is refused above this share only: below, the prediction might be wrong."""
WORTH_IT: Final = 1.10
"""How much longer the step of a simpler strategy may be than that of the fastest."""
CPU_BASE_BYTES: Final = 0.6 * GIB
"""A rank on CPUs before it holds anything: Python and torch."""


@dataclass(frozen=True, slots=True)
class Option:
    """One way to run the training on a machine."""

    spread: Spread
    strategy: Mapping[str, Any]
    cut: Cut
    memory: Memory
    available_gib: float
    """0: not known."""
    host_gib: float
    """Main memory for each rank; 0: not known."""
    time: StepTime

    @property
    def need_gib(self) -> float:
        """The peak of one rank."""
        return self.memory.total / GIB


@dataclass(frozen=True, slots=True)
class Sized:
    """The option that was chosen, why, and what else would go."""

    best: Option
    why: str
    others: Sequence[Option] = ()
    is_tight: bool = False


@dataclass(frozen=True, slots=True)
class TooLarge:
    """Nothing fits; `detail` has the numbers."""

    detail: str


def size(document: JobSpec, known: Known, machine: Machine) -> Sized | TooLarge:
    """The best option for this machine; the simplest strategy unless another is clearly faster."""
    workload = document.workload
    assert isinstance(workload, TrainingWorkload), "scripts distribute themselves"
    trial = _Trial(workload, known, recipe_of(workload), machine)
    spreads = spreads_of(document, machine.world, machine.per_node)
    fitting: list[Option] = []
    closest: list[Option] = []
    for spread, strategy in spreads:
        if is_offloaded(spread) and fitting:
            continue  # slower by far: only where nothing else goes
        found = trial.options(spread, strategy)
        good = [option for option in found if _fits(option, ROOM)]
        fitting += [min(good, key=_step_s)] if good else []
        closest += found
    if fitting:
        return _simplest(fitting, automatic=document.strategy.kind == "auto")
    return _last_resort(closest, trial, automatic=document.strategy.kind == "auto")


def divisors(number: int) -> list[int]:
    """All of them, the largest first."""
    small = [part for part in range(1, int(number**0.5) + 1) if number % part == 0]
    return sorted({*small, *(number // part for part in small)}, reverse=True)


@dataclass(frozen=True, slots=True)
class _Trial:
    workload: TrainingWorkload
    known: Known
    recipe: Recipe
    machine: Machine

    def options(self, spread: Spread, strategy: Mapping[str, Any]) -> list[Option]:
        """Of each kind of checkpointing the largest micro-batch that fits, or the smallest if none does."""
        return [self._largest(spread, strategy, checkpointing) for checkpointing in self._checkpointings()]

    def _largest(self, spread: Spread, strategy: Mapping[str, Any], checkpointing: Checkpointing) -> Option:
        for cut in (cuts := self._cuts(checkpointing)):
            memory = self._memory(spread, cut)
            if cut is cuts[-1] or _within(memory, self._room_gib(), self.machine.host_gib, ROOM):
                time = self._time(spread, cut)
                return Option(spread, strategy, cut, memory, self._room_gib(), self.machine.host_gib, time)
        raise AssertionError("a batch has a divisor")

    def _checkpointings(self) -> Sequence[Checkpointing]:
        asked = self.workload.activation_checkpointing
        return ("none", "selective", "full") if asked == "auto" else (asked,)

    def _cuts(self, checkpointing: Checkpointing) -> list[Cut]:
        """From the largest micro-batch to the smallest."""
        per_rank = self.workload.batch.global_size // self.machine.world
        asked = self.workload.batch.micro_size
        sizes = divisors(per_rank) if asked == "auto" else [asked]
        return [Cut(micro, per_rank // micro, checkpointing) for micro in sizes]

    def _memory(self, spread: Spread, cut: Cut) -> Memory:
        shape, positions = self.known.shape, self.known.positions
        return peak_memory(shape, positions, self.recipe, spread, cut, on_gpu=self.machine.gpu is not None)

    def _room_gib(self) -> float:
        gpu, host_gib = self.machine.gpu, self.machine.host_gib
        return gpu.memory_gib if gpu is not None else max(0.0, host_gib - CPU_BASE_BYTES / GIB)

    def _time(self, spread: Spread, cut: Cut) -> StepTime:
        shape, positions, gpu = self.known.shape, self.known.positions, self.machine.gpu
        if gpu is None:
            return cpu_step_time(shape, positions, cut, spread.world, self.machine.threads)
        return step_time(shape, positions, self.recipe, spread, cut, gpu, fabric_of(self.machine.interconnect))


def _fits(option: Option, room: float) -> bool:
    return _within(option.memory, option.available_gib, option.host_gib, room)


def _within(memory: Memory, available_gib: float, host_gib: float, room: float) -> bool:
    """Whether it fills no more than this share, of the host too; what is not known is no hindrance."""
    fits = not available_gib or memory.total <= room * available_gib * GIB
    return fits and (not host_gib or memory.host <= room * host_gib * GIB)


def _step_s(option: Option) -> float:
    return option.time.total


def _simplest(fitting: Sequence[Option], *, automatic: bool) -> Sized:
    fastest = min(fitting, key=_step_s)
    best = next(option for option in fitting if _step_s(option) <= WORTH_IT * _step_s(fastest))
    others = [option for option in fitting if option is not best]
    if not automatic:
        return Sized(best, "asked for", others)
    return Sized(best, _why(best, fitting[0], others), others)


def _why(best: Option, simplest: Option, others: Sequence[Option]) -> str:
    needs = f"needs {best.need_gib:.1f} of {best.available_gib:.1f} GiB"
    if best is simplest and best.spread.kind == "ddp":
        return f"the simplest strategy, and it fits: {needs}"
    if best is simplest:
        return f"nothing simpler fits: {needs}{_checkpointed(best)}"
    gain = _step_s(simplest) / _step_s(best) - 1
    return f"{100 * gain:.0f} % faster than {simplest.spread.name}{_checkpointed(simplest)}, which fits too: {needs}"


def _checkpointed(option: Option) -> str:
    kind = option.cut.checkpointing
    return "" if kind == "none" else f" with {kind} activation checkpointing"


def _last_resort(closest: Sequence[Option], trial: _Trial, *, automatic: bool) -> Sized | TooLarge:
    """What the user fixed goes on unless it surely cannot; what we would choose does not."""
    smallest = min(closest, key=lambda option: option.need_gib)
    if not automatic and (_fits(smallest, SURELY_TOO_LARGE) or not trial.known.shape.is_exact):
        words = f"tight: predicted to need {smallest.need_gib:.1f} of {smallest.available_gib:.1f} GiB"
        return Sized(smallest, f"asked for; {words}", (), is_tight=True)
    way_out = None if automatic else _first_that_fits(trial)
    return TooLarge(_too_large(closest[0], smallest, way_out, trial.machine))


def _first_that_fits(trial: _Trial) -> Option | None:
    """What `auto` would take in the place of a strategy that does not fit."""
    machine = trial.machine
    for spread, strategy in automatic_spreads(machine.world, machine.per_node):
        good = [option for option in trial.options(spread, strategy) if _fits(option, ROOM)]
        if good:
            return min(good, key=_step_s)
    return None


def _too_large(first: Option, smallest: Option, way_out: Option | None, machine: Machine) -> str:
    """`needs 94.2 GiB of 80: 61.4 activations; with full activation checkpointing 71.8; fsdp would need 30.1`."""
    size, part = max((value, name) for name, value in first.memory.parts_gib().items())
    of = f"{first.available_gib:.1f}" + (f" ({machine.gpu_model})" if machine.gpu_model else "")
    told = [f"{first.spread.name} needs {first.need_gib:.1f} GiB of {of}: {size:.1f} {part}"]
    if first.cut.micro_size > 1:
        told[0] += f" at a micro-batch of {first.cut.micro_size}"
    if _offloads_too_much(smallest):
        host = smallest.memory.host / GIB
        told.append(f"{smallest.spread.name} needs {host:.1f} GiB of main memory a rank, {smallest.host_gib:.1f} there")
    elif smallest is not first:
        told.append(f"{_differently(first, smallest)} {smallest.need_gib:.1f}")
    if way_out is not None:
        told.append(f"strategy {way_out.spread.name}{_checkpointed(way_out)} would need {way_out.need_gib:.1f}")
    return "; ".join(told)


def _differently(first: Option, smallest: Option) -> str:
    checkpointed = _checkpointed(smallest).strip()
    if smallest.spread == first.spread:
        return checkpointed or f"with a micro-batch of {smallest.cut.micro_size}"
    return f"with {smallest.spread.name} {checkpointed}".strip()


def _offloads_too_much(option: Option) -> bool:
    return bool(option.host_gib) and option.memory.host > ROOM * option.host_gib * GIB
