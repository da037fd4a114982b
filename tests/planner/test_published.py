"""How rows of published runs are read: what words mean, and that a row nobody can read is no reason to stop."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from support.published import FOLDER, LIMITS, POINTS, read_rows

ROW = {
    "model": "Llama-3.1-8B",
    "params": "8030261248",
    "layers": "32",
    "hidden": "4096",
    "heads": "32",
    "seq": "8192",
    "micro_batch": "2",
    "global_batch": "16",
    "gpus": "8",
    "gpu_type": "h100_80gb",
    "strategy": "FSDP2+compile",
    "precision": "bf16",
    "act_ckpt": "selective",
    "tokens_per_s_per_gpu": "5762",
    "mfu": "",
    "peak_mem_gib": "",
    "source": "pytorch/torchtitan benchmarks/llama3_h100_202412_torchtitan.md",
}


def read(tmp_path: Path, *rows: dict[str, str]) -> tuple[list[Any], list[Any]]:
    path = tmp_path / "rows.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)))
        writer.writeheader()
        writer.writerows(rows)
    found: tuple[list[Any], list[Any]] = read_rows(path)
    return found


def test_every_row_of_ours_is_read() -> None:
    for name, points in (("reference_points.csv", POINTS), ("out_of_memory.csv", LIMITS)):
        read_, unread = read_rows(FOLDER / name)

        assert len(read_) == len(points) > 10
        assert unread == []


@pytest.mark.parametrize(
    ("page", "loss"),
    [
        ("torchtitan llama3_h100_202412_torchtitan.md", "eager"),
        ("torchtitan asyncTP_llama3_h100_2025-06_torchtitan.md", "compiled"),
        ("torchtitan llama3_202503.md", "eager"),
        ("torchtitan llama3_2026-01.md", "compiled"),
        ("torchtitan run 20251 of a page without a date", "eager"),
        ("mosaicml/llm-foundry README.md of 2025-06", "fused"),
    ],
)
def test_how_the_loss_was_made_is_told_by_trainer_and_date(tmp_path: Path, page: str, loss: str) -> None:
    points, _ = read(tmp_path, ROW | {"source": page})

    assert points[0].recipe.loss == loss


def test_a_row_that_says_its_loss_is_believed(tmp_path: Path) -> None:
    points, _ = read(tmp_path, ROW | {"loss": "compiled"})

    assert points[0].recipe.loss == "compiled"


def test_the_width_of_the_feed_forward_part_follows_from_the_parameters(tmp_path: Path) -> None:
    small = {"model": "Llama-3.2-1B", "params": "1235814400", "layers": "16", "hidden": "2048"}

    points, unread = read(tmp_path, ROW, ROW | small)

    assert unread == []
    assert [point.shape.ffn for point in points] == [14336, 8192]
    assert [point.shape.parameters for point in points] == [8030261248, 1235814400]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"gpu_type": "h100"}, "gpu_type 'h100' is not of the form"),
        ({"gpus": ""}, "gpus '' is not a positive number"),
        ({"seq": "-1"}, "seq '-1' is not"),
        ({"layers": "nan"}, "layers 'nan' is not"),
        ({"model": "Gemini"}, "of no family that is known"),
        ({"params": "1000"}, "fewer than"),
        ({"strategy": "magic"}, "strategy 'magic' is none"),
        ({"act_ckpt": "sometimes"}, "act_ckpt 'sometimes' is none"),
        ({"loss": "vague"}, "loss 'vague' is none"),
    ],
)
def test_a_row_that_cannot_be_read_is_told_of_and_the_others_are_read(
    tmp_path: Path, changed: dict[str, str], told: str
) -> None:
    points, unread = read(tmp_path, ROW, ROW | changed, ROW)

    assert len(points) == 2
    assert [(row.line, told in row.why) for row in unread] == [(3, True)], unread


def test_a_file_without_a_column_is_told_of_and_does_not_raise(tmp_path: Path) -> None:
    points, unread = read(tmp_path, {name: value for name, value in ROW.items() if name != "strategy"})

    assert points == []
    assert "there is no column 'strategy'" in unread[0].why


def test_short_and_long_rows_do_not_raise(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(",".join(ROW) + "\n" + "Llama-3.1-8B,8030261248\n" + ",".join(ROW.values()) + ",more,and more\n")

    points, unread = read_rows(path)

    assert (len(points), len(unread)) == (1, 1)


def test_a_run_that_ran_out_of_memory_says_so_in_the_place_of_its_figures(tmp_path: Path) -> None:
    rows = [ROW | {"tokens_per_s_per_gpu": "OOM"}, ROW | {"peak_mem_gib": "out of memory"}, ROW | {"mfu": "room"}]

    points, _ = read(tmp_path, *rows)

    assert [point.ran_out for point in points] == [True, True, False]
