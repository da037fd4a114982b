"""One training on one kind of machine: every way to cut it that fits, the best of them, or why none does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from shunter_schemas.job import JobSpec
from shunter_schemas.training import TrainingWorkload

from shunter_planner.corrections import NONE, Correction, Kind, corrected_memory, corrected_time, kind_of
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

Corrections = Mapping[Kind, Correction]
Corrector = Callable[[Spread], Correction]
NO_ONE: Final[Corrections] = {}


@dataclass(frozen=True, slots=True)
class Draft:
    """One way to cut the training on a machine, whether it fits or not."""

    spread: Spread
    strategy: Mapping[str, Any]
    cut: Cut
    memory: Memory
    available_gib: float
    """0: not known."""
    host_gib: float
    """Main memory for each rank; 0: not known."""

    @property
    def need_gib(self) -> float:
        """The peak of one rank."""
        return self.memory.total / GIB


@dataclass(frozen=True, slots=True)
class Option(Draft):
    """One way to run the training on a machine."""

    time: StepTime
    correction: Correction = NONE
    """By which memory and time were corrected."""


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


class Sizer:
    """Sizes one training on many machines. What machines have in common is computed once: memory depends on how the
    ranks lie, not on which GPUs they have or what joins them."""

    def __init__(
        self, document: JobSpec, known: Known, most_micro_size: int | None = None, corrections: Corrections = NO_ONE
    ) -> None:
        """`most_micro_size`: larger micro-batches are known to run out of memory. `corrections`: by past runs."""
        assert isinstance(document.workload, TrainingWorkload), "scripts distribute themselves"
        self._document, self._known = document, known
        self._most_micro_size, self._corrections = most_micro_size, corrections
        self._workload, self._recipe = document.workload, recipe_of(document.workload)
        self._asked: dict[_Ranks, list[_Way]] = {}
        self._automatic: dict[_Ranks, list[_Way]] = {}

    def size(self, machine: Machine) -> Sized | TooLarge:
        """The best option for this machine; the simplest strategy unless another is clearly faster."""
        trial = _Trial(self._known, self._recipe, machine, self._corrector(machine))
        fitting: list[Option] = []
        closest: list[Draft] = []
        for way in self._ways(machine):
            if is_offloaded(way.spread) and fitting:
                continue  # slower by far: only where nothing else goes
            found = trial.drafts(way)
            good = [trial.option(draft) for draft in found if _fits(draft, ROOM)]
            fitting += [min(good, key=_step_s)] if good else []
            closest += found
        automatic = self._document.strategy.kind == "auto"
        if fitting:
            return _simplest(fitting, automatic=automatic)
        return self._last_resort(closest, trial, automatic=automatic)

    def _corrector(self, machine: Machine) -> Corrector:
        """The correction of each strategy on this machine."""
        if not self._corrections:
            return lambda _: NONE
        gpu, model = machine.gpu_model, self._workload.model.kind
        return lambda spread: self._corrections.get(kind_of(gpu, machine.nominal_gib, spread.name, model), NONE)

    def _last_resort(self, closest: Sequence[Draft], trial: _Trial, *, automatic: bool) -> Sized | TooLarge:
        """What the user fixed goes on unless it surely cannot; what we would choose does not."""
        smallest = min(closest, key=lambda draft: draft.need_gib)
        if not automatic and (_fits(smallest, SURELY_TOO_LARGE) or not self._known.shape.is_exact):
            words = f"tight: predicted to need {smallest.need_gib:.1f} of {smallest.available_gib:.1f} GiB"
            return Sized(trial.option(smallest), f"asked for; {words}", (), is_tight=True)
        way_out = None if automatic else self._first_that_fits(trial)
        return TooLarge(_too_large(closest[0], smallest, way_out, trial.machine))

    def _first_that_fits(self, trial: _Trial) -> Option | None:
        """What `auto` would take in the place of a strategy that does not fit."""
        ranks = _ranks(trial.machine)
        if ranks not in self._automatic:
            self._automatic[ranks] = self._laid_out(automatic_spreads(ranks.world, ranks.per_node), ranks)
        for way in self._automatic[ranks]:
            good = [trial.option(draft) for draft in trial.drafts(way) if _fits(draft, ROOM)]
            if good:
                return min(good, key=_step_s)
        return None

    def _ways(self, machine: Machine) -> list[_Way]:
        ranks = _ranks(machine)
        if ranks not in self._asked:
            spreads = spreads_of(self._document, ranks.world, ranks.per_node)
            self._asked[ranks] = self._laid_out(spreads, ranks)
        return self._asked[ranks]

    def _laid_out(self, spreads: Sequence[tuple[Spread, Mapping[str, Any]]], ranks: _Ranks) -> list[_Way]:
        workload = self._workload
        asked, per_rank = workload.activation_checkpointing, workload.batch.global_size // ranks.world
        kinds: Sequence[Checkpointing] = ("none", "selective", "full") if asked == "auto" else (asked,)
        sizes = self._sizes(per_rank) if workload.batch.micro_size == "auto" else [workload.batch.micro_size]
        ladders = [[Cut(micro, per_rank // micro, kind) for micro in sizes] for kind in kinds]

        def memory(spread: Spread, cut: Cut) -> Memory:
            return peak_memory(self._known.shape, self._known.positions, self._recipe, spread, cut, on_gpu=ranks.on_gpu)

        return [
            _Way(spread, strategy, [_Ladder(spread, cuts, memory) for cuts in ladders]) for spread, strategy in spreads
        ]

    def _sizes(self, per_rank: int) -> list[int]:
        most = self._most_micro_size
        return [size for size in divisors(per_rank) if most is None or size <= most] or [1]


def divisors(number: int) -> list[int]:
    """All of them, the largest first."""
    small = [part for part in range(1, int(number**0.5) + 1) if number % part == 0]
    return sorted({*small, *(number // part for part in small)}, reverse=True)


class _Ranks(NamedTuple):
    """How ranks lie: what strategies, cuts and memory depend on besides the document."""

    world: int
    per_node: int
    on_gpu: bool


def _ranks(machine: Machine) -> _Ranks:
    return _Ranks(machine.world, machine.per_node, machine.gpu_model is not None)


class _Ladder:
    """The cuts of one kind of checkpointing, from the largest micro-batch to the smallest, with what each needs."""

    def __init__(self, spread: Spread, cuts: Sequence[Cut], memory: Callable[[Spread, Cut], Memory]) -> None:
        self._spread, self._cuts, self._memory = spread, cuts, memory
        self._known: list[tuple[Cut, Memory]] = []

    def __iter__(self) -> Iterator[tuple[Cut, Memory]]:
        yield from self._known
        for cut in self._cuts[len(self._known) :]:
            self._known.append((cut, self._memory(self._spread, cut)))
            yield self._known[-1]


class _Way(NamedTuple):
    """A strategy on ranks that lie in one way."""

    spread: Spread
    strategy: Mapping[str, Any]
    ladders: Sequence[_Ladder]
    """Of each kind of checkpointing."""


class _Trial:
    """One machine."""

    def __init__(self, known: Known, recipe: Recipe, machine: Machine, correction_of: Corrector) -> None:
        self._known, self._recipe, self.machine, self._correction_of = known, recipe, machine, correction_of
        self._gpu = machine.gpu
        on_cpus_gib = max(0.0, machine.host_gib - CPU_BASE_BYTES / GIB)
        self._room_gib = on_cpus_gib if self._gpu is None else self._gpu.memory_gib

    def drafts(self, way: _Way) -> list[Draft]:
        """Of each kind of checkpointing the largest micro-batch that fits, or the smallest if none does."""
        return [self._largest(way, ladder) for ladder in way.ladders]

    def option(self, draft: Draft) -> Option:
        """The same with the time of its step."""
        correction = self._correction_of(draft.spread)
        return Option(
            draft.spread,
            draft.strategy,
            draft.cut,
            draft.memory,
            draft.available_gib,
            draft.host_gib,
            time=corrected_time(self._time(draft.spread, draft.cut), correction),
            correction=correction,
        )

    def _largest(self, way: _Way, ladder: _Ladder) -> Draft:
        correction, found = self._correction_of(way.spread), None
        for cut, memory in ladder:
            found = cut, corrected_memory(memory, correction)
            if _within(found[1], self._room_gib, self.machine.host_gib, ROOM):
                break
        assert found is not None, "a batch has a divisor"
        return Draft(way.spread, way.strategy, *found, self._room_gib, self.machine.host_gib)

    def _time(self, spread: Spread, cut: Cut) -> StepTime:
        shape, positions = self._known.shape, self._known.positions
        if self._gpu is None:
            return cpu_step_time(shape, positions, cut, spread.world, self.machine.threads)
        machine = self.machine
        fabric = fabric_of(machine.interconnect, machine.network_gbps, machine.per_node)
        return step_time(shape, positions, self._recipe, spread, cut, self._gpu, fabric)


def _fits(draft: Draft, room: float) -> bool:
    return _within(draft.memory, draft.available_gib, draft.host_gib, room)


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


def _checkpointed(option: Draft) -> str:
    kind = option.cut.checkpointing
    return "" if kind == "none" else f" with {kind} activation checkpointing"


def _too_large(first: Draft, smallest: Draft, way_out: Draft | None, machine: Machine) -> str:
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


def _differently(first: Draft, smallest: Draft) -> str:
    checkpointed = _checkpointed(smallest).strip()
    if smallest.spread == first.spread:
        return checkpointed or f"with a micro-batch of {smallest.cut.micro_size}"
    return f"with {smallest.spread.name} {checkpointed}".strip()


def _offloads_too_much(option: Draft) -> bool:
    return bool(option.host_gib) and option.memory.host > ROOM * option.host_gib * GIB
