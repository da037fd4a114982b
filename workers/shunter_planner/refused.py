"""Accounts that make no nodes for anybody, as what a plan passes over for a while: a job waits, it does not end for
what another one met."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from shunter_providers.contract import Fault, Scope
from shunter_schemas.states import Reason

from shunter_planner.values import Block

_REASONS: Final[Mapping[str, Reason]] = {
    Fault.AUTH: Reason.PROVIDER_AUTH,
    Fault.PAYMENT: Reason.PROVIDER_PAYMENT,
}


def refused_blocks(standing: Mapping[str, Mapping[str, Any]]) -> list[Block]:
    """One for each refusal (`shunter_store.accounts.refusals`), within its reach."""
    return [_block(instance, told) for instance, told in standing.items() if told["fault"] in _REASONS]


def _block(instance: str, told: Mapping[str, Any]) -> Block:
    way_out = f"nothing is asked of {instance} until {told['until']}; sooner by: shunter providers --retry {instance}"
    return Block(
        instance=instance,
        scope=Scope(told["scope"]),
        reason=_REASONS[told["fault"]],
        detail=f"{told['detail']} (refused at {told['at']}; {way_out})",
        instance_type=str(told.get("instance_type", "")),
        region=str(told.get("region", "")),
        slug="account_refused",
    )
