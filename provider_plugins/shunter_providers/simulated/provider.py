"""The `simulated` plugin: the contract's verbs over the books of a cloud that does not exist."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeVar, cast

from shunter_providers import contract
from shunter_providers.contract import (
    Capabilities,
    Identity,
    Instance,
    Intent,
    NodeCondition,
    NodeView,
    Offer,
    OfferQuery,
    ProviderError,
    Scope,
    SelfStop,
)
from shunter_providers.simulated import faults, making, market
from shunter_providers.simulated.books import Books, Page
from shunter_providers.simulated.clock import CloudClock
from shunter_providers.simulated.faults import Counts, Kind, Rule, Verb
from shunter_providers.simulated.fleet.keeper import Keeper
from shunter_providers.simulated.hypervisor import Hypervisor
from shunter_providers.simulated.settings import read_settings

_T = TypeVar("_T")


class _Met(NamedTuple):
    """A call that was written down, and the rule that strikes it."""

    number: int
    rule: Rule | None

    def is_hit_by(self, kind: Kind) -> bool:
        return self.rule is not None and self.rule.fault is kind


class SimulatedProvider:
    """One account of a simulated cloud."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        bootstrap="launch",
        idempotency="search_only",
        capacities=("on_demand", "spot"),
        self_stop=SelfStop.ENDS_BILLING,
        power_off="kill -TERM $PPID",  # the agent, whose machine is made up
        visibility_delay_s=2.0,
        readiness_deadline_s=60.0,
        scan_interval_s=2.0,
        verifies=False,
        create_timeout_s=10.0,
        bills=True,
        shares_file_system=True,
    )

    def __init__(self, instance: Instance) -> None:
        self._settings = read_settings(instance)
        declared = replace(self.capabilities, runs_images=self._settings.runs_images)
        object.__setattr__(self, "capabilities", declared)  # of this instance alone
        home = Path(instance.data_dir) / "simulated"
        name = self._settings.cloud or instance.name
        self.books = Books(home / f"{name}.sqlite")
        self._clock = CloudClock(home, name)
        self._script = home / f"{name}.faults.json"
        self._hypervisor = Hypervisor(self.books, home / f"{name}.nodes", self._settings.spot_notice_s)
        self._keeper = Keeper(home, name, self._settings)

    async def whoami(self) -> Identity:
        """The account of the settings."""
        await self._call("whoami")
        return Identity(self._settings.account, {"gpus": self._settings.quota_gpus})

    async def offers(self, query: OfferQuery) -> Sequence[Offer]:
        """Every type in every region, at the prices and with the capacity of this moment."""
        await self._call("offers")
        at = self._clock.now()
        taken = await self._in_books(lambda page: page.taken(at))
        return market.make_offers(self._settings, taken, at)

    async def create(self, intent: Intent) -> str:
        """Write a node down. A token that the cloud shows already is answered with its node."""
        met, handles = await self._do(
            "create", (intent.token, intent.offer.region), lambda page, met: self._made(page, intent, met)
        )
        await self._tend()
        _lose_reply(met, may_have_created=True)
        if met.is_hit_by(Kind.HALF_MADE):
            detail = "500 the node could not be finished"
            raise ProviderError(contract.Fault.TRANSIENT, detail, may_have_created=True)
        return handles[-1]

    async def get(self, handle: str) -> NodeView:
        """The node as the cloud sees it now."""
        met = await self._call("get", handle)
        await self._tend()
        at = self._clock.now()
        entry = await self._in_books(lambda page: page.entry(handle))
        _lose_reply(met)
        if entry is None or at < entry.visible_at:
            return NodeView(handle, None, NodeCondition.GONE, "no such node")
        return entry.view(at)

    async def list_owned(self, deployment: str) -> Sequence[NodeView]:
        """Nodes and left-over disks of the deployment in this account."""
        await self._tend()
        met, views = await self._do("list_owned", (deployment, None), lambda page, _: self._shown(page, deployment))
        _lose_reply(met)
        return views

    async def terminate(self, handle: str) -> bool:
        """End a node or a disk."""
        met, gone = await self._do("terminate", (handle, None), lambda page, met: self._ended(page, handle, met))
        await self._tend()
        _lose_reply(met)
        return gone

    async def close(self) -> None:
        """Nothing is held open."""

    def _made(self, page: Page, intent: Intent, met: _Met) -> list[str]:
        at = self._clock.now()
        known = [entry.handle for entry in page.by_token(intent.token) if entry.exists(at) and entry.visible_at <= at]
        if known and not met.is_hit_by(Kind.TWIN):
            return known
        making.require_room(self._settings, page, intent, at)
        entry = making.make_node(self._settings, intent, met.number, at, met.rule)
        if met.is_hit_by(Kind.HALF_MADE):
            entry = making.make_disk(entry, met.number, at)
        page.add(entry)
        if met.is_hit_by(Kind.TWIN) and not known:
            number = page.note_call(at, self._settings.account, "create", intent.token)
            page.add(making.make_node(self._settings, intent, number, at, None))
        return [entry.handle]

    def _shown(self, page: Page, deployment: str) -> list[NodeView]:
        return page.shown(deployment, self._settings.account, self._clock.now())

    def _ended(self, page: Page, handle: str, met: _Met) -> bool:
        at = self._clock.now()
        entry = page.entry(handle)
        if entry is None or not entry.exists(at):
            return True
        if entry.asked_at is None:
            stuck_s = met.rule.delay_s if met.rule is not None and met.is_hit_by(Kind.STUCK) else 0.0
            page.change(handle, asked_at=at, stuck_until=at + stuck_s)
            if stuck_s == 0.0:
                page.change(handle, gone_at=at + self._settings.terminate_s)
            if met.is_hit_by(Kind.LEFT_OVER):
                page.add(making.make_disk(entry, met.number, at))
        elif entry.gone_at > at and entry.stuck_until <= at:
            page.change(handle, gone_at=min(entry.gone_at, at + self._settings.terminate_s))
        now = page.entry(handle)
        return now is None or not now.exists(self._clock.now())

    async def _call(self, verb: Verb, subject: str = "", region: str | None = None) -> _Met:
        """Write the call down and let the fault script have it.

        Raises:
            ProviderError: the script refuses the call.
        """
        met, _ = await self._do(verb, (subject, region), lambda page, met: None)
        return met

    async def _do(self, verb: Verb, what: tuple[str, str | None], work: Callable[[Page, _Met], _T]) -> tuple[_Met, _T]:
        """Write the call down, let the fault script have it, and do its work: at once where no rule strikes it.

        Raises:
            ProviderError: the script or the work refuses the call.
        """

        def attempt(page: Page, met: _Met) -> _T | ProviderError:
            try:
                return work(page, met)
            except ProviderError as refused:  # the call was made, and stays written down
                return refused

        def call(page: Page) -> tuple[_Met, _T | ProviderError | None]:
            rules = faults.read_script(self._script, self._settings.faults)
            met = self._meet(page, rules, verb, what)
            return met, None if met.rule is not None else attempt(page, met)

        met, done = await self._in_books(call)
        if met.rule is not None:
            refused = faults.refusal(met.rule)
            if refused is not None:
                raise refused
            if met.rule.fault is Kind.HANG:
                await asyncio.Event().wait()
            if met.rule.fault is Kind.SLOW:
                await asyncio.sleep(met.rule.delay_s)
            done = await self._in_books(lambda page: attempt(page, met))
        if isinstance(done, ProviderError):
            raise done
        return met, cast(_T, done)

    def _meet(self, page: Page, rules: Sequence[Rule], verb: Verb, what: tuple[str, str | None]) -> _Met:
        subject, region = what
        number = page.note_call(self._clock.now(), self._settings.account, verb, subject)
        script = faults.digest(rules)
        for position, rule in enumerate(rules):
            if not faults.fits(rule, verb, region):
                continue
            counts = page.counts(script, position)
            hit = faults.strikes(rule, counts, market.uniform(self._settings.seed, "fault", position, number))
            page.count(script, position, Counts(counts.met + 1, counts.struck + hit))
            if hit:
                page.note_fault(number, rule.fault)
                return _Met(number, rule)
        return _Met(number, None)

    async def _tend(self) -> None:
        if self._settings.nodes == "agents":
            await self._hypervisor.tend(self._clock.now())
        elif self._settings.nodes == "fleet":
            await self._keeper.tend()

    async def _in_books(self, work: Callable[[Page], _T]) -> _T:
        def run() -> _T:
            with self.books.writing() as page:
                return work(page)

        try:
            return await asyncio.to_thread(run)
        except (OSError, sqlite3.Error) as exc:
            raise ProviderError(contract.Fault.TRANSIENT, str(exc), scope=Scope.ACCOUNT) from exc


def _lose_reply(met: _Met, *, may_have_created: bool = False) -> None:
    if met.is_hit_by(Kind.LOST_REPLY):
        detail = "the connection was reset before the answer"
        raise ProviderError(contract.Fault.AMBIGUOUS, detail, may_have_created=may_have_created)
