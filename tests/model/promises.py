"""What must hold after every single thing that happens, and what must hold in the end."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from shunter_schemas.states import NodeState, State
from shunter_store.job import events
from shunter_store.job.lifecycle import is_terminal
from shunter_store.node import ledger
from shunter_store.node.ledger import NodeRow
from shunter_store.node.ledger_rows import COLUMNS
from shunter_store.report import metrics
from shunter_store.sql.sqltypes import db_now
from shunter_store.tables import job_due, jobs, log_chunks, nodes
from sqlalchemy import Connection, bindparam, or_, select

from model.agents import Agent
from model.cloud import CAPABILITIES, USD_PER_HOUR
from model.verdicts import require

if TYPE_CHECKING:
    from model.world import World

_SLACK_USD = 1e-6
_STATES = select(jobs.c.id, jobs.c.state)
_DUE = select(job_due.c.job_id)
_FORGOTTEN = select(job_due.c.job_id).where(
    job_due.c.lease_owner.is_(None),
    job_due.c.wake != job_due.c.seen_wake,
    or_(job_due.c.next_at.is_(None), job_due.c.next_at > db_now()),
)
_ROWS = select(*COLUMNS)
_OBJECTS = select(log_chunks.c.object).where(log_chunks.c.job_id == bindparam("job"))


def check_always(world: World) -> None:
    """Cheap, and true at every moment."""
    states, due, rows = world.database.read(_standing)
    for job_id in world.jobs:
        require(1, job_id in states, f"{job_id} is not there")
        require(1, is_terminal(states[job_id]) != (job_id in due), f"{job_id} is {states[job_id]} and has no due row")
    forgotten = world.database.read(lambda conn: conn.execute(_FORGOTTEN).scalars().all())
    require(1, not forgotten, f"{forgotten} were woken, and nobody will look at them")
    _check_closed(world, rows)
    _check_slots(world)


def check_histories(world: World) -> None:
    """Events and what was synced; costs more."""
    for job_id in world.jobs:
        told, moves = world.database.read(partial(_history, job_id))
        numbers = [event.seq for event in told]
        require(6, numbers == list(range(1, len(told) + 1)), f"events of {job_id} have the numbers {numbers}")
        said = [event.seq for event in told if event.type == "job.state" and event.data["from"] != event.data["to"]]
        require(6, said == [move.seq for move in moves], f"{job_id} moved at {moves} and tells of {said}")
        _check_checkpoints(job_id, told)
    for agent in world.agents.values():
        _check_kept(world, agent)


def check_end(world: World) -> None:
    """Everything is over: nothing is left, and the books agree."""
    states, _, rows = world.database.read(_standing)
    for job_id in world.jobs:
        whose = 5 if job_id in world.cancelled else 1
        require(whose, is_terminal(states[job_id]), f"{job_id} is {states[job_id]} and does not end")
    left = [machine.handle for machine in world.cloud.living()]
    require(2, not left, f"{left} still exist")
    open_rows = [row.id for row in rows if row.state is not NodeState.GONE]
    require(2, not open_rows, f"{open_rows} are not closed though nothing exists")
    check_always(world)
    check_histories(world)
    _check_costs(world, rows)


def _standing(conn: Connection) -> tuple[dict[str, State], set[str], list[NodeRow]]:
    states = {row.id: row.state for row in conn.execute(_STATES)}
    due = set(conn.execute(_DUE).scalars())
    return states, due, [NodeRow(*row) for row in conn.execute(_ROWS)]


def _history(job_id: str, conn: Connection) -> tuple[list[events.EventRow], list[events.TransitionRow]]:
    return events.page(conn, job_id, limit=10_000), events.transitions(conn, job_id)


def _check_closed(world: World, rows: list[NodeRow]) -> None:
    for row in rows:
        if row.state is not NodeState.GONE or row.gone_at is None:
            require(2, row.state is not NodeState.GONE, f"{row.id} is closed and does not say when")
            continue
        closed_at = row.gone_at.timestamp()
        for machine in world.cloud.of_token(row.token):
            speaks_for = machine.handle == row.handle or (row.handle is None and machine.created_at <= closed_at)
            still = speaks_for and machine.exists(world.clock.now)
            require(2, not still, f"{row.id} is closed and {machine.handle} still exists")


def _check_slots(world: World) -> None:
    taken = Counter(
        index for machine in world.cloud.living() if machine.instance == "box" for index in machine.intent.slot_indices
    )
    twice = [index for index, times in taken.items() if times > 1]
    require(2, not twice, f"the slots {twice} of one host are held by two nodes that exist")


def _check_checkpoints(job_id: str, told: list[events.EventRow]) -> None:
    generation = 0
    for event in told:
        if event.type == "job.state" and event.data["to"] == State.STARTING:
            generation = event.data["generation"]
        if event.type == "checkpoint.committed":
            of = event.data["generation"]
            require(3, of >= generation, f"a checkpoint of generation {of} of {job_id} counts in {generation}")


def _check_kept(world: World, agent: Agent) -> None:
    """What the service said is durable is there, once."""
    sent = [one for one in agent.records if one.seq <= agent.acknowledged]
    objects = [one.data["object"] for one in sent if one.type == "log"]
    kept = world.database.read(lambda conn: Counter(conn.execute(_OBJECTS, {"job": agent.job_id}).scalars()))
    lost = [key for key in objects if kept[key] != 1]
    require(6, not lost, f"of the output that was synced {lost} is not there exactly once")
    emitted = {
        one.data["object"]
        for other in world.agents.values()
        if other.job_id == agent.job_id
        for one in other.records
        if one.type == "log"
    }
    require(6, set(kept) <= emitted, "there is output that nobody wrote")
    known = world.database.read(lambda conn: _points(conn, agent.job_id))
    steps = [(one.generation, point["step"]) for one in sent if one.type == "metrics" for point in one.data["points"]]
    require(6, all(known[step] == 1 for step in steps), f"of the points {steps} there are {known}")


def _points(conn: Connection, job_id: str) -> Counter[tuple[int, int]]:
    """How often each step of each generation is there."""
    found: Counter[tuple[int, int]] = Counter()
    behind = 0
    while page := metrics.arrivals(conn, job_id, behind):
        found.update((point.generation, point.step) for point in page)
        behind = page[-1].number
    return found


def _check_costs(world: World, rows: list[NodeRow]) -> None:
    for row in rows:
        machine = world.cloud.machines.get(row.handle or "")
        if machine is None or row.gone_at is None:
            continue
        kept, billed = row_cost(world, row), machine.cost_usd(world.clock.now)
        require(7, kept >= billed - _SLACK_USD, f"{row.handle} cost {billed:.6f} USD, the ledger says {kept:.6f}")
        if CAPABILITIES[row.instance].bills:
            longest_s = row.gone_at.timestamp() - row.intended_at.timestamp()
            most = longest_s / 3600 * USD_PER_HOUR
            require(7, kept <= most + _SLACK_USD, f"{row.handle} was there for {longest_s} s and costs {kept:.6f}")
    before = world.database.read(lambda conn: [ledger.ledger_cost(conn, job_id) for job_id in world.jobs])
    world.clock.tick(3600.0)
    after = world.database.read(lambda conn: [ledger.ledger_cost(conn, job_id) for job_id in world.jobs])
    require(7, before == after, f"jobs that are over go on costing: {before} became {after}")


def row_cost(world: World, row: NodeRow) -> float:
    """What the ledger says that a node has cost."""
    accrued = select(nodes.c.accrued_usd).where(nodes.c.id == row.id)
    return float(world.database.read(lambda conn: conn.execute(accrued).scalar_one()))
