"""What has to be true of every job, by its rows, its events and the database's own record of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from shunter_schemas.states import TERMINAL_STATES, Reason, State
from shunter_store.job.lifecycle import OUTCOME, IllegalTransition, follow

from chaos import record
from chaos.evidence import Evidence, Row

Faults = Iterator[str]


def no_job_is_lost(found: Evidence) -> Faults:
    """Every job that was answered 201 is there, has ended, and is due no more; nothing was ever deleted."""
    for job_id, name in found.told.names.items():
        job = found.jobs.get(job_id)
        if job is None:
            yield f"{name} was answered 201 and is not there"
        elif job["state"] not in TERMINAL_STATES:
            yield f"{name} is {job['state']} and does not end"
        elif job_id in found.due:
            yield f"{name} is {job['state']} and due"
    strangers = found.jobs.keys() - found.told.names.keys()
    if strangers:
        yield f"{len(strangers)} jobs are there that nobody was told of: {sorted(strangers)[:3]}"
    yield from (f"a row of {entry.before} was deleted: {entry.subject}" for entry in _of(found, "lost"))


def healthy_jobs_succeed(found: Evidence) -> Faults:
    """Nobody cancelled it and it had the money: then it ends well, whatever happened to the machines."""
    for job_id, name in found.told.names.items():
        job = found.jobs.get(job_id)
        touched = job_id in found.told.cancelled or job_id in found.told.budgets
        if job is not None and not touched and job["state"] in TERMINAL_STATES - {State.SUCCEEDED}:
            yield f"{name} {job['state']}: {job['reason']}: {job['message']}"


def a_cancel_is_never_taken_for_a_failure(found: Evidence) -> Faults:
    """It ends as cancelled, or as what had been settled before; as succeeded only if every rank was done."""
    for job_id, name in found.told.names.items():
        job = found.jobs.get(job_id)
        if job is None or job["state"] not in TERMINAL_STATES:
            continue
        ends = _ends(found, job)
        if job["state"] is State.SUCCEEDED and (not ends or set(ends) != {"done"}):
            yield f"{name} succeeded, and its nodes ended as {ends}"
        if job["cancel_requested_at"] is not None and job["state"] is State.FAILED and job_id not in found.told.budgets:
            yield f"{name} was cancelled and failed: {job['reason']}: {job['message']}"
        if job["state"] is State.CANCELLED and job["cancel_requested_at"] is None:
            yield f"{name} is cancelled and nobody asked for it"


def no_cancel_is_lost(found: Evidence) -> Faults:
    """Every cancel that was answered 202 is written down."""
    for job_id in found.told.sure & found.jobs.keys():
        if found.jobs[job_id]["cancel_requested_at"] is None and found.jobs[job_id]["state"] is not State.CANCELLED:
            yield f"the cancel of {found.jobs[job_id]['name']} was answered 202 and is not there"


def no_training_is_disturbed(found: Evidence) -> Faults:
    """It recovers only when something was killed on a node of its own, or the cloud took one or made a bad one."""
    taken = {entry.token for entry in found.entries if entry.fails or entry.preempted_at <= found.at}
    with_cause = {node["job_id"] for node in found.nodes if node["handle"] in found.told.hit or node["token"] in taken}
    for job_id in found.jobs.keys() - with_cause:
        for move in found.transitions.get(job_id, ()):
            if move["to_state"] is State.RECOVERING:
                yield f"{found.jobs[job_id]['name']} was {move['from_state']} and recovered, and nothing had happened"


def events_are_gapless(found: Evidence) -> Faults:
    """Numbered 1 to n without a gap, as many as the job's row counts, and one for each move."""
    for job_id, job in found.jobs.items():
        events = found.events.get(job_id, ())
        numbers = [event["seq"] for event in events]
        if numbers != list(range(1, job["event_seq"] + 1)):
            yield f"{job['name']} counts {job['event_seq']} events and has {_short(numbers)}"
        moves = [(event["seq"], event["data"]["to"]) for event in events if event["type"] == "job.state"]
        kept = [(move["seq"], move["to_state"]) for move in found.transitions.get(job_id, ())]
        if moves != kept:
            yield f"{job['name']} has the events {moves} and the moves {kept}"


def every_move_is_legal(found: Evidence) -> Faults:
    """Each begins where the last one ended, is a line of the state machine, and stands in the database's record."""
    recorded: dict[str, list[tuple[str, str]]] = {}
    for entry in _of(found, "move"):
        recorded.setdefault(entry.subject, []).append((entry.before, entry.after.split()[0]))
    for job_id, job in found.jobs.items():
        moves = found.transitions.get(job_id, ())
        steps = [(str(move["from_state"]), str(move["to_state"])) for move in moves]
        if steps != recorded.get(job_id, []):
            yield f"{job['name']} says that it moved {steps}, and moved {recorded.get(job_id, [])}"
        yield from (f"{job['name']}: {fault}" for fault in _illegal(job, moves))


def every_fence_grows(found: Evidence) -> Faults:
    """Of jobs and of singletons, with each claim by one; and no claim moves a job twice."""
    last: dict[tuple[str, str], int] = {}
    for entry in found.record:
        if entry.what not in ("claim", "lease"):
            continue
        key, before, after = (entry.what, entry.subject), int(entry.before), int(entry.after)
        if after <= before or before < last.get(key, 0):
            yield f"the fence of {entry.what} {entry.subject} went from {before} to {after} after {last.get(key, 0)}"
        last[key] = after
    moved = Counter((entry.subject, entry.fence) for entry in _of(found, "move"))
    for (job_id, fence), times in moved.items():
        if fence is None or times > 1:
            yield f"{job_id} was moved {times} times under the claim {fence}"


def _illegal(job: Row, moves: Sequence[Row]) -> Faults:
    at = State.QUEUED
    for move in moves:
        reason = None if move["reason"] is None else Reason(move["reason"])
        try:
            target, _ = follow(move["from_state"], move["trigger"], reason)
        except IllegalTransition as error:
            yield str(error)
            continue
        if move["from_state"] is not at or target is not move["to_state"]:
            yield f"was {at} and moved from {move['from_state']} to {move['to_state']} on {move['trigger']}"
        at = move["to_state"]
    if at is not job["state"]:
        yield f"moved to {at} and is {job['state']}"
    if job["state"] in TERMINAL_STATES and job["state"] is not OUTCOME.get(job["reason"]):
        yield f"is {job['state']} by the reason {job['reason']}"


def _ends(found: Evidence, job: Row) -> list[str]:
    """How the nodes of the job's last generation ended, of those that were told to run it."""
    members = {
        node["id"]
        for node in found.nodes
        if node["job_id"] == job["id"] and node["run_generation"] == job["generation"]
    }
    of_generation = {
        row["node_id"]: str(row["ended"])
        for row in found.gang_nodes
        if row["job_id"] == job["id"] and row["generation"] == job["generation"]
    }
    return [of_generation.get(node, "None") for node in sorted(members)]


def _of(found: Evidence, what: str) -> list[record.Entry]:
    return [entry for entry in found.record if entry.what == what]


def _short(numbers: Sequence[int]) -> str:
    gaps = [after for before, after in pairwise(numbers) if after != before + 1]
    return f"{len(numbers)} from {numbers[:1]} to {numbers[-1:]}, with breaks before {gaps[:5]}"
