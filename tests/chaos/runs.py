"""Seeded runs of chaos: jobs on a simulated cloud with a fault script, the monkey at work; then what was broken."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from chaos import scripts
from chaos.ground import Ground, Size, Surroundings, ground
from chaos.site import Setting


@dataclass(frozen=True, slots=True)
class Report:
    """What a run came to."""

    seed: int
    surroundings: Surroundings
    before: Sequence[int]
    """The seeds that were played on the same site before."""
    violations: list[str]
    ends: Mapping[str, int]
    diary: list[str]
    deaths: list[str]
    script: list[dict[str, Any]]
    seconds: float

    def __str__(self) -> str:
        verdict = "kept" if not self.violations else "BROKEN\n  " + "\n  ".join(self.violations) + "\n "
        ends = ", ".join(f"{count} {state}" for state, count in sorted(self.ends.items()))
        after = f" after {', '.join(map(str, self.before))}" if self.before else ""
        died = f"; ended by themselves: {', '.join(self.deaths)}" if self.deaths else ""
        told = f"{ends}; {self.seconds:.0f} s; {', '.join(self.diary)}{died}"
        return f"seed {self.seed} on {self.surroundings}{after}: {verdict} ({told})"


def draw(seed: int, *, clocks: bool, disks: bool) -> Surroundings:
    """The surroundings of a seed; `clocks`, `disks`: what this machine allows."""
    random = Random(f"surroundings {seed}")
    setting: Setting = random.choice(["embedded", "deployed"])
    return Surroundings(
        setting,
        clocks=clocks and random.random() < 0.5,
        small_disk=disks and setting == "embedded" and random.random() < 0.5,
    )


def together(
    seeds: Iterable[int], surroundings: Callable[[int], Surroundings], most: int
) -> Iterator[tuple[Surroundings, list[int]]]:
    """The seeds that have the same surroundings, at most so many for one site."""
    groups: dict[Surroundings, list[int]] = {}
    for seed in seeds:
        groups.setdefault(surroundings(seed), []).append(seed)
    for kind, members in groups.items():
        rest = iter(members)
        while group := list(islice(rest, most)):
            yield kind, group


def play_all(
    seeds: Sequence[int],
    folder: Path,
    surroundings: Surroundings,
    size: Size = Size(),  # noqa: B008 - frozen
) -> Iterator[Report]:
    """Play the runs of seeds one after the other on one site, in an empty folder that is left as they leave it.

    The first violation is the last run: what comes after it would stand on broken ground.
    """
    began = time.monotonic()
    with ground(folder, surroundings, len(seeds)) as on:
        for number, seed in enumerate(seeds):
            report = _run(on, seed, seeds[:number], surroundings, size, began)
            yield report
            if report.violations:
                return
            began = time.monotonic()


def _run(on: Ground, seed: int, before: Sequence[int], surroundings: Surroundings, size: Size, began: float) -> Report:
    script = scripts.draw(Random(f"script {seed}"), size.rules)
    played = on.play(seed, size, script)
    ends = Counter(str(played.found.jobs[job_id]["state"]) for job_id in played.ids if job_id in played.found.jobs)
    return Report(
        seed=seed,
        surroundings=surroundings,
        before=before,
        violations=played.violations,
        ends=ends,
        diary=played.diary,
        deaths=played.deaths,
        script=script,
        seconds=time.monotonic() - began,
    )
