"""The part of the stored job document that the trainer follows."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from shunter_schemas.batching import MICRO_SIZE, PLANNED
from shunter_schemas.strategies import DdpStrategy, Strategy
from shunter_schemas.training import TrainingWorkload

from shunter_trainer.failures import UserFault


@dataclass(frozen=True, slots=True)
class Task:
    """What to train and how to spread it."""

    workload: TrainingWorkload
    strategy: Any
    """One model of `shunter_schemas.strategies`."""
    digest: str
    """SHA-256 of the workload: a checkpoint says by it which training it belongs to."""
    micro_size_is_free: bool = False
    """Whether the plan chose the micro-batch, and not the user."""


def read_task(path: Path) -> Task:
    """Read the stored document; only `workload` and `strategy` concern the trainer.

    Raises: UserFault when the file is missing or is no training.
    """
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UserFault("/", f"the job document {path} cannot be read: {error}") from error
    workload = document.get("workload", {})
    if workload.get("kind") != "training":
        raise UserFault("/workload/kind", f"the trainer runs `training`, not {workload.get('kind')!r}")
    text = json.dumps(workload, sort_keys=True)
    try:
        return Task(
            workload=TrainingWorkload.model_validate_json(text),
            strategy=_strategy(document.get("strategy")),
            digest=hashlib.sha256(text.encode()).hexdigest(),
            micro_size_is_free=_is_free(document, MICRO_SIZE),
        )
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = "/".join(str(part) for part in first["loc"])
        raise UserFault(f"/workload/{place}", first["msg"]) from error


def _is_free(document: Any, pointer: str) -> bool:
    """By the plan's own list; where there was no plan, since the trainer was started by hand, by the document."""
    chosen = document.get(PLANNED)
    if chosen is not None:
        return pointer in chosen
    batch = document.get("workload", {}).get("batch") or {}
    return bool(batch.get("micro_size", "auto") == "auto")


def _strategy(document: Any) -> Any:
    # `auto` reaches a node only when the trainer is started by hand: the plan pins it otherwise.
    if document is None or document.get("kind") == "auto":
        return DdpStrategy(kind="ddp")
    if document.get("kind") == "ddp":
        return DdpStrategy.model_validate_json(json.dumps(document))
    adapter: TypeAdapter[Any] = TypeAdapter(Strategy)
    return adapter.validate_json(json.dumps(document))
