"""`/v1/jobs/{id}/shells`, `/peeks`, `/calls`, `/debug`: a job's nodes themselves."""

from __future__ import annotations

import time
from typing import Any, Final

from litestar import Controller, Response, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath
from shunter_schemas.api import DebugReport, NodeCall, NodeCalls, ShellRequest
from shunter_schemas.ids import is_id
from shunter_schemas.states import NodeState
from shunter_store.job.jobs import JobRow
from shunter_store.node import ledger, node_calls, reaching
from shunter_store.node.ledger import NodeRow
from shunter_store.node.node_calls import PEEK, SHELL, NodeCallRow
from sqlalchemy import Connection

from shunter_service.access import AnyRequest, own_job
from shunter_service.auth import WRITE
from shunter_service.context import Service
from shunter_service.showing.debugging import collect
from shunter_service.web.answers import shaped
from shunter_service.web.bodies import json_body, parsed
from shunter_service.web.parameters import JobId, checked_id
from shunter_service.web.problems import ProblemError, not_found

_WITH_A_NODE: Final = frozenset({NodeState.BOOTING, NodeState.READY})


class ReachingController(Controller):
    """Calls to nodes go through the SSH connection that a worker holds; they are answered within seconds, or void."""

    path = "/v1/jobs/{job_id:str}"
    tags = ["jobs"]

    @post("/shells", operation_id="OpenShell", status_code=202, opt={"scope": WRITE})
    async def shell(self, request: AnyRequest, job_id: JobId, service: NamedDependency[Service]) -> Response[NodeCall]:
        """Let a key of yours log in on the node of a rank for a time. No private key travels: make a pair for it."""
        checked_id("job", "job", job_id)
        wish = parsed(await json_body(request, service.settings.max_document_bytes), ShellRequest)
        key = request.user

        def write(conn: Connection) -> NodeCall:
            job = own_job(conn, key, job_id)
            node = _node_of_rank(conn, job, wish.rank)
            argument = {"public_key": wish.public_key, "expires_at": time.time() + wish.duration_s}
            return _called(conn, node, SHELL, argument, key.name)

        return shaped(await service.db.awrite(write), status=202)

    @post("/peeks", operation_id="PeekAtNodes", status_code=202, opt={"scope": WRITE})
    async def peek(self, request: AnyRequest, job_id: JobId, service: NamedDependency[Service]) -> Response[NodeCalls]:
        """Ask every node that is reached by SSH for the ends of its agent's own files."""
        checked_id("job", "job", job_id)
        key = request.user

        def write(conn: Connection) -> NodeCalls:
            own_job(conn, key, job_id)
            begun = reaching.bootstraps_of(conn, job_id)
            living = [node for node in ledger.of_job(conn, job_id, live_only=True) if node.id in begun]
            return NodeCalls(items=tuple(_called(conn, node, PEEK, {}, key.name) for node in living))

        return shaped(await service.db.awrite(write), status=202)

    @get("/calls/{call_id:str}", operation_id="GetNodeCall")
    async def call(
        self, request: AnyRequest, job_id: JobId, call_id: FromPath[str], service: NamedDependency[Service]
    ) -> Response[NodeCall]:
        """What came of a shell or a peek."""
        checked_id("job", "job", job_id)

        def read(conn: Connection) -> NodeCall | None:
            own_job(conn, request.user, job_id)
            row = node_calls.get(conn, call_id) if is_id("ncl", call_id) else None
            node = ledger.get(conn, row.node_id) if row is not None else None
            return None if row is None or node is None or node.job_id != job_id else _view(row, node)

        found = await service.db.aread(read)
        if found is None:
            raise not_found("call", call_id[:60])
        return shaped(found)

    @get("/debug", operation_id="DebugJob")
    async def debug(
        self, request: AnyRequest, job_id: JobId, service: NamedDependency[Service]
    ) -> Response[DebugReport]:
        """Everything that is known of the job, without secrets, for whoever looks for a fault."""
        checked_id("job", "job", job_id)
        data_dir = service.data.data_dir

        def read(conn: Connection) -> DebugReport:
            return collect(conn, own_job(conn, request.user, job_id), data_dir)

        return shaped(await service.db.aread(read))


def _node_of_rank(conn: Connection, job: JobRow, rank: int) -> NodeRow:
    """The living node on which the rank lies.

    Raises:
        ProblemError: the job has no nodes now, no such rank, or no node that is reached by SSH.
    """
    if job.plan is None:
        raise ProblemError("not_running", f"the job is {job.state} and has no nodes")
    world_size, per_node = int(job.plan["world_size"]), int(job.plan["ranks_per_node"])
    if rank >= world_size:
        raise ProblemError("invalid_request", f"`rank` {rank}: the job has the ranks 0 to {world_size - 1}")
    living = [node for node in ledger.of_job(conn, job.id, live_only=True) if node.state in _WITH_A_NODE]
    node = next((node for node in living if node.rank == rank // per_node), None)
    if node is None:
        raise ProblemError("not_running", f"the job is {job.state}, and the node of rank {rank} is not up")
    if node.id not in reaching.bootstraps_of(conn, job.id):
        told = f"the node of rank {rank} is not reached by SSH: it belongs to the provider {node.instance!r}"
        raise ProblemError("conflict", told)
    return node


def _called(conn: Connection, node: NodeRow, kind: str, argument: dict[str, Any], by: str) -> NodeCall:
    row = node_calls.get(conn, node_calls.ask(conn, node.id, kind, argument, by=by))
    assert row is not None, "it was written in this transaction"
    return _view(row, node)


def _view(row: NodeCallRow, node: NodeRow) -> NodeCall:
    state = "waiting" if row.answered_at is None else ("answered" if row.error is None else "refused")
    return NodeCall.model_validate(
        {
            "id": row.id,
            "kind": row.kind,
            "state": state,
            "node": node.id,
            "node_rank": node.rank,
            "asked_at": row.asked_at,
            "answer": row.answer,
            "error": row.error,
        }
    )
