"""A job's metrics as rows, and as a pandas frame where pandas is installed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from shunter_schemas.api import MetricsAnswer

from shunter.errors import ShunterError

if TYPE_CHECKING:
    import pandas


class Metrics(MetricsAnswer):
    """Series of metrics by step."""

    def columns(self) -> dict[str, dict[int, float]]:
        """Values by step for each metric; bins have two more columns, `NAME_min` and `NAME_max`."""
        found: dict[str, dict[int, float]] = {}
        for series in self.series:
            parts = {"": series.values, "_min": series.min, "_max": series.max}
            for suffix, values in parts.items():
                if values is not None:
                    found[series.name + suffix] = dict(zip(series.steps, values, strict=True))
        return found

    def rows(self) -> Iterator[dict[str, float | None]]:
        """One row for each step that any metric has: `step`, then every column, None where there is no value."""
        columns = self.columns()
        for step in sorted({step for values in columns.values() for step in values}):
            yield {"step": step, **{name: values.get(step) for name, values in columns.items()}}

    def to_pandas(self) -> pandas.DataFrame:
        """A frame with the steps as index and a column for each metric.

        Raises:
            ShunterError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise ShunterError("a frame needs pandas, which is not installed", hint="pip install pandas") from error
        frame = pd.DataFrame({name: pd.Series(values, dtype="float64") for name, values in self.columns().items()})
        frame.index.name = "step"
        return frame.sort_index()
