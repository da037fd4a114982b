"""The nodes' side, outside the public document: exchanges with agents, and the URLs that they may use."""

from __future__ import annotations

import time
from typing import Any

from litestar import Controller, Request, Response, post
from litestar.di import NamedDependency
from shunter_schemas.node_sync import GrantAnswer, GrantRequest, ListenAnswer, ListenRequest, SyncAnswer
from shunter_schemas.states import NodeState
from shunter_store.installation import signing
from shunter_store.node.beats import Exchange
from shunter_store.node.ledger import NodeRow

from shunter_service.auth import bearer
from shunter_service.context import Service
from shunter_service.node.exchanges import node_of, unknown
from shunter_service.node.node_messages import read_message, read_sync
from shunter_service.web.answers import M, raw
from shunter_service.web.bodies import limited
from shunter_service.web.problems import ProblemError

AnyRequest = Request[Any, Any, Any]


class NodeController(Controller):
    """Agents prove who they are with the token of their node; nothing else is asked of them."""

    path = "/v1/node"
    include_in_schema = False
    opt = {"public": True}

    @post("/sync", status_code=200)
    async def sync(self, request: AnyRequest, service: NamedDependency[Service]) -> Response[SyncAnswer]:
        """Take what the agent's journal has new, and say what is wanted of the node."""
        token = _token(request)
        message = read_sync(await limited(request, service.settings.max_sync_bytes))
        return _message(await service.exchanges.take(Exchange(token, message)))

    @post("/listen", status_code=200)
    async def listen(self, request: AnyRequest, service: NamedDependency[Service]) -> Response[ListenAnswer]:
        """Hold the answer back until something else is wanted of the node than it has heard, or the time is over."""
        token = _token(request)
        asked = read_message(ListenRequest, await limited(request, service.settings.max_document_bytes))
        if not service.listeners.may_listen(asked.node, token):
            raise ProblemError("forbidden", "the token is not that of the node")
        return _message(await service.listeners.listen(asked))

    @post("/grants", status_code=200)
    async def grants(self, request: AnyRequest, service: NamedDependency[Service]) -> Response[GrantAnswer]:
        """Signed URLs for those of the keys that the node may write or read; the others are left out."""
        token = _token(request)
        body = await limited(request, service.settings.max_document_bytes)
        wanted = read_message(GrantRequest, body)
        node = await service.db.aread(lambda conn: node_of(conn, token))
        if node.state is NodeState.GONE:
            raise ProblemError("node_gone", "this node was released; nothing more is wanted of it")
        until = time.time() + service.settings.grant_s
        return _message(
            GrantAnswer(
                put={
                    key: signing.sign(service.signing_key, "PUT", key, until)
                    for key in wanted.put
                    if _may_write(node, key)
                },
                get={
                    key: signing.sign(service.signing_key, "GET", key, until)
                    for key in wanted.get
                    if _may_read(node, key)
                },
                expires_in_s=service.settings.grant_s,
            )
        )


def _message(message: M) -> Response[M]:
    """A message of the protocol in full, unlike the API's answers: nulls too."""
    return raw(message.model_dump_json().encode(), type(message))


def _token(request: AnyRequest) -> str:
    token = bearer(request)
    if token is None:
        raise unknown()
    return token


def _may_write(node: NodeRow, key: str) -> bool:
    """Below the node's own job, in a generation that it was told of; 0 is before any."""
    job_id, _, rest = key.partition("/")
    generation, _, name = rest.partition("/")
    number = int(generation) if generation.isascii() and generation.isdigit() and len(generation) <= 9 else -1
    return job_id == node.job_id and bool(name) and 0 <= number <= max(node.generation, node.desired_generation)


def _may_read(node: NodeRow, key: str) -> bool:
    """What the node's job wrote, and what its assignment names: source, inputs, the checkpoint to resume from."""
    if key.startswith(f"{node.job_id}/"):
        return True
    task = node.assignment or {}
    refs = [task.get("source"), *(task.get("inputs") or {}).values(), *((task.get("resume") or {}).get("files") or ())]
    return any(isinstance(ref, dict) and ref.get("object") == key for ref in refs)
