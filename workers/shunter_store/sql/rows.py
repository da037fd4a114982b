"""Turns selected rows into frozen dataclasses: the fields name the columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any, TypeVar

from sqlalchemy import Column, Row, Table

R = TypeVar("R")


def columns_of(cls: type[Any], table: Table) -> list[Column[Any]]:
    """The columns that fill the fields of `cls`, in the order of the fields."""
    return [table.c[field.name] for field in fields(cls)]


def all_of(cls: type[R], rows: Iterable[Row[Any]]) -> list[R]:
    """One object a row of a select over `columns_of(cls, …)`."""
    make: Callable[..., R] = cls
    return [make(*row) for row in rows]
