"""A plugin that answers junk is refused in words; an offer that cannot be is left out, and hides no other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from shunter_providers.bounded import bounded
from shunter_providers.contract import (
    Capabilities,
    Fault,
    Intent,
    Launch,
    Offer,
    OfferQuery,
    Price,
    Provider,
    ProviderError,
)


class Junk:
    """Answers whatever it is told to."""

    capabilities = Capabilities()

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def _say(self, *args: Any) -> Any:
        return self._answer

    whoami = offers = create = get = list_owned = terminate = close = _say


def held(answer: Any) -> Provider:
    junk: Any = Junk(answer)
    return bounded("acme", junk)


def an_intent(**options: Any) -> Intent:
    offer = Offer("a", "here", "DE", Price(gpu_usd_per_hour=1.0))
    return Intent("shn-a-b", {}, offer, Launch((), {}), rank=0, gang_size=1, options=options)


CALLS: list[Callable[[Provider], Awaitable[Any]]] = [
    lambda provider: provider.whoami(),
    lambda provider: provider.offers(OfferQuery()),
    lambda provider: provider.get("a"),
    lambda provider: provider.list_owned("d"),
    lambda provider: provider.terminate("a"),
]


@pytest.mark.parametrize("answer", [None, {"id": 1}, "yes", [1], 7])
@pytest.mark.parametrize("call", CALLS, ids=["whoami", "offers", "get", "list_owned", "terminate"])
async def test_an_answer_of_another_kind_is_an_error_and_never_an_empty_listing(
    call: Callable[[Provider], Awaitable[Any]], answer: Any
) -> None:
    with pytest.raises(ProviderError, match="answered") as refused:
        await call(held(answer))

    assert refused.value.fault is Fault.AMBIGUOUS
    assert not refused.value.may_have_created


@pytest.mark.parametrize("answer", [None, "", 7, "x" * 1001])
async def test_a_create_that_answers_no_handle_may_have_made_a_node(answer: Any) -> None:
    with pytest.raises(ProviderError, match="not a handle") as refused:
        await held(answer).create(an_intent())

    assert refused.value.may_have_created


@pytest.mark.parametrize("usd", [0.0, -1.0, float("nan"), float("inf")])
async def test_an_offer_without_a_sane_price_is_left_out_and_told(usd: float, caplog: pytest.LogCaptureFixture) -> None:
    bad = Offer("bad", "here", "DE", Price(gpu_usd_per_hour=usd), gpu_model="H100", gpus=1)
    good = Offer("good", "here", "DE", Price(gpu_usd_per_hour=1.0), gpu_model="H100", gpus=1)

    offers = await held([bad, good]).offers(OfferQuery())

    assert [offer.instance_type for offer in offers] == ["good"]
    assert "bad in here is left out" in caplog.text


async def test_an_option_that_the_plugin_does_not_declare_is_refused_before_it_is_asked() -> None:
    with pytest.raises(ProviderError, match=r"placement\.options\.acme\.qos: the plugin takes no options") as refused:
        await held("a-handle").create(an_intent(qos="long"))

    assert refused.value.fault is Fault.INVALID
    assert not refused.value.may_have_created
