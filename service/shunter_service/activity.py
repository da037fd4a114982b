"""The `activity` command: statements, steps, messages and exchanges per second of every process on this machine."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from shunter_store.installation import activity
from shunter_store.installation.activity import Activity
from shunter_store.installation.settings import DataSettings

_SHOWN: Final = ("statements", "transactions", "steps", "hints_sent", "hints_taken", "scans", "exchanges")


def run(arguments: Sequence[str]) -> int:
    """Look twice, and print what happened in between; the exit code."""
    options = _parse(arguments)
    try:
        data = DataSettings(data_dir=Path(options.data_dir)) if options.data_dir else DataSettings()
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    before = activity.read(data.data_dir / "run")
    if not before:
        print(f"no process of Shunter writes below {data.data_dir}; give the right --data-dir", file=sys.stderr)
        return 1
    time.sleep(options.seconds)
    print(table(before, activity.read(data.data_dir / "run")))
    return 0


def rates(before: Activity, after: Activity) -> Mapping[str, float]:
    """Per second between two looks at a process; `processor`: its share of one. Empty: it wrote nothing new."""
    passed_s = after.at - before.at
    if passed_s <= 0:
        return {}
    found = {name: (count - before.counts.get(name, 0.0)) / passed_s for name, count in after.counts.items()}
    return {**found, "processor": (after.processor_s - before.processor_s) / passed_s}


def table(before: Sequence[Activity], after: Sequence[Activity]) -> str:
    """One line a process, and their sum."""
    known = {one.pid: one for one in before}
    lines = [f"{'process':16} {'processor':>10} " + " ".join(f"{name + '/s':>14}" for name in _SHOWN)]
    total: dict[str, float] = dict.fromkeys(("processor", *_SHOWN), 0.0)
    for one in after:
        found = rates(known[one.pid], one) if one.pid in known else {}
        lines.append(_line(f"{one.role} {one.pid}", found))
        total = {name: value + found.get(name, 0.0) for name, value in total.items()}
    return "\n".join([*lines, _line("all", total)])


def _line(name: str, found: Mapping[str, float]) -> str:
    cells = " ".join(f"{found[key]:14.1f}" if key in found else f"{'-':>14}" for key in _SHOWN)
    return f"{name:16} {found.get('processor', 0.0):10.1%} {cells}"


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="shunter activity", description="What the processes on this machine do, per second."
    )
    parser.add_argument("--data-dir", help="where the service keeps everything (default: as for `shunter up`)")
    parser.add_argument(
        "--seconds", type=float, default=2 * activity.EVERY_S, help="between the two looks (default: %(default)g)"
    )
    return parser.parse_args(arguments)
