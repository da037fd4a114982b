"""What has to be true of nodes and of money: the ledger held against the cloud's own books."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from shunter_providers.simulated.entries import Entry
from shunter_schemas.states import NodeState, State
from shunter_store.node.gang import End

from chaos.evidence import Evidence, Row
from chaos.programs import STOP_TAKES_S

Faults = Iterator[str]

_SLACK_USD = 0.2 / 60
"""A node's bill may differ by this much: the ledger counts from the handle to the proof of absence, and at the offered
price until a scan shows the billed one. A minute of the cheapest type."""
_ENDS = frozenset(map(str, End))
_SAME_MOMENT_S = 0.05
"""Clocks are read a moment before what they stand for is written."""


def no_node_is_left(found: Evidence) -> Faults:
    """Nothing exists, nothing bills, no row is open, and no process of a node lives."""
    yield from (f"{entry.handle} still exists and bills" for entry in found.entries if entry.exists(found.at))
    yield from (
        f"the row of {node['handle'] or node['token']} is {node['state']}"
        for node in found.nodes
        if node["state"] is not NodeState.GONE
    )
    yield from (f"{files.processes} processes of {files.path.name} live" for files in found.files if files.processes)


def a_row_before_every_create(found: Evidence) -> Faults:
    """What the cloud made was written down before."""
    rows = {node["token"]: node for node in found.nodes}
    for entry in found.entries:
        row = rows.get(entry.token)
        if row is None:
            yield f"{entry.handle} was made for {entry.token}, which no row knows"
        elif not found.told.clocks_moved and entry.created_at < row["intended_at"].timestamp() - _SAME_MOMENT_S:
            yield f"{entry.handle} was made before its row"


def no_row_closes_early(found: Evidence) -> Faults:
    """A row is closed once its node is gone, and not before."""
    if found.told.clocks_moved:
        return
    by_handle = _by_handle(found)
    for node in found.nodes:
        entry = by_handle.get(node["handle"])
        if node["state"] is not NodeState.GONE:
            continue
        if node["gone_at"] is None:
            yield f"the row of {node['token']} is gone, and nobody knows since when"
        elif entry is not None and entry.ends_at > node["gone_at"].timestamp() + _SAME_MOMENT_S:
            early_s = entry.ends_at - node["gone_at"].timestamp()
            yield f"the row of {entry.handle} closed {early_s:.3f} s before its node"


def one_row_for_a_handle(found: Evidence) -> Faults:
    """And one handle for a row."""
    for column in ("handle", "token", "sync_token_hash"):
        values = Counter(node[column] for node in found.nodes if node[column] is not None)
        yield from (f"{times} rows have the {column} {value}" for value, times in values.items() if times > 1)


def twins_are_ended(found: Evidence) -> Faults:
    """A node that no row knows by its handle was asked to end, or was taken away by the cloud."""
    handles = {node["handle"] for node in found.nodes}
    for entry in found.entries:
        if entry.handle not in handles and entry.asked_at is None and entry.exists(found.at):
            yield f"{entry.handle} is a {entry.kind} that no row knows, and nobody ended it"


def the_ledger_is_the_bill(found: Evidence) -> Faults:
    """Each row has cost what the cloud charged for its node."""
    if found.told.clocks_moved:
        return
    by_handle = _by_handle(found)
    for node in found.nodes:
        kept, entry = node["accrued_usd"], by_handle.get(node["handle"])
        if entry is None:
            if kept > _SLACK_USD:
                yield f"{node['token']} was never made and cost {kept:.6f} USD"
            continue
        billed = entry.cost_usd(found.at)
        if abs(kept - billed) > _SLACK_USD:
            yield f"{entry.handle} cost {billed:.6f} USD, the ledger says {kept:.6f}"


def budgets_hold(found: Evidence) -> Faults:
    """All nodes of a job, twins and left-overs too, cost no more than its document allows.

    On a busy machine, where a worker takes longer to start than the budget keeps back for the stop: they would have,
    if they had been released in that time after the ranks had ended, or the job had begun to stop.
    """
    if found.told.clocks_moved:
        return
    jobs = {node["token"]: node["job_id"] for node in found.nodes}
    for job_id, budget_usd in found.told.budgets.items():
        entries = [entry for entry in found.entries if jobs.get(entry.token) == job_id]
        until = _wanted_until(found, job_id, entries) + STOP_TAKES_S if found.busy else found.at
        spent = sum(entry.cost_usd(min(until, found.at)) for entry in entries)
        if spent > budget_usd:
            yield f"{found.told.names[job_id]} cost {spent:.6f} USD of {budget_usd:.6f}"
        job: Row | None = found.jobs.get(job_id)
        if job is not None and job["state"] == "succeeded":
            yield f"{found.told.names[job_id]} would go on for ever, and succeeded"


def _wanted_until(found: Evidence, job_id: str, entries: Sequence[Entry]) -> float:
    """When the ranks had ended, by the journals of the job's nodes; if none says so, when the job began to stop.

    A journal tells the time of its node, whose clock may have been set: a time at which there was no node is none.
    """
    journals = {node["journal_id"] for node in found.nodes if node["job_id"] == job_id}
    ends = [
        float(record["at"])
        for files in found.files
        if files.journal_id in journals
        for record in files.records
        if record["type"] in _ENDS
    ]
    first_at = min((entry.created_at for entry in entries), default=found.at)
    stops = [move["at"].timestamp() for move in found.transitions.get(job_id, ()) if move["to_state"] is State.STOPPING]
    return max([end for end in ends if first_at <= end <= found.at] or stops, default=found.at)


def _by_handle(found: Evidence) -> dict[str | None, Entry]:
    return {entry.handle: entry for entry in found.entries}
