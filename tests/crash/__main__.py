"""Kills the worker at every point of every life: `PYTHONPATH=tests python -m crash`. Exits 1 when a promise broke."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from model.verdicts import Broken
from shunter_store.migrate import upgrade

from crash.lives import LIVES
from crash.points import play, points_of


def main() -> None:
    """Play them one after the other, and say of each life what came of it."""
    parser = argparse.ArgumentParser(prog="python -m crash", description=__doc__)
    parser.add_argument("--life", choices=sorted(LIVES), action="append", help="only this one; may be given again")
    parser.add_argument("--every", type=int, default=1, help="only every so many points")
    parser.add_argument("--point", type=int, help="only this point")
    options = parser.parse_args()
    broken = 0
    with tempfile.TemporaryDirectory(prefix="crash-") as folder:
        template = Path(folder) / "template.db"
        upgrade(f"sqlite:///{template}")
        for name in options.life or LIVES:
            broken += _play_life(template, name, options.every, options.point)
    sys.exit(1 if broken else 0)


def _play_life(template: Path, name: str, every: int, only: int | None) -> int:
    began, life = time.monotonic(), LIVES[name]
    points = points_of(template, life)
    broken = 0
    chosen = range(0, len(points), every) if only is None else [only]
    for point in chosen:
        try:
            play(template, life, point)
        except Broken as fault:
            broken += 1
            print(f"{name}, point {point} ({points[point]}): {fault}", flush=True)
    took_s = time.monotonic() - began
    print(f"{name}: {len(points)} points, {len(chosen)} played, {broken} broken, {took_s:.0f} s", flush=True)
    return broken


if __name__ == "__main__":
    main()
