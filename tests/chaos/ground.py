"""Where runs are played: a site that is started once, and on it one run after the other, each judged when it rests.

A later run begins on what the earlier ones left: their rows, their nodes' folders, the cloud's books. The judge reads
all of it each time, so what a run does to an older one is found too.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from shunter_providers.simulated.books import Books
from support.control_plane import TERMINAL
from support.own_namespaces import SmallDisk, own_mounts, small_disk

from chaos import promises, record
from chaos.evidence import Evidence, Told, gather
from chaos.monkey import Monkey
from chaos.programs import DUO, ENDLESS, SOLO, counting, with_budget
from chaos.site import Setting, Site, site

# Of no use to a run that keeps every promise: how long it is waited for what may never come.
_ENDS_WITHIN_S: Final = 600.0
_SETTLES_WITHIN_S: Final = 300.0
_LOOK_EVERY_S: Final = 0.5
_DISK_MIB: Final = 48
_DISK_MIB_A_RUN: Final = 16
_BUDGET_LASTS_S: Final = 4.0
_CLOUD: Final = {
    "cloud": "sim",
    "boot_s": 0.3,
    "price_drift": 0.05,
    "period_s": 5.0,
    "types": [SOLO, DUO],
    # Enough that what is said to have no capacity leaves another one.
    "regions": [{"name": f"region-{number}", "jurisdiction": "DE"} for number in range(5)],
}
_CLOUDS: Final = {
    "sim": {"plugin": "simulated", "settings": {**_CLOUD, "account": "first"}},
    "sim-2": {"plugin": "simulated", "settings": {**_CLOUD, "account": "second"}},
}
"""Two accounts with one cloud: where one is refused, jobs go to the other."""


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
class Played:
    """A run, judged while everything that it left is still there."""

    found: Evidence
    violations: list[str]
    """Of this run, or of an earlier one on the same site."""
    diary: list[str]
    deaths: list[str]
    ids: Sequence[str]
    """Of its jobs."""


@dataclass
class Ground:
    """One site, and what is known of the runs on it."""

    folder: Path
    site: Site
    disk: SmallDisk | None = None
    told: Told = field(default_factory=lambda: Told({}))

    def play(self, seed: int, size: Size, script: Sequence[Mapping[str, Any]]) -> Played:
        """Play the run of a seed under a fault script of the cloud, wait until all is at rest, and judge."""
        self._make_ready(script)
        random, marks = Random(seed), self.folder / "marks"
        ids = {self.site.submit(document): document for document in _documents(marks, seed, size)}
        monkey = Monkey(self.site, random, list(ids), self.disk)
        for _ in range(size.acts):
            monkey.rest(random.uniform(0.1, 1.5))
            monkey.act()
        monkey.heal()
        self.told = self.told.and_of(_told(ids, monkey))
        found = self._come_to_rest()
        return Played(found, promises.broken(found), monkey.diary, list(self.site.deaths), list(ids))

    def _make_ready(self, script: Sequence[Mapping[str, Any]]) -> None:
        """Every part runs by the right time, and the cloud has its script."""
        if self.site.has_clocks:
            for role in (*self.site.apis, *self.site.workers):
                self.site.set_clock(role, 0.0)
        self.site.wait_until_it_works()
        self.site.deaths.clear()
        home = self.site.data_dir / "simulated"
        home.mkdir(mode=0o700, exist_ok=True)
        draft = home / ".faults"
        draft.write_text(json.dumps(list(script)))
        draft.replace(home / "sim.faults.json")

    def _come_to_rest(self) -> Evidence:
        """Until every job is over and nothing of them is left, or the time is: then the checker says what is not."""
        self._wait(lambda: set(self.site.states().values()) <= TERMINAL, _ENDS_WITHIN_S)
        books = Books(self.site.data_dir / "simulated" / "sim.sqlite")

        def quiet() -> bool:
            # Twins and left-overs of jobs that are over are the reaper's, which needs two scans. A node is finished
            # once no process of it is left.
            with books.writing() as page:
                return not page.living(time.time()) and not page.unfinished()

        self._wait(quiet, _SETTLES_WITHIN_S)
        with self.site.database() as database:
            return gather(database, self.site.data_dir, self.folder / "marks", self.told)

    def _wait(self, done: Callable[[], bool], within_s: float) -> None:
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline and not done():
            self.site.revive()
            time.sleep(_LOOK_EVERY_S)


@contextmanager
def ground(folder: Path, surroundings: Surroundings, runs: int = 1) -> Iterator[Ground]:
    """A site in an empty folder, with room for so many runs."""
    (folder / "marks").mkdir()
    with ExitStack() as stack:
        disk = None
        if surroundings.small_disk:
            stack.enter_context(own_mounts())
            disk = small_disk(folder / "data", _DISK_MIB + runs * _DISK_MIB_A_RUN)
            stack.callback(disk.leave)
        played = stack.enter_context(
            site(
                folder / "data",
                surroundings.setting,
                clouds=_CLOUDS,
                clocks=surroundings.clocks,
                broker_program=surroundings.broker_program,
            )
        )
        with played.database() as database:
            record.begin(database)
        yield Ground(folder, played, disk)


def _documents(marks: Path, seed: int, size: Size) -> Iterator[dict[str, Any]]:
    for number in range(size.jobs):
        yield counting(marks, f"solo-{seed}-{number}", size.lines)
    for number in range(size.gangs):
        yield counting(marks, f"duo-{seed}-{number}", size.lines, nodes=2)
    for number in range(size.endless):
        yield with_budget(counting(marks, f"endless-{seed}-{number}", ENDLESS), _BUDGET_LASTS_S)


def _told(ids: Mapping[str, Mapping[str, Any]], monkey: Monkey) -> Told:
    return Told(
        names={job_id: document["name"] for job_id, document in ids.items()},
        budgets={
            job_id: float(document["limits"]["max_cost_usd"])
            for job_id, document in ids.items()
            if document["name"].startswith("endless")
        },
        cancelled=frozenset(monkey.cancelled),
        sure=frozenset(monkey.sure),
        hit=frozenset(monkey.hit),
    )
