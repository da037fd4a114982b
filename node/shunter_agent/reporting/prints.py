"""Metrics from what programs print anyway: the Hugging Face Trainer's dictionaries, `step 10: loss 2.1`, tqdm bars."""

from __future__ import annotations

import ast
import math
import re
from typing import Any, NamedTuple

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_STEP = re.compile(r"\b(?:global[ _]step|step|iter|iteration)s?\b\s*[:=#]?\s*\[?(\d+)(?:\s*/\s*(\d+))?", re.IGNORECASE)
_LOSS = re.compile(
    rf"\b((?:(?:train|training|val|valid|validation|eval|test)[ _]?)?loss)\b\s*[:=]?\s*({_NUMBER})", re.I
)
_OTHERS = re.compile(
    rf"\b(lr|learning[ _]rate|grad[ _]norm|mfu|ppl|perplexity|acc|accuracy)\b\s*[:=]?\s*({_NUMBER})\s*(%?)", re.I
)
_BAR = re.compile(r"^(?P<label>[^|]*?)\s*\d+%\|[^|]*\|\s*(?P<done>\d+)/(?P<total>\d+) \[")
_BARE_BAR = re.compile(r"^\s*(?P<done>\d+)/(?P<total>\d+) \[\d")
_TRAINING_LABEL = re.compile(r"^\s*$|train|epoch|step|iter", re.IGNORECASE)
_NAMES = {
    "train loss": "loss",
    "training loss": "loss",
    "val loss": "val_loss",
    "valid loss": "val_loss",
    "validation loss": "val_loss",
    "learning rate": "lr",
    "learning_rate": "lr",
}


class Printed(NamedTuple):
    """What a line told; `step` None: the line does not say, so it belongs to where the bar stands."""

    step: int | None
    total_steps: int | None
    values: dict[str, float]


def parse(line: str) -> Printed | None:
    """What the line tells of the training, or None."""
    if len(line) > 4096:
        return None
    text = line.strip()
    if text.startswith("{") and text.endswith("}"):
        return _dictionary(text)
    return _bar(line) or _sentence(text)


def _dictionary(text: str) -> Printed | None:
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    summary = "train_runtime" in found  # its `train_loss` is the mean of the whole training, no point of the curve
    values = {
        str(key) if summary else _name(str(key)): number
        for key, number in ((key, _finite(item)) for key, item in found.items())
        if number is not None
    }
    if not any("loss" in name for name in values):
        return None
    step = values.pop("step", None) if "step" in values else values.pop("global_step", None)
    return Printed(None if step is None else int(step), None, values)


def _bar(line: str) -> Printed | None:
    match = _BAR.match(line)
    if match is not None and not _TRAINING_LABEL.search(match["label"]):
        return None
    match = match or _BARE_BAR.match(line)
    if match is None or int(match["total"]) == 0:
        return None
    return Printed(int(match["done"]), int(match["total"]), {})


def _sentence(text: str) -> Printed | None:
    step = _STEP.search(text)
    if step is None:
        return None
    values = {_name(name): float(number) for name, number in _LOSS.findall(text)}
    if not values:
        return None
    for name, number, percent in _OTHERS.findall(text):
        values[_name(name)] = float(number) / 100 if percent else float(number)
    values = {name: value for name, value in values.items() if math.isfinite(value)}
    return Printed(int(step[1]), int(step[2]) if step[2] else None, values)


def _name(name: str) -> str:
    plain = " ".join(name.lower().split())
    return _NAMES.get(plain, _NAMES.get(plain.replace("_", " "), plain.replace(" ", "_")))


def _finite(value: Any) -> float | None:
    """The number, also when it was printed as text, as newer Trainers do."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
