"""Plugins over a blocking client: one client a call, in a thread, with every end in the contract's words."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import pytest
from shunter_providers.contract import (
    Capabilities,
    Fault,
    Identity,
    Intent,
    Launch,
    NodeCondition,
    NodeView,
    Offer,
    OfferQuery,
    Price,
    Provider,
    ProviderError,
)
from shunter_providers.sync_provider import SyncProvider

OFFER = Offer("a", "here", "DE", Price(gpu_usd_per_hour=1.0))
INTENT = Intent("shn-a-b", {}, OFFER, Launch((), {}), rank=0, gang_size=1)


class Client:
    """Not for several threads, as libcloud's drivers are not."""

    def __init__(self, do: Callable[[], None]) -> None:
        self._thread = threading.get_ident()
        self._do = do

    def call(self) -> None:
        assert threading.get_ident() == self._thread
        self._do()


class Blocking(SyncProvider[Client]):
    capabilities: ClassVar[Capabilities] = Capabilities(create_timeout_s=5.3)
    call_within_s: ClassVar[float] = 0.3

    def __init__(self, do: Callable[[], None] = lambda: None, connecting: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._do = do
        self._connecting = connecting
        self.clients = 0

    def connect(self) -> Client:
        self._connecting()
        self.clients += 1
        return Client(self._do)

    def translate(self, error: Exception, *, creates: bool) -> ProviderError:
        return ProviderError(Fault.TRANSIENT, f"{type(error).__name__}: {error}", may_have_created=creates)

    def ask_identity(self, client: Client) -> Identity:
        client.call()
        return Identity("me")

    def ask_offers(self, client: Client, query: OfferQuery) -> Sequence[Offer]:
        client.call()
        return [OFFER]

    def make(self, client: Client, intent: Intent) -> str:
        client.call()
        return "one"

    def look(self, client: Client, handle: str) -> NodeView:
        client.call()
        return NodeView(handle, "shn-a-b", NodeCondition.RUNNING)

    def look_for_all(self, client: Client, deployment: str) -> Sequence[NodeView]:
        client.call()
        return [self.look(client, "one")]

    def end(self, client: Client, handle: str) -> bool:
        client.call()
        return True


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What a client that hangs waits for; opened at the end, so that its thread ends."""
    event = threading.Event()
    yield event
    event.set()


def refuse() -> None:
    raise RuntimeError("the vendor says no")


async def test_it_is_a_provider_and_each_call_has_a_client_of_its_own() -> None:
    provider = Blocking()

    answers = await asyncio.gather(
        provider.whoami(),
        provider.offers(OfferQuery()),
        provider.create(INTENT),
        provider.get("one"),
        provider.list_owned("a"),
        provider.terminate("one"),
    )

    await provider.close()
    assert isinstance(provider, Provider)
    assert answers[2] == "one"
    assert provider.clients == 6


async def test_the_loop_goes_on_while_a_client_blocks(gate: threading.Event) -> None:
    provider = Blocking(do=lambda: assert_opened(gate))
    asked = asyncio.create_task(provider.whoami())

    await asyncio.sleep(0)
    gate.set()

    assert (await asked).account == "me"
    await provider.close()


@pytest.mark.parametrize(("verb", "creates"), [("create", True), ("get", False)])
async def test_what_a_client_raises_is_translated_with_what_it_may_have_done(verb: str, creates: bool) -> None:
    provider = Blocking(do=refuse)

    with pytest.raises(ProviderError, match="RuntimeError: the vendor says no") as refused:
        await (provider.create(INTENT) if verb == "create" else provider.get("one"))

    await provider.close()
    assert refused.value.may_have_created is creates


async def test_a_client_that_cannot_be_made_has_made_nothing() -> None:
    provider = Blocking(connecting=refuse)

    with pytest.raises(ProviderError) as refused:
        await provider.create(INTENT)

    await provider.close()
    assert not refused.value.may_have_created


async def test_the_contracts_own_error_passes_as_it_is() -> None:
    def no_quota() -> None:
        raise ProviderError(Fault.QUOTA, "none left")

    provider = Blocking(do=no_quota)

    with pytest.raises(ProviderError) as refused:
        await provider.create(INTENT)

    await provider.close()
    assert refused.value.fault is Fault.QUOTA


@pytest.mark.parametrize(("verb", "fault", "unsure"), [("create", "ambiguous", True), ("get", "transient", False)])
async def test_a_client_that_hangs_is_given_up(gate: threading.Event, verb: str, fault: str, unsure: bool) -> None:
    provider = Blocking(do=lambda: assert_opened(gate))

    with pytest.raises(ProviderError, match="no answer within") as late:
        await (provider.create(INTENT) if verb == "create" else provider.get("one"))

    await provider.close()
    assert (late.value.fault, late.value.may_have_created) == (Fault(fault), unsure)


def assert_opened(gate: threading.Event) -> None:
    assert gate.wait(20)
