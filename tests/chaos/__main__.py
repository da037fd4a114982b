"""Runs chaos by hand: `PYTHONPATH=tests python -m chaos --seeds 1:20`. Exits 1 when a promise was broken.

A seed draws its surroundings too; `--setting` names them instead. As root on Linux, disks fill up as well.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from support.clocks import can_set_clocks

from chaos.runs import Size, draw, run


def main() -> None:
    """Play the seeds one after the other, and say of each what came of it."""
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--seeds", default="1:5", help="from:to, both included")
    parser.add_argument("--setting", choices=["embedded", "deployed"], help="instead of the seed's own")
    parser.add_argument("--jobs", type=int, default=Size().jobs)
    parser.add_argument("--acts", type=int, default=Size().acts)
    parser.add_argument("--keep", action="store_true", help="keep the data of good runs too")
    options = parser.parse_args()
    first, _, last = options.seeds.partition(":")
    broken = 0
    for seed in range(int(first), int(last or first) + 1):
        folder = Path(tempfile.mkdtemp(prefix=f"chaos-{seed}-"))
        drawn = draw(seed, clocks=can_set_clocks(), disks=os.geteuid() == 0)
        if options.setting:
            drawn = replace(drawn, setting=options.setting, small_disk=False)
        report = run(seed, folder, drawn, Size(jobs=options.jobs, acts=options.acts))
        print(report, flush=True)
        broken += bool(report.violations)
        if report.violations or options.keep:
            print(f"  its data and logs: {folder}", flush=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
