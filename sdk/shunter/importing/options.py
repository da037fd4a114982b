"""A launcher's own options, taken off the front of its command line as argparse would."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from shunter.errors import ShunterError


class Split(NamedTuple):
    """A command line taken apart: options by name (`nproc_per_node`), flags as `""`, and what comes behind them."""

    options: dict[str, str]
    rest: tuple[str, ...]


def split_options(argv: Sequence[str], flags: Iterable[str], short: dict[str, str]) -> Split:
    """The options in front of the program, with dashes as underscores.

    Args:
        flags: those that take no value.
        short: long names by short ones, such as `{"m": "module"}`.

    Raises:
        ShunterError: an option has no value, or there is no program.
    """
    options, flags, place = dict[str, str](), frozenset(flags), 0
    while place < len(argv) and argv[place].startswith("-") and argv[place] != "-":
        text = argv[place]
        place += 1
        if text == "--":
            break
        name, equals, value = text.lstrip("-").partition("=")
        name = short.get(name, name).replace("-", "_")
        if not equals and name not in flags:
            if place == len(argv):
                raise ShunterError(f"{text} has no value")
            value = argv[place]
            place += 1
        options[name] = value
    if place >= len(argv):
        raise ShunterError("the command line names no program", hint="the program stands behind the launcher's options")
    return Split(options, tuple(argv[place:]))
