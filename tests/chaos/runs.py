"""One run of chaos: jobs on a simulated cloud with a fault script, the monkey at work; then what was broken."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from shunter_providers.simulated.books import Books
from support.control_plane import TERMINAL
from support.own_namespaces import SmallDisk, own_mounts, small_disk

from chaos import promises, record, scripts
from chaos.evidence import Evidence, Told, gather
from chaos.monkey import Monkey
from chaos.programs import DUO, ENDLESS, SOLO, counting, with_budget
from chaos.site import Setting, Site, site

_ENDS_WITHIN_S = 240.0
_SETTLES_WITHIN_S = 90.0
_DISK_MIB = 64
_REGIONS = [{"name": f"region-{number}", "jurisdiction": "DE"} for number in range(5)]
"""Enough that what is said to have no capacity leaves another one."""
_BUDGET_LASTS_S = 4.0


@dataclass(frozen=True, slots=True)
class Size:
    """How much happens in a run."""

    jobs: int = 6
    gangs: int = 1
    """Jobs of two nodes, besides."""
    endless: int = 1
    """Jobs that only their budget ends, besides."""
    lines: int = 20
    rules: int = 6
    acts: int = 8


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a run is played on."""

    setting: Setting = "embedded"
    clocks: bool = False
    small_disk: bool = False
    broker_program: Path | None = None

    def __str__(self) -> str:
        more = [word for word, on in (("clocks", self.clocks), ("small disk", self.small_disk)) if on]
        return ", ".join([self.setting, *more])


@dataclass(frozen=True, slots=True)
class Report:
    """What a run came to."""

    seed: int
    surroundings: Surroundings
    violations: list[str]
    ends: Mapping[str, int]
    diary: list[str]
    deaths: list[str]
    script: list[dict[str, Any]]
    seconds: float

    def __str__(self) -> str:
        verdict = "kept" if not self.violations else "BROKEN\n  " + "\n  ".join(self.violations) + "\n "
        ends = ", ".join(f"{count} {state}" for state, count in sorted(self.ends.items()))
        died = f"; ended by themselves: {', '.join(self.deaths)}" if self.deaths else ""
        told = f"{ends}; {self.seconds:.0f} s; {', '.join(self.diary)}{died}"
        return f"seed {self.seed} on {self.surroundings}: {verdict} ({told})"


def draw(seed: int, *, clocks: bool, disks: bool) -> Surroundings:
    """The surroundings of a seed; `clocks`, `disks`: what this machine allows."""
    random = Random(f"surroundings {seed}")
    setting: Setting = random.choice(["embedded", "deployed"])
    return Surroundings(
        setting,
        clocks=clocks and random.random() < 0.5,
        small_disk=disks and setting == "embedded" and random.random() < 0.5,
    )


@dataclass(frozen=True, slots=True)
class Played:
    """A run, judged while everything that it left is still there."""

    found: Evidence
    violations: list[str]
    diary: list[str]
    deaths: list[str]


def run(seed: int, folder: Path, surroundings: Surroundings, size: Size = Size()) -> Report:  # frozen
    """Play the run of a seed in an empty folder, and judge it."""
    began = time.monotonic()
    script = scripts.draw(Random(f"script {seed}"), size.rules)
    played = play(seed, folder, surroundings, size, script=script)
    ends = Counter(str(job["state"]) for job in played.found.jobs.values())
    took_s = time.monotonic() - began
    return Report(seed, surroundings, played.violations, ends, played.diary, played.deaths, script, took_s)


def play(
    seed: int, folder: Path, surroundings: Surroundings, size: Size, *, script: Sequence[Mapping[str, Any]]
) -> Played:
    """Play a run under a fault script of the cloud."""
    clouds = {"sim": {"plugin": "simulated", "settings": _cloud(seed, script)}}
    (folder / "marks").mkdir()
    with ExitStack() as stack:
        disk = _disk(folder / "data", stack) if surroundings.small_disk else None
        played = stack.enter_context(
            site(
                folder / "data",
                surroundings.setting,
                clouds=clouds,
                clocks=surroundings.clocks,
                broker_program=surroundings.broker_program,
            )
        )
        with played.database() as database:
            record.begin(database)
        told, monkey = _act(played, Random(seed), folder / "marks", size, disk)
        found = _come_to_rest(played, folder, told)
        return Played(found, promises.broken(found), monkey.diary, played.deaths)


def _cloud(seed: int, script: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"seed": seed, "boot_s": 0.3, "types": [SOLO, DUO], "regions": _REGIONS, "faults": list(script)}


def _disk(data_dir: Path, stack: ExitStack) -> SmallDisk:
    stack.enter_context(own_mounts())
    return small_disk(data_dir, _DISK_MIB)


def _act(played: Site, random: Random, marks: Path, size: Size, disk: SmallDisk | None) -> tuple[Told, Monkey]:
    documents = [counting(marks, f"solo-{number}", size.lines) for number in range(size.jobs)]
    documents += [counting(marks, f"duo-{number}", size.lines, nodes=2) for number in range(size.gangs)]
    endless = [counting(marks, f"endless-{number}", ENDLESS) for number in range(size.endless)]
    documents += [with_budget(document, _BUDGET_LASTS_S) for document in endless]
    ids = {played.submit(document): document for document in documents}
    monkey = Monkey(played, random, list(ids), disk)
    for _ in range(size.acts):
        monkey.rest(random.uniform(0.1, 1.5))
        monkey.act()
    monkey.heal()
    budgets = {
        job_id: float(document["limits"]["max_cost_usd"])
        for job_id, document in ids.items()
        if document["name"].startswith("endless")
    }
    told = Told({job_id: document["name"] for job_id, document in ids.items()}, budgets)
    return replace(told, cancelled=frozenset(monkey.cancelled)), monkey


def _come_to_rest(played: Site, folder: Path, told: Told) -> Evidence:
    """Until every job is over and nothing of them is left, or the time is: then the checker says what is not."""
    _wait(lambda: set(played.states().values()) <= TERMINAL, _ENDS_WITHIN_S, played)
    books = Books(folder / "data" / "simulated" / "sim.sqlite")

    def quiet() -> bool:
        # Twins and left-overs of jobs that are over are the reaper's, which needs two scans.
        with books.writing() as page:
            return not page.living(time.time()) and not played.agents()

    _wait(quiet, _SETTLES_WITHIN_S, played)
    with played.database() as database:
        return gather(database, folder / "data", folder / "marks", told)


def _wait(done, within_s: float, played: Site) -> None:  # type: ignore[no-untyped-def]  # () -> bool
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline and not done():
        played.revive()
        time.sleep(0.25)
