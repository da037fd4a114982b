"""Plugins that hang or break the contract, as the core sees them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

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

INTENT = Intent("shn-a-b", {}, Offer("a", "here", "DE", Price()), Launch((), {}), rank=0, gang_size=1)
CALLS: dict[str, Callable[[Provider], Awaitable[object]]] = {
    "whoami": lambda provider: provider.whoami(),
    "offers": lambda provider: provider.offers(OfferQuery()),
    "create": lambda provider: provider.create(INTENT),
    "get": lambda provider: provider.get("handle"),
    "list_owned": lambda provider: provider.list_owned("abcdef"),
    "terminate": lambda provider: provider.terminate("handle"),
    "close": lambda provider: provider.close(),
}


class Odd:
    """Does the same, whatever it is asked."""

    capabilities: ClassVar[Capabilities] = Capabilities(create_timeout_s=0.0)

    def __init__(self, do: Callable[[], Awaitable[Any]]) -> None:
        self._do = do

    def __getattr__(self, verb: str) -> Callable[..., Awaitable[Any]]:
        return lambda *_: self._do()


def odd(do: Callable[[], Awaitable[Any]]) -> Any:
    return Odd(do)


async def _raise(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("verb", CALLS)
async def test_a_call_that_never_ends_is_ended_in_doubt(verb: str) -> None:
    provider: Any = bounded("odd", odd(lambda: asyncio.Event().wait()), within_s=0.05)

    with pytest.raises(ProviderError, match=f"{verb}: no answer") as ended:
        await CALLS[verb](provider)

    assert ended.value.fault is Fault.AMBIGUOUS
    assert ended.value.may_have_created is (verb == "create")


@pytest.mark.parametrize("verb", CALLS)
async def test_a_foreign_error_becomes_the_contracts_with_its_cause(verb: str) -> None:
    provider: Any = bounded("odd", odd(lambda: _raise(KeyError("instances"))))

    with pytest.raises(ProviderError, match=f"{verb}: KeyError: 'instances'") as broken:
        await CALLS[verb](provider)

    assert isinstance(broken.value.__cause__, KeyError)
    assert broken.value.may_have_created is (verb == "create")


async def test_the_contracts_own_error_passes_as_it_is() -> None:
    refused = ProviderError(Fault.QUOTA, "8 GPUs")
    provider: Any = bounded("odd", odd(lambda: _raise(refused)))

    with pytest.raises(ProviderError) as caught:
        await provider.create(INTENT)

    assert caught.value is refused
