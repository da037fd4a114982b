"""Plays a life and kills the worker at one point of it, as SIGKILL would; another worker goes on, and in the end every
promise has to hold. A point lies before each statement, before each commit, and around each call to a provider."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from model import promises
from model.processes import Fuse
from model.verdicts import require
from model.world import World
from shunter_schemas.states import State
from shunter_store.job import jobs

from crash.lives import UNDISTURBED, Life

_ROUNDS_AT_MOST = 200
_FOR_EVER = 1 << 60


def points_of(template: Path, life: Life) -> Sequence[str]:
    """What each point of a life is, in order, when nobody dies."""
    return _played(template, life, _FOR_EVER).passed


def play(template: Path, life: Life, point: int) -> None:
    """Let the worker die at a point.

    Raises:
        Broken: a promise did not survive it.
    """
    fuse = _played(template, life, point)
    assert fuse.blown, f"point {point} was never reached"


def _played(template: Path, life: Life, point: int) -> Fuse:
    world, fuse = World(template), Fuse(point)
    try:
        _live(world, life, fuse)
    finally:
        world.close()
    return fuse


def _live(world: World, life: Life, fuse: Fuse) -> None:
    worker = world.workers[-1]
    worker.process.fuse = fuse
    job_id = world.submit(life.kind)
    meddled = False
    for round_ in range(_ROUNDS_AT_MOST):
        meddled = meddled or life.meddle(world, job_id)
        world.live(1, finish=True, tick_s=2.0 if round_ < 60 else 20.0)
        if round_ > 20:
            world.wish("resume", job_id)
        if world.is_over():
            break
    worker.process.fuse = None
    promises.check_end(world)
    job = world.database.read(lambda conn: jobs.get(conn, job_id))
    assert job is not None
    # A worker that died may have kept it out of the state in which something was to happen to it, up to its end.
    ends = life.ends if meddled else UNDISTURBED
    require(5 if State.CANCELLED in ends else 1, job.state in ends, f"{job_id} ends as {job.state}")
