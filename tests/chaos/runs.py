"""One run of chaos: jobs on a simulated cloud with a fault script, the monkey at work; then what was broken."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

from shunter_providers.simulated.books import Books
from support.control_plane import TERMINAL, ControlPlane, control_plane

from chaos import promises, scripts
from chaos.monkey import Monkey
from chaos.programs import counting

_ENDS_WITHIN_S = 240.0
_SETTLES_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Size:
    """How much happens in a run."""

    jobs: int = 6
    lines: int = 20
    rules: int = 6
    acts: int = 6


@dataclass(frozen=True, slots=True)
class Report:
    """What a run came to."""

    seed: int
    violations: list[str]
    ends: dict[str, int]
    diary: list[str]
    script: list[dict[str, object]]
    seconds: float

    def __str__(self) -> str:
        verdict = "kept" if not self.violations else "BROKEN\n  " + "\n  ".join(self.violations)
        ends = ", ".join(f"{count} {state}" for state, count in sorted(self.ends.items()))
        return f"seed {self.seed}: {verdict} ({ends}; {self.seconds:.0f} s; {', '.join(self.diary)})"


def run(seed: int, folder: Path, size: Size = Size(), **settings: str) -> Report:  # frozen
    """Play the run of a seed in an empty folder."""
    random = Random(seed)
    began = time.monotonic()
    script = scripts.draw(random, size.rules)
    cloud = {"sim": {"plugin": "simulated", "settings": {"seed": seed, "boot_s": 0.3, "faults": script}}}
    with control_plane(folder / "data", SHUNTER_PROVIDERS=json.dumps(cloud), **settings) as plane:
        names = [f"job-{number}" for number in range(size.jobs)]
        jobs = {plane.submit(counting(folder, name, size.lines)): name for name in names}
        monkey = Monkey(plane, random, list(jobs))
        for _ in range(size.acts):
            time.sleep(random.uniform(0.2, 2.0))
            monkey.act()
        books = Books(folder / "data" / "simulated" / "sim.sqlite")
        _wait_for_ends(plane, list(jobs))
        _wait_for_quiet(books)
        states = [plane.job(job_id)["state"] for job_id in jobs]
        ends = {state: states.count(state) for state in set(states)}
        violations = promises.broken(plane, books, folder, jobs)
    return Report(seed, violations, ends, monkey.diary, script, time.monotonic() - began)


def _wait_for_ends(plane: ControlPlane, jobs: list[str]) -> None:
    """Until every job is over, or the time is: then the checker says which is not."""
    deadline = time.monotonic() + _ENDS_WITHIN_S
    while time.monotonic() < deadline and any(plane.job(job_id)["state"] not in TERMINAL for job_id in jobs):
        time.sleep(0.5)


def _wait_for_quiet(books: Books) -> None:
    """Twins and left-overs of jobs that are over are the reaper's, which needs two scans."""
    deadline = time.monotonic() + _SETTLES_WITHIN_S
    while time.monotonic() < deadline:
        with books.writing() as page:
            if not page.living(time.time()):
                return
        time.sleep(0.5)
