"""A DeepSpeed document against Hugging Face's `TrainingArguments`, which it must repeat, or leave to them by `auto`.

A program of this kind takes the document by `--deepspeed FILE`; it refuses the first difference at its start, on every
rank, after the model was loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from shunter_schemas.deepspeed.reading import AUTO, Path, is_count, is_number, is_on


class Difference(NamedTuple):
    """An argument, by its position, that contradicts the document at this path."""

    position: int
    path: Path
    detail: str


class Given(NamedTuple):
    """An argument as it stands on the command line."""

    position: int
    value: str | None
    """None: a switch without a value."""


def given_arguments(arguments: Sequence[str]) -> dict[str, Given]:
    """`--name value`, `--name=value` and `--switch` by name, with `_` for `-`; the last of each name counts."""
    found: dict[str, Given] = {}
    for index, argument in enumerate(arguments):
        if not argument.startswith("--"):
            continue
        name, separator, value = argument[2:].partition("=")
        following = arguments[index + 1] if index + 1 < len(arguments) else None
        if not separator and following is not None and not following.startswith("--"):
            found[_plain(name)] = Given(index, following)
        else:
            found[_plain(name)] = Given(index, value if separator else None)
    return found


def differences(document: Mapping[str, Any], arguments: Sequence[str], world_size: int | None) -> Iterator[Difference]:
    """Where the document says another value than the arguments. Only arguments that are given count."""
    given = given_arguments(arguments)
    for path, name in _SAME:
        if name in given and (value := _at(document, path)) not in (None, AUTO):
            argument = _read(given[name].value, value)
            if argument is not None and argument != value:
                detail = f"`--{name}` {_shown(argument)} contradicts `{_words(path)}` {_shown(value)}"
                yield Difference(
                    given[name].position, path, f'{detail}; give both the same value, or write "auto" there'
                )
    yield from _other_precision(document, given)
    yield from _total(document, given, world_size)


def _other_precision(document: Mapping[str, Any], given: Mapping[str, Given]) -> Iterator[Difference]:
    """`--fp16` where the document switches bf16 on, or the other way round."""
    for name, other in (("fp16", "bf16"), ("bf16", "fp16")):
        if name in given and is_on(document, other) and _read(given[name].value, True) is True:
            detail = f"`--{name}` contradicts `{other}.enabled` true"
            way_out = f'give `--{other}`, or write "auto" for both there'
            yield Difference(given[name].position, (other, "enabled"), f"{detail}; {way_out}")


def _total(document: Mapping[str, Any], given: Mapping[str, Given], world_size: int | None) -> Iterator[Difference]:
    total = document.get("train_batch_size")
    micro = _size(document, given, "train_micro_batch_size_per_gpu", "per_device_train_batch_size")
    steps = _size(document, given, "gradient_accumulation_steps", "gradient_accumulation_steps")
    if not is_count(total) or micro is None or steps is None or world_size is None:
        return
    named = next((name for name in ("per_device_train_batch_size", "gradient_accumulation_steps") if name in given), "")
    if named and total != micro * steps * world_size:
        product = f"{micro} on each of {world_size} ranks x {steps} steps of accumulation"
        detail = f"the arguments give {product}, {micro * steps * world_size}, and `train_batch_size` says {total}"
        yield Difference(given[named].position, ("train_batch_size",), f'{detail}; write "auto" there')


def _size(document: Mapping[str, Any], given: Mapping[str, Given], key: str, name: str) -> int | None:
    value = document.get(key)
    if value is not None and is_count(value):
        return int(value)
    if value not in (None, AUTO):
        return None
    argument: Any = 1 if name == "gradient_accumulation_steps" else None
    if name in given:
        argument = _read(given[name].value, 1)
    return int(argument) if is_count(argument) else None


def _at(document: Mapping[str, Any], path: Path) -> Any:
    found: Any = document
    for step in path:
        if isinstance(step, int):
            found = found[step] if isinstance(found, list) and step < len(found) else None
        else:
            found = found.get(step) if isinstance(found, Mapping) else None
    return found


def _read(text: str | None, like: Any) -> Any:
    """The argument as a value of the same kind as the document's; None where it cannot be read so."""
    if isinstance(like, bool):
        return {None: True, "true": True, "1": True, "false": False, "0": False}.get(text and text.lower())
    if not is_number(like) or text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return int(number) if number.is_integer() else number


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _words(path: Path) -> str:
    return ".".join(str(step) for step in path)


def _plain(name: str) -> str:
    return name.replace("-", "_")


_SAME: tuple[tuple[Path, str], ...] = (
    (("train_micro_batch_size_per_gpu",), "per_device_train_batch_size"),
    (("gradient_accumulation_steps",), "gradient_accumulation_steps"),
    (("gradient_clipping",), "max_grad_norm"),
    (("bf16", "enabled"), "bf16"),
    (("fp16", "enabled"), "fp16"),
    (("optimizer", "params", "lr"), "learning_rate"),
    (("optimizer", "params", "weight_decay"), "weight_decay"),
    (("optimizer", "params", "eps"), "adam_epsilon"),
    (("optimizer", "params", "betas", 0), "adam_beta1"),
    (("optimizer", "params", "betas", 1), "adam_beta2"),
    (("scheduler", "params", "warmup_max_lr"), "learning_rate"),
    (("scheduler", "params", "warmup_num_steps"), "warmup_steps"),
    (("scheduler", "params", "total_num_steps"), "max_steps"),
)
"""Paths of the document and the arguments that Hugging Face's trainer holds them to."""
