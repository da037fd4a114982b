"""Jobs and nodes for tests that need some in the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shunter_schemas.ids import new_id, new_node_token
from shunter_schemas.node_sync import Phase
from shunter_store.installation.signing import token_hash
from shunter_store.job import due, jobs, steps
from shunter_store.job.due import Claim
from shunter_store.job.intake import Answer, Offer
from shunter_store.job.jobs import JobRow, NewJob
from shunter_store.job.lifecycle import Trigger
from shunter_store.node import ledger
from shunter_store.node.ledger import NewNode, NodeRow
from shunter_store.sql.database import Database
from shunter_store.tables import job_due
from sqlalchemy import Connection, update

Check = Callable[[Connection], None]


def new_job(database: Database, **given: Any) -> JobRow:
    """A job that was accepted just now."""
    values: dict[str, Any] = {
        "job_id": new_id("job"),
        "project": "default",
        "created_by": "tester",
        "spec": {"version": "1"},
        "spec_text": '{"version": "1"}',
        "name": "a job",
        "labels": {},
        "priority": 2,
    } | given
    return database.write(lambda conn: jobs.insert(conn, **values))


def offer(*, key: str | None = None, check: Check | None = None, body: str = "{}", **given: Any) -> Offer:
    """A job that could be accepted; its answer names it."""
    job = NewJob(
        **{
            "id": new_id("job"),
            "project": "default",
            "created_by": "tester",
            "name": "a job",
            "labels": {},
            "priority": 2,
            "spec": {"version": "1"},
            "spec_text": body,
            **given,
        }
    )
    request = None if key is None else ("/v1/jobs", key, f"hash of {body}")
    return Offer(job, lambda row: Answer(201, {"ETag": f'"{row.revision}"'}, row.id), request, check)


def claim_one(database: Database, owner: str = "worker", lease_s: float = 30.0) -> Claim:
    """The job that is due first."""
    [claim] = database.write(lambda conn: due.claim(conn, owner=owner, lease_s=lease_s))
    return claim


def claim_job(database: Database, job_id: str) -> Claim:
    """A claim on this job alone, whatever else is due and whoever held it."""
    claim = database.write(lambda conn: take_job(conn, job_id))
    assert claim is not None, "the job has ended"
    return claim


def take_job(conn: Connection, job_id: str) -> Claim | None:
    """`claim_job` within a transaction. None: the job has ended."""
    due.wake(conn, [job_id])
    conn.execute(update(job_due).where(job_due.c.job_id == job_id).values(lease_owner=None, lease_until=None))
    return due.claim_again(conn, job_id, owner="worker", lease_s=30.0)


def advance(database: Database, job_id: str, *triggers: Trigger) -> JobRow:
    """Take the job through these transitions, one step each."""
    for trigger in triggers:
        claim = claim_job(database, job_id)
        change = steps.Change(trigger, next_in_s=0)
        database.write(lambda conn, claim=claim, change=change: steps.apply(conn, claim, change))  # type: ignore[misc]
    return reread(database, job_id)


def reread(database: Database, job_id: str) -> JobRow:
    """The job as it stands now."""
    job = database.read(lambda conn: jobs.get(conn, job_id))
    assert job is not None
    return job


def new_node(rank: int = 0, **given: Any) -> NewNode:
    """An intent with a token of its own; its sync token is `token:<token>`."""
    token = new_node_token("abcdef")
    values: dict[str, Any] = {
        "rank": rank,
        "token": token,
        "sync_token_hash": token_hash(f"token:{token}"),
        "instance": "local",
        "account": "acme",
        "offer": {"instance_type": "this-machine"},
    }
    return NewNode(**{**values, **given})


def intend(database: Database, job_id: str, *nodes: NewNode, generation: int = 1) -> list[NodeRow]:
    """Ledger rows for the job."""
    claim = claim_job(database, job_id)
    return database.write(
        lambda conn: ledger.intend(conn, claim, job_id=job_id, generation=generation, nodes=list(nodes))
    )


def run_gang(database: Database, job_id: str, num_nodes: int = 2, generation: int = 1) -> list[NodeRow]:
    """Nodes that were told to run the generation, one rank each."""
    nodes = intend(database, job_id, *(new_node(rank) for rank in range(num_nodes)), generation=generation)
    tell_to_run(database, nodes, generation)
    return nodes


def tell_to_run(database: Database, nodes: list[NodeRow], generation: int) -> None:
    """`want` RUN of every node, with the assignment of its rank."""
    for node in nodes:
        assignment = assignment_of(node, len(nodes), generation)
        database.write(
            lambda conn, node=node, task=assignment: ledger.want(  # type: ignore[misc]
                conn, [node.id], phase=Phase.RUN, generation=generation, assignment=task
            )
        )


def assignment_of(node: NodeRow, num_nodes: int, generation: int) -> Mapping[str, Any]:
    """`node_sync.Assignment` as JSON."""
    ranks = {
        "node_rank": node.rank,
        "num_nodes": num_nodes,
        "ranks_per_node": 1,
        "world_size": num_nodes,
        "master_addr": "127.0.0.1",
        "master_port": 0,
    }
    return {"job_id": node.job_id, "generation": generation, "document": {}, "ranks": ranks}
