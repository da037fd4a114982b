"""What plugins over a REST API do alike: never a second node for a token, and an end that is an end.

A subclass gives `whoami`, `offers`, and four short calls: `_order`, `_look`, `_list`, `_end`.
"""

from __future__ import annotations

import hashlib
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from shunter_providers.cloud_kit.http import Api, CloudHttp
from shunter_providers.cloud_kit.naming import looks_like, token_of
from shunter_providers.cloud_kit.settings import CloudSettings
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
)

_FORGET_AFTER_S = 600.0


class RestCloud(ABC):
    """One account."""

    capabilities: ClassVar[Capabilities]
    handle_pattern: ClassVar[str]
    """The form of the vendor's ids; whatever has another was never given out, and gets into no URL."""

    def __init__(
        self, instance: Instance, api: Api, *, credential: str, account: str = "", times: CloudSettings | None = None
    ) -> None:
        """`account`: what the operator calls it, for vendors whose API does not tell. `times`: settings that change
        what the class declares."""
        if times is not None:
            object.__setattr__(self, "capabilities", times.adjusted(self.capabilities))  # of this instance alone
        self.instance = instance
        self.http = CloudHttp(instance, api, credential=credential)
        self._account = account or f"key-{hashlib.sha256(credential.encode()).hexdigest()[:12]}"
        self._made: dict[str, tuple[float, str]] = {}
        self._unseen: dict[str, float] = {}
        """Handles of nodes that the API has not shown yet, and when they were made."""

    @abstractmethod
    async def offers(self, query: OfferQuery) -> Sequence[Offer]:
        """See the contract."""

    @abstractmethod
    async def _order(self, intent: Intent) -> str:
        """Send the create call, once; the new node's handle."""

    @abstractmethod
    async def _look(self, handle: str) -> NodeView:
        """One node; `NOT_FOUND` where there is none."""

    @abstractmethod
    async def _list(self) -> Sequence[NodeView]:
        """Everything in the account, complete over all pages; what is not ours has no token."""

    @abstractmethod
    async def _end(self, handle: str) -> None:
        """Ask for the node's end; `NOT_FOUND` where there is none."""

    async def whoami(self) -> Identity:
        """Prove the credentials by the listing that everything depends on. The account is a digest of the key where the
        vendor tells none: another key of the same account looks like another account."""
        await self._list()
        return Identity(self._account)

    async def create(self, intent: Intent) -> str:
        """See the contract. A token that the cloud (or this process, which knows before listings do) has already is
        answered with its node."""
        known = self._remembered(intent.token) or await self._find(intent.token)
        if known is not None:
            return known
        handle = await self._order(intent)
        self._note_made(intent.token, handle)
        return handle

    async def get(self, handle: str) -> NodeView:
        """See the contract. One that this process has just made and the API does not show yet is not gone."""
        gone = NodeView(handle, None, NodeCondition.GONE, "no such node")
        if not looks_like(handle, self.handle_pattern):
            return gone
        try:
            view = await self._look(handle)
        except ProviderError as exc:
            if exc.fault is not Fault.NOT_FOUND:
                raise
            return NodeView(handle, None, NodeCondition.PENDING, "not shown yet") if self._may_appear(handle) else gone
        self._unseen.pop(handle, None)
        return view

    async def list_owned(self, deployment: str) -> Sequence[NodeView]:
        """See the contract."""
        return [
            view
            for view in await self._list()
            if token_of(view.token, deployment) and view.condition is not NodeCondition.GONE
        ]

    async def terminate(self, handle: str) -> bool:
        """See the contract. What the vendor accepts is not yet done: the node is looked at again. Nor is one gone that
        this process has just made and the API does not show yet: it would appear after its end."""
        if not looks_like(handle, self.handle_pattern):
            return True
        try:
            await self._end(handle)
        except ProviderError as exc:
            if exc.fault is not Fault.NOT_FOUND:
                raise
            return not self._may_appear(handle)
        self._unseen.pop(handle, None)
        return (await self.get(handle)).condition is NodeCondition.GONE

    async def close(self) -> None:
        """See the contract."""
        await self.http.close()

    async def _find(self, token: str) -> str | None:
        return next(
            (v.handle for v in await self._list() if v.token == token and v.condition is not NodeCondition.GONE), None
        )

    def _note_made(self, token: str, handle: str) -> None:
        """For subclasses with a `create` of their own: a node that the API may not show yet."""
        self._made[token] = (time.monotonic(), handle)
        self._unseen[handle] = time.monotonic()

    def _may_appear(self, handle: str) -> bool:
        made_at = self._unseen.get(handle)
        return made_at is not None and time.monotonic() - made_at < self.capabilities.visibility_delay_s

    def _remembered(self, token: str) -> str | None:
        now = time.monotonic()
        self._made = {name: made for name, made in self._made.items() if now - made[0] < _FORGET_AFTER_S}
        self._unseen = {one: at for one, at in self._unseen.items() if now - at < _FORGET_AFTER_S}
        made = self._made.get(token)
        return made[1] if made is not None and now - made[0] < self.capabilities.visibility_delay_s else None
