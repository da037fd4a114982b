"""Reads a vendor's JSON as what it should be; whatever is not is refused with its place, and never guessed.

A number is finite and not negative, money is above 0: a price of 0, of NaN or of text would look like the best offer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn, TypeVar

from shunter_providers.contract import Fault, ProviderError

_T = TypeVar("_T")


class Fields:
    """A JSON object, and where it stood. `creates`: what is wrong with it may have made a node all the same.

    Raises:
        ProviderError: `AMBIGUOUS` when it creates, else `TRANSIENT`; from every method.
    """

    __slots__ = ("_creates", "_values", "_where")

    def __init__(self, value: object, where: str, *, creates: bool = False) -> None:
        self._where = where
        self._creates = creates
        if not isinstance(value, Mapping):
            self._refuse("", value, "an object")
        self._values: Mapping[str, Any] = value

    def __contains__(self, name: str) -> bool:
        """Whether it is there and not null."""
        return self._values.get(name) is not None

    def text(self, name: str, default: str | None = None) -> str:
        """A string that is not empty, or the default where there is none; numbers count, since ids often are some."""
        value = self._values.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if value is None or value == "":
            return self._missing(name, default, "text")
        return value if isinstance(value, str) else self._refuse(name, value, "text")

    def number(self, name: str, default: float | None = None) -> float:
        """A finite number of at least 0."""
        value = self._values.get(name)
        if value is None:
            return self._missing(name, default, "a number")
        number = _number(value)
        return number if number is not None else self._refuse(name, value, "a number of at least 0")

    def count(self, name: str, default: int | None = None) -> int:
        """A whole number of at least 0."""
        number = self.number(name, default)
        return int(number) if number == int(number) else self._refuse(name, number, "a whole number")

    def money(self, name: str) -> float:
        """An amount above 0."""
        number = self.number(name)
        return number if number > 0 else self._refuse(name, number, "a price above 0")

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false."""
        value = self._values.get(name, default)
        return value if isinstance(value, bool) else self._refuse(name, value, "true or false")

    def inside(self, name: str) -> Fields:
        """An object within; an absent one is empty."""
        value = self._values.get(name)
        return Fields({} if value is None else value, f"{self._where}.{name}", creates=self._creates)

    def items(self, name: str) -> list[Fields]:
        """The objects of a list. An absent list is refused: it must not be taken for an empty one."""
        value = self._values.get(name)
        if not isinstance(value, list):
            self._refuse(name, value, "a list")
        return [
            Fields(item, f"{self._where}.{name}[{index}]", creates=self._creates) for index, item in enumerate(value)
        ]

    def texts(self, name: str) -> list[str]:
        """The strings of a list; an absent list is empty."""
        value = self._values.get(name)
        if not isinstance(value, list | None) or not all(isinstance(item, str) for item in value or ()):
            self._refuse(name, value, "a list of text")
        return list(value or ())

    def named(self) -> Iterator[tuple[str, Fields]]:
        """The members of an object of objects."""
        for name, value in self._values.items():
            yield name, Fields(value, f"{self._where}.{name}", creates=self._creates)

    def raw(self, name: str) -> Any:
        """As it came."""
        return self._values.get(name)

    def _missing(self, name: str, default: _T | None, wanted: str) -> _T:
        return default if default is not None else self._refuse(name, None, wanted)

    def _refuse(self, name: str, value: object, wanted: str) -> NoReturn:
        shown = "nothing" if value is None else f"{type(value).__name__} {str(value)[:40]!r}"
        where = f"{self._where}.{name}" if name else self._where
        raise ProviderError(
            Fault.AMBIGUOUS if self._creates else Fault.TRANSIENT,
            f"{where}: {shown} where {wanted} should be",
            may_have_created=self._creates,
        )


def _number(value: object) -> float | None:
    """Text counts: several vendors write money so."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and number >= 0 else None
