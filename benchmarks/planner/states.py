"""Predicted model states against what real ranks on CPUs hold, for every strategy.

    python benchmarks/planner/states.py [--docs]

Each strategy trains a small transformer for two steps on real processes; when the second step is taken, parameters,
gradients, optimizer state and standing buckets are there and activations are gone. `--docs` writes the table into
`docs/notes/planner.md` between its marks. Takes some minutes on 2 cores.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "tests"))

from support.held_states import CASES, Held, held_states  # noqa: E402  # found only now

PAGE: Final = HERE.parents[1] / "docs" / "notes" / "planner.md"
BEGIN, END = "<!-- states: begin -->", "<!-- states: end -->"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--docs", action="store_true", help="write the table into the notes")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lines = []
        for line in _table(held_states(Path(folder) / str(place), case) for place, case in enumerate(CASES)):
            print(line, flush=True)
            lines.append(line)
    if asked.docs:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        PAGE.write_text(before + BEGIN + "\n\n" + "\n".join(lines) + "\n\n" + END + after, encoding="utf-8")


def _table(found: Iterable[Held]) -> Iterator[str]:
    yield "| strategy | ranks | precision | held, MiB | predicted, MiB | error |"
    yield "|---|--:|---|--:|--:|--:|"
    for one in found:
        case, error = one.case, one.predicted / one.held - 1
        held, predicted = one.held / 2**20, one.predicted / 2**20
        yield f"| {case.name} | {case.world} | {case.precision} | {held:.3f} | {predicted:.3f} | {error:+.2%} |"


if __name__ == "__main__":
    main()
