"""Metrics from usual prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from shunter_agent.keeping.tuning import Tuning
from shunter_agent.reporting.metrics import Feed, PrintTail
from shunter_agent.reporting.prints import Printed, parse


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "{'loss': 1.25, 'grad_norm': 0.5, 'learning_rate': 5e-05, 'epoch': 0.1}",
            Printed(None, None, {"loss": 1.25, "grad_norm": 0.5, "lr": 5e-05, "epoch": 0.1}),
        ),
        ("{'loss': '1.25', 'learning_rate': '5e-05'}", Printed(None, None, {"loss": 1.25, "lr": 5e-05})),
        ("{'train_runtime': 9.5, 'train_loss': 2.0}", Printed(None, None, {"train_runtime": 9.5, "train_loss": 2.0})),
        ("{'train_loss': 2.0, 'step': 40}", Printed(40, None, {"loss": 2.0})),
        ("{'eval_loss': 2.0, 'step': 40}", Printed(40, None, {"eval_loss": 2.0})),
        ("step 10: train loss 2.1000, val loss 2.2000", Printed(10, None, {"loss": 2.1, "val_loss": 2.2})),
        ("iter 10: loss 2.1234, time 12.34ms, mfu 3.00%", Printed(10, None, {"loss": 2.1234, "mfu": 0.03})),
        ("Epoch 1 | Step 20/300 | Loss: 1.5e-1 | lr: 3e-4", Printed(20, 300, {"loss": 0.15, "lr": 3e-4})),
        ("[step=7] train_loss=0.5 acc=91%", Printed(7, None, {"loss": 0.5, "acc": 0.91})),
        (" 12%|█▏        | 12/100 [00:01<00:09, 9.5it/s]", Printed(12, 100, {})),
        ("Training:  12%|#  | 12/100 [00:01<00:09, 9.5it/s]", Printed(12, 100, {})),
        ("12/300 [00:01<00:09, 9.5it/s]", Printed(12, 300, {})),
        ("Loading weights: 100%|##########| 2/2 [00:00<00:00]", None),
        ("Map: 50%|#####     | 500/1000 [00:00<00:00]", None),
        ("loss went down", None),
        ("step 10 of the tutorial", None),
        ("{'a': 1}", None),
        ("{'loss': __import__('os')}", None),
        ("{'loss': nan}", None),
        ("iter 3: loss nan", None),
        ("{" * 3000 + "}", None),
        ("", None),
    ],
)
def test_a_line_tells_what_it_tells(line: str, expected: Printed | None) -> None:
    assert parse(line) == expected


def test_a_trainers_dictionary_belongs_to_where_its_bar_stands(tmp_path: Path) -> None:
    (tmp_path / "err").write_text("  0%|  | 0/30 [00:00<?]\r 33%|  | 10/30 [00:01<00:02]\r")
    (tmp_path / "out").write_text("")
    feed, prints = feed_and_prints(tmp_path)
    prints.read(feed)

    (tmp_path / "out").write_text("{'loss': 2.5, 'epoch': 0.3}\n")
    prints.read(feed, final=True)

    assert [entry.data for entry in feed.due(1, final=True)][-1] == {
        "step": 10,
        "total_steps": 30,
        "values": {"loss": 2.5, "epoch": 0.3},
        "eta_s": None,
    }


def test_an_evaluations_bar_does_not_move_the_training_back(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    (tmp_path / "err").write_text(" 33%|  | 10/30 [00:01<00:02]\r  0%|  | 0/4 [00:00<?]\r 50%|  | 2/4 [00:00<00:00]\r")
    feed, prints = feed_and_prints(tmp_path)

    prints.read(feed)

    assert feed.due(1)[-1].data["step"] == 10


def test_an_evaluation_after_the_training_does_not_move_it_back(tmp_path: Path) -> None:
    (tmp_path / "err").write_text("100%|  | 30/30 [00:01<00:00]\r")
    (tmp_path / "out").write_text("{'loss': 2.5}\n")
    feed, prints = feed_and_prints(tmp_path)
    prints.read(feed)

    (tmp_path / "err").write_text("100%|  | 30/30 [00:01<00:00]\r 50%|  | 2/4 [00:00<00:00]\r")
    (tmp_path / "out").write_text("{'loss': 2.5}\n{'eval_loss': 2.75}\n")
    prints.read(feed, final=True)

    points = [point for entry in feed.due(1, final=True) for point in entry.data.get("points", [])]
    assert [(point["step"], point["values"]) for point in points] == [(30, {"loss": 2.5}), (30, {"eval_loss": 2.75})]


def test_values_of_a_step_belong_to_the_bar_that_moved_just_before_them(tmp_path: Path) -> None:
    (tmp_path / "err").write_text(" 33%|  | 10/30 [00:01<00:02]\r")
    (tmp_path / "out").write_text("{'loss': 2.5}\n")
    feed, prints = feed_and_prints(tmp_path)

    prints.read(feed)

    assert feed.step == 10
    assert feed.due(1)[0].data["points"][-1]["step"] == 10


def test_without_a_bar_only_training_losses_count_as_steps(tmp_path: Path) -> None:
    lines = ["{'loss': 3.0}", "{'loss': 2.0}", "{'eval_loss': 2.5}", "{'train_runtime': 9.0, 'train_loss': 2.5}"]
    (tmp_path / "out").write_text("".join(line + "\n" for line in lines))
    feed, prints = feed_and_prints(tmp_path)

    prints.read(feed)

    entries = feed.due(1)
    assert [point["step"] for point in entries[0].data["points"]] == [1, 2, 2, 2]
    assert entries[-1].data["values"]["loss"] == 2.0


def feed_and_prints(folder: Path) -> tuple[Feed, PrintTail]:
    return Feed(Tuning(metrics_s=0.0)), PrintTail(str(folder / "out"), str(folder / "err"))
