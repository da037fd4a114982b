"""The `ssh` plugin: nodes are leases of slots on the team's own hosts.

A lease is a file on the host, good for one boot: hosts hold the truth, so any worker sees the same nodes. A node is
`running` as soon as it is leased; the core then bootstraps it over the endpoint that `get` names (`bootstrap: ssh`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

from shunter_providers.contract import (
    Capabilities,
    Fault,
    Identity,
    Instance,
    Intent,
    NodeCondition,
    NodeView,
    Offer,
    OfferQuery,
    ProviderError,
    Scope,
)
from shunter_providers.ssh.hosts import PoolHost
from shunter_providers.ssh.judging import make_offers
from shunter_providers.ssh.remembered import Remembered
from shunter_providers.ssh.settings import HOST_STRIDE, read_settings

ASK_WITHIN_S: Final = 20.0
_HANDLE: Final = re.compile(r"[a-z][a-z0-9-]{0,39}@[a-z0-9-]{1,40}")


class SshProvider:
    """A pool of hosts."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        bootstrap="ssh",
        idempotency="unique_name",
        readiness_deadline_s=300.0,
        scan_interval_s=5.0,
        create_timeout_s=25.0,
        bills=False,
        kinds=("metal",),
        runs_images=True,
        runs_images_by_docker=True,
        price_source="none",
        fabric="ethernet",
        shared_hosts=True,
        lease_s=None,
    )

    def __init__(self, instance: Instance) -> None:
        settings = read_settings(instance)
        self.settings = settings
        self._instance = instance
        self._remembered = Remembered(instance.data_dir, instance.name)
        self._hosts = {host.name: PoolHost(host, settings, instance.deployment) for host in settings.hosts}
        # The lease is the operator's choice, so each instance shadows what the class declares.
        vars(self)["capabilities"] = replace(type(self).capabilities, lease_s=settings.lease_s)

    async def whoami(self) -> Identity:
        """The pool's own name: whoever holds the keys of its hosts is the account."""
        return Identity(account=f"ssh:{self._instance.name}", limits={"hosts": sorted(self._hosts)})

    async def offers(self, query: OfferQuery) -> Sequence[Offer]:
        """What the hosts that can be used have.

        Raises:
            ProviderError: none can be used; says of each why.
        """
        looks = await asyncio.gather(*(host.look() for host in self._hosts.values()))
        found = [look.found for look in looks if look.found is not None]
        if not found:
            raise ProviderError(Fault.TRANSIENT, "; ".join(look.faults for look in looks), scope=Scope.ACCOUNT)
        return make_offers(found)

    async def create(self, intent: Intent) -> str:
        """Take the lease of the slots that the core reserved."""
        host = self._host_of_slots(intent)
        handle = f"{intent.token}@{host.host.name}"
        await asyncio.to_thread(self._remembered.add, handle)
        try:
            await host.call("take", ASK_WITHIN_S, **self._lease(host, intent))
        except ProviderError as exc:
            if not exc.may_have_created:
                await asyncio.to_thread(self._remembered.forget, handle)
                host.avoid(exc.detail)
            raise
        return handle

    async def get(self, handle: str) -> NodeView:
        """The lease as its host has it."""
        token, host = self._parts(handle)
        if host is None:
            return NodeView(handle, token, NodeCondition.GONE, "no such node")
        try:
            view = await host.call("view", ASK_WITHIN_S, token=token)
        except ProviderError as exc:
            if exc.fault is Fault.INVALID:
                raise
            return self._unseen(handle, host, exc)
        return self._view(host, view)

    async def list_owned(self, deployment: str) -> Sequence[NodeView]:
        """Every lease that this instance has for the deployment, host by host.

        Of a host that does not answer: the leases that were taken on it, as `unknown`.
        """
        answers = await asyncio.gather(*(self._list(host, deployment) for host in self._hosts.values()))
        return [view for answer in answers for view in answer]

    async def terminate(self, handle: str) -> bool:
        """End the agent and everything that it started, and give the slots back."""
        token, host = self._parts(handle)
        if host is None:
            return True
        await self._revoke(host, token)
        gone = bool((await host.call("end", ASK_WITHIN_S, token=token))["gone"])
        if gone:
            await asyncio.to_thread(self._remembered.forget, handle)
        return gone

    async def close(self) -> None:
        """Drop the connections; nothing ends on the hosts."""
        await asyncio.gather(*(host.close() for host in self._hosts.values()))

    async def _list(self, host: PoolHost, deployment: str) -> list[NodeView]:
        try:
            answer = await host.call("views", ASK_WITHIN_S, deployment=deployment, instance=self._instance.name)
        except ProviderError as exc:
            handles = await asyncio.to_thread(self._remembered.on_host, host.host.name, deployment)
            return [self._unseen(handle, host, exc) for handle in handles]
        return [self._view(host, view) for view in answer["nodes"]]

    async def _revoke(self, host: PoolHost, token: str) -> None:
        if host.host.authorized_keys:
            await host.call("revoke", ASK_WITHIN_S, token=token, authorized_keys=host.host.authorized_keys)

    def _lease(self, host: PoolHost, intent: Intent) -> dict[str, Any]:
        return {
            "token": intent.token,
            "deployment": intent.tags["deployment"],
            "instance": self._instance.name,
            "job": intent.tags.get("job", ""),
            "slot_kind": "gpu" if intent.offer.gpus else "cpu",
            "slots": [index % HOST_STRIDE for index in intent.slot_indices],
            "exclusive": host.host.exclusive,
            "private_address": host.host.private_address,
            "interface": host.host.interface,
            "keep_folders_s": self.settings.keep_folders_s,
            "keep_cache_s": self.settings.keep_cache_s,
        }

    def _host_of_slots(self, intent: Intent) -> PoolHost:
        numbers = {index // HOST_STRIDE for index in intent.slot_indices}
        for host in self._hosts.values():
            if numbers == {host.host.first_slot // HOST_STRIDE}:
                return host
        told = "its slots are those of no host, or of several" if numbers else "no slots were reserved for it"
        raise ProviderError(Fault.INVALID, f"the node {intent.token} cannot be placed: {told}", scope=Scope.OFFER)

    def _parts(self, handle: str) -> tuple[str, PoolHost | None]:
        """The token and the host; no host: the handle is none of this pool's.

        Raises:
            ProviderError: it names a host that was taken out of the settings.
        """
        token, _, name = handle.partition("@")
        host = self._hosts.get(name)
        if host is None and _HANDLE.fullmatch(handle):
            told = f"the host {name!r} is no longer in providers.{self._instance.name}.settings.hosts: put it back"
            raise ProviderError(Fault.TRANSIENT, f"{token}: {told}", scope=Scope.OFFER)
        return token, host

    def _view(self, host: PoolHost, view: Mapping[str, Any]) -> NodeView:
        return NodeView(
            handle=f"{view['token']}@{host.host.name}",
            token=view["token"],
            condition=NodeCondition(view["condition"]),
            reason=view["reason"],
            addresses={"machine": host.host.name, **view["addresses"]},
            ssh=self.settings.endpoint(host.host),
        )

    def _unseen(self, handle: str, host: PoolHost, exc: ProviderError) -> NodeView:
        """A node whose host does not answer: unknown, until that has lasted while others answer."""
        others = any(other.silent_s == 0.0 and other.answered_at for other in self._hosts.values() if other is not host)
        down = host.silent_s > self.settings.down_after_s and others
        token = handle.partition("@")[0]
        reason = f"its host has not answered for {host.silent_s:.0f} s: {exc.detail}"
        condition = NodeCondition.FAILED if down else NodeCondition.UNKNOWN
        return NodeView(
            handle, token, condition, reason, {"machine": host.host.name}, ssh=self.settings.endpoint(host.host)
        )
