"""Runs chaos by hand: `PYTHONPATH=tests python -m chaos --seeds 1:20`. Exits 1 when a promise was broken."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from chaos.runs import Size, run


def main() -> None:
    """Play the seeds one after the other, and say of each what came of it."""
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--seeds", default="1:5", help="from:to, both included")
    parser.add_argument("--jobs", type=int, default=Size().jobs)
    parser.add_argument("--acts", type=int, default=Size().acts)
    options = parser.parse_args()
    first, _, last = options.seeds.partition(":")
    broken = 0
    for seed in range(int(first), int(last or first) + 1):
        folder = Path(tempfile.mkdtemp(prefix=f"chaos-{seed}-"))
        report = run(seed, folder, Size(jobs=options.jobs, acts=options.acts))
        print(report, flush=True)
        if report.violations:
            broken += 1
            print(f"  its data and logs: {folder}", flush=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
