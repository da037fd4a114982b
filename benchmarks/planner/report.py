"""How good the planner is: its predictions against published runs, left out one group after the other.

    python benchmarks/planner/report.py [FILE.csv] [--rows] [--docs]

`FILE.csv` is a table of published runs with the columns of `reference_points.csv`, the default. `--rows` shows every
run, `--docs` writes the tables into `docs/notes/planner.md` between its marks. Runs of tensor, context and pipeline
parallelism, which Shunter does not have, are counted and left out; rows that cannot be read are told of and left out.
Runs that were published as out of memory, and some that ran beside them, stand in `out_of_memory.csv`; they were added
when the constants had their values, and set none of them.

The constants of the time model are few (`shunter_planner.timing.priors`), but those that matter most were found by a
grid over these same runs and then rounded: the errors of all runs together are those of a fit. The fairer figure is the
last table's: each group of runs (a model on a kind of GPU) is left out, the constants are set anew by a coarse search
over the others, and the group is predicted by those. The form of the model was chosen with all runs in sight all the
same.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from published import Point, Unread, read_rows
from shunter_planner.memory.estimate import GIB
from shunter_planner.search.sizing import ROOM, SURELY_TOO_LARGE
from shunter_planner.timing import estimate
from shunter_planner.timing.priors import family_of

CONSTANTS: Final[Any] = estimate
"""Where the formulas look their constants up: set anew for a while."""
HERE: Final = Path(__file__).parent
LIMITS: Final = HERE / "out_of_memory.csv"
PAGE: Final = HERE.parents[1] / "docs" / "notes" / "planner.md"
BEGIN, END = "<!-- report: begin -->", "<!-- report: end -->"
_GRID: Final = {  # beside the values that are used, not on them
    "GEMM_SHARE": {"hopper": (0.53, 0.59, 0.65, 0.71), "ampere": (0.71, 0.77, 0.83, 0.89)},
    "ATTENTION_SHARE": {"hopper": (0.14, 0.17, 0.21, 0.26), "ampere": (0.24, 0.29, 0.35, 0.42)},
}
_PASSES: Final = (1.2, 1.6, 2.0, 2.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", nargs="?", type=Path, default=HERE / "reference_points.csv")
    parser.add_argument("--rows", action="store_true", help="show every run")
    parser.add_argument("--docs", action="store_true", help="write the tables into the notes")
    asked = parser.parse_args()
    points, unread = read_rows(asked.file)
    limits, unread_limits = read_rows(LIMITS)
    lines = [*_overview(points, [*unread, *unread_limits]), "", *_verdicts(points, limits), "", *_memory(points), ""]
    lines += [*_speed(points), "", *_left_out(points, limits)]
    if asked.rows:
        lines += ["", *_rows(points)]
    print("\n".join(lines))
    if asked.docs:
        text = PAGE.read_text(encoding="utf-8")
        before, _, rest = text.partition(BEGIN)
        after = rest.partition(END)[2]
        PAGE.write_text(before + BEGIN + "\n\n" + "\n".join(lines) + "\n\n" + END + after, encoding="utf-8")


def speed_error(point: Point) -> float:
    """The share by which the prediction is too high."""
    assert point.tokens_per_s_per_gpu is not None
    return point.time().tokens_per_s / point.spread.world / point.tokens_per_s_per_gpu - 1


def memory_error(point: Point) -> float:
    """The same for what torch's allocator held at the peak."""
    assert point.peak_gib is not None
    return point.memory().reserved / GIB / point.peak_gib - 1


def verdict(point: Point) -> str:
    """What a plan with everything fixed says: `fits`, `tight` (it is run, with a warning) or `refused`."""
    share = point.memory().total / (point.gpu.memory_gib * GIB)
    return "fits" if share <= ROOM else "tight" if share <= SURELY_TOO_LARGE else "refused"


def _overview(points: Sequence[Point], unread: Sequence[Unread]) -> Iterator[str]:
    covered = [point for point in points if point.covered]
    yield f"{len(points)} published runs; {len(points) - len(covered)} with parallelism that Shunter does not have."
    for row in unread:
        yield f"Line {row.line} ({row.name or 'no model'}) cannot be read and is left out: {row.why}."


def _verdicts(points: Sequence[Point], limits: Sequence[Point]) -> Iterator[str]:
    covered = [point for point in (*points, *limits) if point.covered]
    yield f"| a plan says | fits (to {ROOM:.0%}) | tight (to {SURELY_TOO_LARGE:.0%}) | refused |"
    yield "|---|--:|--:|--:|"
    for name, ran_out in (("runs that ran", False), ("runs that ran out of memory", True)):
        found = Counter(verdict(point) for point in covered if point.ran_out == ran_out)
        yield f"| {found.total()} {name} | {found['fits']} | {found['tight']} | {found['refused']} |"


def _memory(points: Sequence[Point]) -> Iterator[str]:
    measured = [point for point in points if point.covered and point.peak_gib]
    yield "| peak memory a GPU | runs | median error | 90th percentile | largest |"
    yield "|---|--:|--:|--:|--:|"
    yield _line("all that publish it", [memory_error(point) for point in measured])


def _speed(points: Sequence[Point]) -> Iterator[str]:
    measured = [point for point in points if point.covered and point.tokens_per_s_per_gpu]
    yield "| tokens/s a GPU | runs | median error | 90th percentile | largest |"
    yield "|---|--:|--:|--:|--:|"
    yield _line("all", [speed_error(point) for point in measured])
    for name, group in _grouped(measured, lambda point: f"{point.gpu.name}, {point.recipe.dtype}"):
        yield _line(name, [speed_error(point) for point in group])
    for name, group in _grouped(measured, _scale):
        yield _line(name, [speed_error(point) for point in group])


def _left_out(points: Sequence[Point], unseen: Sequence[Point]) -> Iterator[str]:
    measured = [point for point in points if point.covered and point.tokens_per_s_per_gpu]
    errors = []
    for _, group in _grouped(measured, lambda point: f"{point.name}, {point.gpu.name}"):
        others = [point for point in measured if point not in group and point.recipe.dtype != "fp8"]
        with _set_anew(others):
            errors += [speed_error(point) for point in group]
    yield "| constants set without the run's own group | runs | median error | 90th percentile | largest |"
    yield "|---|--:|--:|--:|--:|"
    yield _line("leave one group out", errors)
    timed = [point for point in unseen if point.covered and point.tokens_per_s_per_gpu]
    yield _line("runs added later, which set nothing", [speed_error(point) for point in timed])


@contextmanager
def _set_anew(points: Sequence[Point]) -> Iterator[None]:
    """Constants as a coarse search over these runs would set them."""
    before = {name: dict(getattr(CONSTANTS, name)) for name in _GRID}
    passes = CONSTANTS.PASSES
    try:
        for family in ("hopper", "ampere"):
            _search(family, [point for point in points if family_of(point.gpu.name) == family][::3])
        yield
    finally:
        for name, values in before.items():
            getattr(CONSTANTS, name).update(values)
        CONSTANTS.PASSES = passes


def _search(family: str, points: Sequence[Point]) -> None:
    def place(gemm: float, attention: float, passes: float) -> float:
        CONSTANTS.GEMM_SHARE[family], CONSTANTS.ATTENTION_SHARE[family] = gemm, attention
        CONSTANTS.PASSES = passes
        return statistics.mean(min(abs(speed_error(point)), 0.3) for point in points)

    grid = itertools.product(_GRID["GEMM_SHARE"][family], _GRID["ATTENTION_SHARE"][family], _PASSES)
    place(*min(grid, key=lambda at: place(*at)))


def _rows(points: Sequence[Point]) -> Iterator[str]:
    yield "| model | GPUs | sequence | micro-batch | recomputed | tokens/s | predicted | GiB | predicted |"
    yield "|---|---|--:|--:|---|--:|--:|--:|--:|"
    for point in points:
        if not point.covered:
            continue
        speed = point.time().tokens_per_s / point.spread.world
        peak = f"{point.peak_gib:.1f}" if point.peak_gib else ""
        yield (
            f"| {point.name} | {point.spread.world} x {point.gpu.name} | {point.positions} | {point.cut.micro_size} "
            f"| {point.cut.checkpointing} | {point.tokens_per_s_per_gpu or 0:.0f} | {speed:.0f} | {peak} "
            f"| {point.memory().reserved / GIB:.1f} |"
        )


def _scale(point: Point) -> str:
    return "one node" if point.spread.nodes == 1 else "up to 8 nodes" if point.spread.nodes <= 8 else "more nodes"


def _grouped(points: Iterable[Point], key: Callable[[Point], str]) -> list[tuple[str, list[Point]]]:
    groups: dict[str, list[Point]] = {}
    for point in points:
        groups.setdefault(key(point), []).append(point)
    return sorted(groups.items())


def _line(name: str, errors: Sequence[float]) -> str:
    sizes: Any = sorted(abs(error) for error in errors)
    if not sizes:
        return f"| {name} | 0 | | | |"
    tenth = sizes[min(len(sizes) - 1, round(0.9 * len(sizes)))]
    return f"| {name} | {len(sizes)} | {statistics.median(sizes):.1%} | {tenth:.1%} | {sizes[-1]:.1%} |"


if __name__ == "__main__":
    main()
