"""What an operator does about a fault of a provider: one clause for each that an operator can do something about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from shunter_providers.contract import Fault, ProviderError

ADVICE: Final[Mapping[Fault, str]] = {
    Fault.AUTH: "check the credentials and the rights of the key",
    Fault.PAYMENT: "the account needs money, or a billing address",
    Fault.QUOTA: "ask the provider for a higher quota",
    Fault.RATE_LIMITED: "somebody else uses up the account's rate: wait",
    Fault.TRANSIENT: "the provider or the way to it is in trouble: it is tried again",
}


def with_advice(error: ProviderError) -> str:
    """The detail, and the way out where there is one; `INVALID` says it itself."""
    advice = ADVICE.get(error.fault)
    return f"{error.detail} - {advice}" if advice else error.detail
