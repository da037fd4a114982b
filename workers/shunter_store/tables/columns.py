"""The kit that `tables` is written with: the metadata, and short words for columns."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Column, ForeignKey, MetaData, String
from sqlalchemy.types import TypeEngine

metadata: Final = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def must(name: str, type_: TypeEngine[Any] | type[TypeEngine[Any]], *args: Any, **kwargs: Any) -> Column[Any]:
    """A column that always holds a value."""
    return Column(name, type_, *args, nullable=False, **kwargs)


def may(name: str, type_: TypeEngine[Any] | type[TypeEngine[Any]]) -> Column[Any]:
    """A column that may be empty."""
    return Column(name, type_, nullable=True)


def of_job() -> Column[str]:
    """The job that a row belongs to and goes with."""
    return must("job_id", String(40), ForeignKey("jobs.id", ondelete="CASCADE"))
