import builtins
import math
from typing import Any

import pytest
from shunter.errors import ShunterError
from shunter.metrics import Metrics

PLAIN = Metrics.model_validate(
    {
        "series": [
            {"name": "loss", "steps": [10, 20, 30], "times_s": [1, 2, 3], "values": [3.0, 2.5, 2.0]},
            {"name": "val_loss", "steps": [20], "times_s": [2], "values": [2.75]},
        ]
    }
)
BINNED = Metrics.model_validate(
    {
        "series": [
            {"name": "loss", "steps": [10], "times_s": [1.0], "values": [3.0], "min": [2.0], "max": [4.0]},
        ]
    }
)


def test_rows_hold_every_step_that_any_metric_has() -> None:
    assert list(PLAIN.rows()) == [
        {"step": 10, "loss": 3.0, "val_loss": None},
        {"step": 20, "loss": 2.5, "val_loss": 2.75},
        {"step": 30, "loss": 2.0, "val_loss": None},
    ]


def test_bins_have_their_least_and_greatest_values_beside_them() -> None:
    assert list(BINNED.rows()) == [{"step": 10, "loss": 3.0, "loss_min": 2.0, "loss_max": 4.0}]


def test_a_frame_has_the_steps_as_index_and_a_column_for_each_metric() -> None:
    frame = PLAIN.to_pandas()

    assert list(frame.columns) == ["loss", "val_loss"]
    assert (frame.index.name, list(frame.index)) == ("step", [10, 20, 30])
    assert frame.loc[20].tolist() == [2.5, 2.75]
    assert math.isnan(frame.loc[30, "val_loss"])


def test_without_any_metric_the_frame_is_empty() -> None:
    frame = Metrics(series=()).to_pandas()

    assert (len(frame), frame.index.name) == (0, "step")


def test_without_pandas_the_way_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_pandas(name: str, *more: Any) -> Any:
        if name == "pandas":
            raise ImportError(name)
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", without_pandas)

    with pytest.raises(ShunterError, match="needs pandas") as raised:
        PLAIN.to_pandas()

    assert raised.value.hint == "pip install pandas"
