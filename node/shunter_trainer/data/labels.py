"""Classes of samples: numbers as they are, or names that get numbers in alphabetical order."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np

from shunter_trainer.data.order import Indices
from shunter_trainer.failures import UserFault

_MOST_CLASSES = 1 << 20


class Labels:
    """Collects the class of each sample. Memory: eight bytes a sample."""

    def __init__(self, pointer: str, known: tuple[str, ...] | None) -> None:
        """`known`: the classes that there are, where other data decided that."""
        self._pointer = pointer
        self._known = known
        self._numbers = {name: number for number, name in enumerate(known or ())}
        self._named: bool | None = None
        self._values = array("q")

    def add(self, value: Any, where: str) -> None:
        """Raises: UserFault when it is no class, or none of the known ones."""
        if not isinstance(value, int | str):
            raise UserFault(
                self._pointer, f"{where} has {_described(value)} for a class; give a whole number or a name"
            )
        named = isinstance(value, str)
        if self._named is None:
            self._named = named
        if named != self._named:
            kinds = ("a number", "a name")
            raise UserFault(
                self._pointer, f"{where} has {kinds[named]} for a class, those before it {kinds[not named]}; use one"
            )
        self._values.append(self._name(value, where) if isinstance(value, str) else self._number(value, where))

    def finish(self) -> tuple[tuple[str, ...], Indices]:
        """The names of all classes, and the number of each sample's class."""
        values = np.array(self._values, dtype=np.int64)
        if self._known is not None:
            return self._known, values
        if not self._named:
            return tuple(str(number) for number in range(int(values.max(initial=-1)) + 1)), values
        names = sorted(self._numbers)
        renumbered = np.empty(len(names), dtype=np.int64)
        renumbered[[self._numbers[name] for name in names]] = np.arange(len(names))
        return tuple(names), renumbered[values]

    def _name(self, value: str, where: str) -> int:
        if self._known is None:
            return self._numbers.setdefault(value, len(self._numbers))
        if value not in self._numbers:
            shown = ", ".join(self._known[:8]) + (", …" if len(self._known) > 8 else "")
            raise UserFault(self._pointer, f"{where} has the class {value!r}, which no training sample has ({shown})")
        return self._numbers[value]

    def _number(self, value: int, where: str) -> int:
        number = int(value)
        if not 0 <= number < _MOST_CLASSES:
            raise UserFault(self._pointer, f"{where} has the class {number}; classes are counted from 0")
        if self._known is not None and number >= len(self._known):
            raise UserFault(
                self._pointer, f"{where} has the class {number}; the training data have {len(self._known)}, from 0 on"
            )
        return number


def _described(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
