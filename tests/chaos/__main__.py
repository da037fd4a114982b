"""Runs chaos by hand: `PYTHONPATH=tests python -m chaos --seeds 1:20`. Exits 1 when a promise was broken.

A seed draws its surroundings too; `--setting` names them instead. Seeds with the same surroundings are played one after
the other on one site, `--together` of them at most; with 1 each has a site of its own. As root on Linux, disks fill up
as well.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from support.clocks import can_set_clocks

from chaos.ground import Size, Surroundings
from chaos.runs import draw, play_all, together


def main() -> None:
    """Play the seeds, and say of each what came of it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that what was started is ended
    options = _options()
    first, _, last = options.seeds.partition(":")
    size = Size(jobs=options.jobs, acts=options.acts)

    def surroundings(seed: int) -> Surroundings:
        drawn = draw(seed, clocks=can_set_clocks(), disks=os.geteuid() == 0)
        return drawn if options.setting is None else Surroundings(options.setting, drawn.clocks)

    left = range(int(first), int(last or first) + 1)
    broken = [
        _play(kind, group, size, keep=options.keep) for kind, group in together(left, surroundings, options.together)
    ]
    sys.exit(1 if any(broken) else 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--seeds", default="1:5", help="from:to, both included")
    parser.add_argument("--setting", choices=["embedded", "deployed"], help="instead of the seed's own")
    parser.add_argument("--together", type=int, default=8, help="runs on one site")
    parser.add_argument("--jobs", type=int, default=Size().jobs)
    parser.add_argument("--acts", type=int, default=Size().acts)
    parser.add_argument("--keep", action="store_true", help="keep the data of good runs too")
    return parser.parse_args()


def _play(kind: Surroundings, seeds: list[int], size: Size, *, keep: bool) -> bool:
    """Play all of them, those behind a violation on a new site; returns whether a promise was broken."""
    broken = False
    while seeds:
        folder = Path(tempfile.mkdtemp(prefix=f"chaos-{seeds[0]}-"))
        left, fell = _play_on_one_site(kind, seeds, size, folder)
        seeds, broken = left, broken or fell
        if fell or keep:
            print(f"  its data and logs: {folder}", flush=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return broken


def _play_on_one_site(kind: Surroundings, seeds: list[int], size: Size, folder: Path) -> tuple[list[int], bool]:
    """The seeds that are left, and whether the last one that was played went wrong."""
    left, fell = list(seeds), False
    try:
        for report in play_all(seeds, folder, kind, size):
            print(report, flush=True)
            left.remove(report.seed)
            fell = bool(report.violations)
    except AssertionError as error:  # something never came: no verdict, and no success
        print(f"seed {left[0]} on {kind}: NOT PLAYED TO ITS END: {error}", flush=True)
        return left[1:], True
    return left, fell


if __name__ == "__main__":
    main()
