"""Makes the one call of a step: within its time, and with every failure in the contract's words."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shunter_planner.values import offer_from_json
from shunter_providers.contract import Capabilities, Fault, Intent, NodeView, Provider, ProviderError
from shunter_providers.registry import Registry
from shunter_schemas.node_sync import LaunchFile, Lease
from shunter_store import signing
from shunter_store.ledger import NodeRow

from shunter_workers.accounts import Accounts
from shunter_workers.decisions import (
    Action,
    Create,
    Created,
    Found,
    Looked,
    Prove,
    Result,
    Search,
    Terminate,
    Terminated,
)
from shunter_workers.packing import pack_launch
from shunter_workers.states.refusing import avoided
from shunter_workers.view import View

_NOT_UP_YET: Final = "http://127.0.0.1"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Origin:
    """What every node is told of where it comes from."""

    deployment: str
    secret: bytes
    service_url: str
    """For nodes that do not share the service's file system; empty: there is no such address."""
    service_url_file: Path


class Actor:
    """Calls providers for steps."""

    def __init__(self, registry: Registry, accounts: Accounts, origin: Origin) -> None:
        self._registry = registry
        self._accounts = accounts
        self._origin = origin

    async def act(self, action: Action, view: View, timeout_s: float) -> Result:
        """The call's answer, or the error; never raises anything but cancellation."""
        calls: Mapping[type, Callable[[Provider], Awaitable[Result]]] = {
            Create: lambda provider: self._create(provider, action.node, view),
            Search: lambda provider: self._search(provider, action.node),
            Terminate: lambda provider: _terminate(provider, action.node),
            Prove: lambda provider: self._look(provider, action.node),
        }
        creates = isinstance(action, Create)
        try:
            provider = self._registry.get(action.node.instance)
            async with asyncio.timeout(timeout_s):
                return await calls[type(action)](provider)
        except ProviderError as exc:
            return exc
        except TimeoutError:
            return ProviderError(Fault.AMBIGUOUS, f"no answer within {timeout_s:.0f} s", may_have_created=creates)
        except Exception as exc:  # a plugin that breaks the contract must not stop the job: what it did is unknown
            _log.exception("provider %s broke its contract", action.node.instance)
            return ProviderError(Fault.AMBIGUOUS, f"{type(exc).__name__}: {exc}", may_have_created=creates)

    async def _create(self, provider: Provider, node: NodeRow, view: View) -> Created:
        launch = pack_launch(self._launch_file(node, provider.capabilities))
        plan = view.plan
        intent = Intent(
            token=node.token,
            tags={"deployment": self._origin.deployment, "job": node.job_id, "name": view.job.name},
            offer=offer_from_json(node.offer),
            launch=launch,
            rank=node.rank,
            gang_size=plan.num_nodes,
            slots=plan.ranks_per_node,
            slot_indices=tuple(node.slot_indices),
            image=view.document.environment.image,
            options=view.document.placement.options.get(node.instance, {}),
            avoid=avoided(view, node.instance),
        )
        return Created(await provider.create(intent))

    def _launch_file(self, node: NodeRow, capabilities: Capabilities) -> LaunchFile:
        near, origin = capabilities.shares_file_system, self._origin
        return LaunchFile(
            node=node.token,
            sync_token=signing.node_sync_token(origin.secret, node.token),
            service_url=_read_url(origin.service_url_file) if near else origin.service_url,
            service_url_file=str(origin.service_url_file) if near else None,
            lease=Lease(expires_in_s=node.lease_s),
            labels={"job": node.job_id, "rank": str(node.rank)},
        )

    async def _search(self, provider: Provider, node: NodeRow) -> Found:
        views = await provider.list_owned(self._origin.deployment)
        return Found(next((view for view in views if view.token == node.token), None))

    async def _look(self, provider: Provider, node: NodeRow) -> Looked:
        account = await self._accounts.of(node.instance)
        view: NodeView = await provider.get(_handle(node))
        return Looked(view, account)


async def _terminate(provider: Provider, node: NodeRow) -> Terminated:
    return Terminated(await provider.terminate(_handle(node)))


def _handle(node: NodeRow) -> str:
    assert node.handle is not None, "only rows with a handle are looked at"
    return node.handle


def _read_url(file: Path) -> str:
    """The service's address as it is now, if it is up; a node that shares the file reads it again at each try."""
    with suppress(OSError):
        return file.read_text().strip() or _NOT_UP_YET
    return _NOT_UP_YET
