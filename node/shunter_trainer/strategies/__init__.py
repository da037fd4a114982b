"""Strategies: how one training is spread over a gang. `strategy_for` is the only place that knows them all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shunter_trainer.failures import UserFault
from shunter_trainer.strategies.base import Strategy
from shunter_trainer.strategies.ddp import Ddp
from shunter_trainer.strategies.sharded import Fsdp, Hsdp


def _deepspeed(document: Any) -> Strategy:
    # Imports a second of modules, for those alone who ask for it.
    from shunter_trainer.strategies.deepspeed import deepspeed_strategy

    return deepspeed_strategy(document)


_STRATEGIES: dict[str, Callable[[Any], Strategy]] = {"ddp": Ddp, "fsdp": Fsdp, "hsdp": Hsdp, "deepspeed": _deepspeed}


def strategy_for(document: Any) -> Strategy:
    """The adapter for `strategy` of the document.

    Raises: UserFault when there is none yet.
    """
    maker = _STRATEGIES.get(document.kind)
    if maker is None:
        available = ", ".join(_STRATEGIES)
        raise UserFault("/strategy/kind", f"{document.kind!r} is not available yet (available: {available})")
    return maker(document)
