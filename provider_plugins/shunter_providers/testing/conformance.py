"""The conformance kit: what every plugin must keep, as a pytest class that its author inherits.

    class TestAcme(ProviderConformance):
        @pytest.fixture
        def provider(self) -> Provider:
            return AcmeProvider(Instance("acme", "acme", {"api_key": "…"}))

        @pytest.fixture
        def launch(self) -> Launch:
            return Launch(argv=("true",), files={})

Needs pytest and pytest-asyncio. Nodes are really made: against a real account this costs money. After each test
everything of its deployment is terminated, and what is left then fails the test.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import ClassVar, Final, Literal, TypeVar

import pytest
import pytest_asyncio
from shunter_schemas.ids import new_deployment_id, new_node_token

from shunter_providers.contract import (
    CONTRACT_VERSION,
    Intent,
    Launch,
    NodeCondition,
    NodeView,
    Offer,
    OfferQuery,
    Provider,
    ProviderError,
    ShowsConsole,
)
from shunter_providers.jurisdictions import is_jurisdiction

Profile = Literal["vm", "container", "batch"]

_Kit = TypeVar("_Kit")
_GONE_WITHIN_S: Final = 30.0
_KINDS: Final = {"vm": ("vm", "metal"), "container": ("container",), "batch": ("batch",)}
_BOOTSTRAPS: Final = ("launch", "user_data", "ssh", "exec")
_IDEMPOTENCIES: Final = ("token", "unique_name", "search_only")


def runs_in_a_loop(kit: type[_Kit]) -> type[_Kit]:
    """Mark a class's own coroutine tests, so that they run whatever mode pytest-asyncio is in."""
    for name, function in vars(kit).items():
        if name.startswith("test_") and inspect.iscoroutinefunction(function):
            pytest.mark.asyncio(function)
    return kit


@runs_in_a_loop
class ProviderConformance:
    """Fixtures to give: `provider`, `launch`. Those below may be overridden."""

    profile: ClassVar[Profile] = "vm"
    """`batch`: a node may wait in a queue for as long as it likes."""

    @pytest.fixture
    def deployment(self) -> str:
        """A deployment of this test's own."""
        return new_deployment_id()

    @pytest.fixture
    def unknown_handle(self, deployment: str) -> str:
        """A handle in the plugin's own form that was never given out."""
        return new_node_token(deployment)

    @pytest_asyncio.fixture
    async def offer(self, provider: Provider) -> Offer:
        """What the test's nodes are made of."""
        return (await provider.offers(OfferQuery()))[0]

    @pytest_asyncio.fixture
    async def intent(self, deployment: str, offer: Offer, launch: Launch) -> Intent:
        """One node."""
        return make_intent(deployment, offer, launch)

    @pytest_asyncio.fixture(autouse=True)
    async def _leave_nothing(self, provider: Provider, deployment: str) -> AsyncIterator[None]:
        yield
        await terminate_all(provider, deployment)
        await provider.close()

    async def test_it_speaks_this_version_of_the_contract(self, provider: Provider) -> None:
        assert isinstance(provider, Provider)
        assert provider.capabilities.contract_version == CONTRACT_VERSION

    async def test_what_it_declares_is_of_the_contracts_words(self, provider: Provider) -> None:
        declared = provider.capabilities

        assert declared.bootstrap in _BOOTSTRAPS
        assert declared.idempotency in _IDEMPOTENCIES
        assert {"on_demand", "spot", "reserved"} >= set(declared.capacities)
        assert declared.fabric in ("none", "ethernet", "rdma")
        assert not declared.bills or declared.price_source in ("live", "catalogue", "mixed")
        assert all(rate.calls > 0 and rate.per_s > 0 and rate.kind in ("any", "create") for rate in declared.pacing)

    async def test_it_names_the_account_of_its_credentials(self, provider: Provider) -> None:
        first = await provider.whoami()
        second = await provider.whoami()

        assert first.account
        assert first.account == second.account

    async def test_its_offers_are_sane(self, provider: Provider) -> None:
        offers = await provider.offers(OfferQuery())

        declared = provider.capabilities

        assert offers
        kinds = [(offer.instance_type, offer.region, offer.capacity) for offer in offers]
        assert len(kinds) == len(set(kinds))
        for offer in offers:
            assert offer.gpus > 0 or offer.cpu_slots > 0
            assert (offer.gpu_model is None) == (offer.gpus == 0)
            assert (offer.price.usd_per_hour > 0) == declared.bills
            assert offer.price.billed == declared.bills
            assert offer.price.live or offer.price.as_of
            assert is_jurisdiction(offer.jurisdiction)
            assert offer.capacity in declared.capacities
            assert offer.kind in declared.kinds
            assert offer.kind in _KINDS[self.profile]

    async def test_creating_a_node_twice_makes_one(self, provider: Provider, deployment: str, intent: Intent) -> None:
        first = await provider.create(intent)
        second = await provider.create(intent)

        assert first == second
        assert [view.handle for view in await listed(provider, deployment, 1)] == [first]

    async def test_creating_a_node_twice_at_once_makes_one(
        self, provider: Provider, deployment: str, intent: Intent
    ) -> None:
        if provider.capabilities.idempotency == "search_only":
            pytest.skip("this cloud makes twins; the core finds and ends them")

        handles = await asyncio.gather(provider.create(intent), provider.create(intent))

        assert len(set(handles)) == 1
        assert [view.handle for view in await listed(provider, deployment, 1)] == [handles[0]]

    async def test_a_created_node_is_found_by_its_token(
        self, provider: Provider, deployment: str, intent: Intent
    ) -> None:
        handle = await provider.create(intent)

        views = await listed(provider, deployment, 1)

        assert [(view.handle, view.token) for view in views] == [(handle, intent.token)]

    async def test_a_created_node_comes_up(self, provider: Provider, intent: Intent) -> None:
        handle = await provider.create(intent)
        if self.profile == "batch" and (await provider.get(handle)).condition is NodeCondition.QUEUED:
            pytest.skip("it waits in a queue, which has no deadline")

        view = await wait_for(provider, handle, NodeCondition.RUNNING, provider.capabilities.readiness_deadline_s)

        assert view.handle == handle
        assert view.token == intent.token
        assert set(view.addresses) <= {"public", "private", "interface", "machine"}
        if provider.capabilities.bootstrap == "ssh":
            assert view.ssh is not None
            assert view.ssh.host
            assert 0 < view.ssh.port < 65536

    async def test_a_console_is_text_where_one_is_declared(self, provider: Provider, intent: Intent) -> None:
        if not provider.capabilities.console:
            return
        assert isinstance(provider, ShowsConsole)
        handle = await provider.create(intent)
        await wait_for(provider, handle, NodeCondition.RUNNING, provider.capabilities.readiness_deadline_s)

        told = await provider.console(handle)

        assert isinstance(told, str)

    async def test_nodes_of_another_deployment_are_not_listed(
        self, provider: Provider, deployment: str, intent: Intent
    ) -> None:
        await provider.create(intent)
        await listed(provider, deployment, 1)

        assert list(await provider.list_owned(new_deployment_id())) == []

    async def test_an_unknown_handle_is_gone(self, provider: Provider, unknown_handle: str) -> None:
        view = await provider.get(unknown_handle)

        assert view.condition is NodeCondition.GONE

    async def test_a_terminated_node_is_gone_and_no_longer_listed(
        self, provider: Provider, deployment: str, intent: Intent
    ) -> None:
        handle = await provider.create(intent)

        await until_terminated(provider, handle)

        assert (await provider.get(handle)).condition is NodeCondition.GONE
        assert list(await listed(provider, deployment, 0)) == []

    async def test_terminating_twice_is_as_good_as_once(self, provider: Provider, intent: Intent) -> None:
        handle = await provider.create(intent)
        await until_terminated(provider, handle)

        assert await provider.terminate(handle) is True

    async def test_terminating_an_unknown_handle_is_done_already(self, provider: Provider, unknown_handle: str) -> None:
        assert await provider.terminate(unknown_handle) is True

    @pytest.mark.parametrize("handle", ["", "..", "../../etc", "a b", "\u00e9", "x" * 5000], ids=range(6))
    async def test_only_the_contracts_error_escapes(self, provider: Provider, handle: str) -> None:
        for call in (lambda: provider.get(handle), lambda: provider.terminate(handle)):
            await _answers_or_refuses(call)


def make_intent(deployment: str, offer: Offer, launch: Launch) -> Intent:
    """An intent for one node with one rank."""
    token = new_node_token(deployment)
    return Intent(
        token=token,
        tags={"deployment": deployment, "job": "job_conformance"},
        offer=offer,
        launch=launch,
        rank=0,
        gang_size=1,
        slots=1,
        slot_indices=tuple(offer.slot_indices[:1]) or (0,),
    )


async def wait_for(provider: Provider, handle: str, condition: NodeCondition, timeout_s: float) -> NodeView:
    """The node as soon as it is so."""
    give_up_at = time.monotonic() + timeout_s
    while (view := await provider.get(handle)).condition is not condition:
        if time.monotonic() > give_up_at:
            pytest.fail(f"{handle} is {view.condition} ({view.reason}), not {condition}, after {timeout_s:g} s")
        await asyncio.sleep(0.02)
    return view


async def until_terminated(provider: Provider, handle: str) -> None:
    """Ask for the node's end until the provider says that it is gone."""
    give_up_at = time.monotonic() + _GONE_WITHIN_S
    while not await provider.terminate(handle):
        if time.monotonic() > give_up_at:
            pytest.fail(f"{handle} is not gone {_GONE_WITHIN_S:g} s after it was terminated")
        await asyncio.sleep(0.02)


async def listed(provider: Provider, deployment: str, count: int) -> Sequence[NodeView]:
    """The deployment's nodes as soon as the listing shows so many: within the delay that the plugin declares."""
    give_up_at = time.monotonic() + provider.capabilities.visibility_delay_s + 1.0
    while len(views := await provider.list_owned(deployment)) != count:
        if time.monotonic() > give_up_at:
            pytest.fail(f"{len(views)} nodes are listed, not {count}: {views}")
        await asyncio.sleep(0.02)
    return views


async def _answers_or_refuses(call: Callable[[], Awaitable[NodeView | bool]]) -> None:
    try:
        answer = await call()
    except ProviderError:
        return
    assert answer is True or (isinstance(answer, NodeView) and answer.condition is NodeCondition.GONE)


async def terminate_all(provider: Provider, deployment: str) -> None:
    for view in await provider.list_owned(deployment):
        await until_terminated(provider, view.handle)
    await listed(provider, deployment, 0)
