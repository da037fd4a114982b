"""Makes the one call of a step: within its time, and with every failure in the contract's words."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

from shunter_planner.values import offer_from_json
from shunter_providers.contract import Fault, Intent, Launch, NodeView, Provider, ProviderError, Scope
from shunter_providers.registry import Registry
from shunter_store.node.ledger import NodeRow

from shunter_workers.accounts import Accounts
from shunter_workers.decisions import (
    Action,
    Create,
    Created,
    Found,
    Look,
    Looked,
    Prove,
    Result,
    Search,
    Terminate,
    Terminated,
)
from shunter_workers.launching import Origin as Origin
from shunter_workers.launching import alone_s, home_boot_id, launch_file
from shunter_workers.packing import pack_launch
from shunter_workers.states.avoiding import avoided
from shunter_workers.view import View

if TYPE_CHECKING:
    from shunter_workers.channels.keys import JobKeys

_NOTHING: Final = Launch(argv=(), files={})

_log = logging.getLogger(__name__)


class Actor:
    """Calls providers for steps."""

    def __init__(self, registry: Registry, accounts: Accounts, origin: Origin, keys: JobKeys | None = None) -> None:
        """`keys` makes those of jobs whose nodes the core reaches by SSH; None: there are no such nodes."""
        self._registry = registry
        self._keys = keys
        self._accounts = accounts
        self._origin = origin

    async def act(self, action: Action, view: View, timeout_s: float) -> Result:
        """The call's answer, or the error; never raises anything but cancellation."""
        calls: Mapping[type, Callable[[Provider], Awaitable[Result]]] = {
            Create: lambda provider: self._create(provider, action, view),
            Search: lambda provider: self._search(provider, action.node),
            Terminate: lambda provider: _terminate(provider, action.node),
            Prove: lambda provider: self._look(provider, action.node),
            Look: lambda provider: self._look(provider, action.node),
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

    async def _create(self, provider: Provider, action: Action, view: View) -> Created:
        node, ends_in_s = action.node, action.ends_in_s if isinstance(action, Create) else None
        plan, over_ssh = view.plan, provider.capabilities.bootstrap == "ssh"
        await self._require_its_account(node)
        keys = await self._keys.of(node.job_id) if over_ssh and self._keys is not None else None
        image = view.document.environment.image
        launch = _NOTHING  # what the core brings over SSH does not go through the provider: neither tokens nor programs
        if not over_ssh:
            launch = pack_launch(launch_file(self._origin, node, provider.capabilities, image=image))
        intent = Intent(
            token=node.token,
            tags={"deployment": self._origin.deployment, "job": node.job_id, "name": view.job.name},
            offer=offer_from_json(node.offer),
            launch=launch,
            rank=node.rank,
            gang_size=plan.num_nodes,
            slots=plan.ranks_per_node,
            slot_indices=tuple(node.slot_indices),
            image=image,
            public_key=keys.login.public if keys is not None else None,
            host_key=keys.host.private if keys is not None else None,
            expires_at=None if ends_in_s is None else time.time() + ends_in_s,
            alone_s=alone_s(node, provider.capabilities),
            spared_boot_id=home_boot_id(),
            options=view.document.placement.options.get(node.instance, {}),
            avoid=avoided(view, node.instance),
        )
        return Created(await provider.create(intent))

    async def _require_its_account(self, node: NodeRow) -> None:
        """Other credentials may have been given since the row was written. What they made would be looked for in the
        account that the row names, not be found, and count as gone.

        Raises:
            ProviderError: they are not those of the row's account; nothing was called.
        """
        account = await self._accounts.of(node.instance)
        if account != node.account:
            detail = f"it was meant for account {node.account}, and the credentials are those of {account} by now"
            raise ProviderError(Fault.TRANSIENT, detail, scope=Scope.ACCOUNT)

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
