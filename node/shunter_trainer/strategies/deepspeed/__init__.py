"""DeepSpeed: ZeRO 0 to 3 behind the same interface as every other strategy.

__init__ -> replicated (stage 0), sharded (1 to 3) -> library, pieces, shards, partition, optimizers
"""

from __future__ import annotations

from shunter_schemas.strategies import DeepSpeedStrategy

from shunter_trainer.strategies.base import Strategy
from shunter_trainer.strategies.deepspeed.replicated import Replicated
from shunter_trainer.strategies.deepspeed.sharded import Sharded


def deepspeed_strategy(document: DeepSpeedStrategy) -> Strategy:
    """The adapter for this stage of ZeRO."""
    return Replicated(document) if document.zero_stage == 0 else Sharded(document)
