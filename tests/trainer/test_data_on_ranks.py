"""Real ranks on data of the kinds that need preparing: the same curve, resumed on another number of them."""

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.image_folders import write_classes
from support.ranks import Ranks
from support.tokenizer_folders import write_tokenizer
from support.trainings import document

StartRanks = Callable[..., Ranks]
pytestmark = [pytest.mark.trainer, pytest.mark.slow]

LLAMA: dict[str, Any] = {
    "kind": "huggingface",
    "config": {
        "model_type": "llama",
        "vocab_size": 512,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    },
}
VIT: dict[str, Any] = {
    "kind": "huggingface",
    "task": "image_classification",
    "config": {
        "model_type": "vit",
        "image_size": 8,
        "patch_size": 4,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    },
}
TALK: list[dict[str, Any]] = [
    {"role": "user", "content": "hello how are you"},
    {"role": "assistant", "content": "fine, thank you"},
]
EVERY_TWO: dict[str, Any] = {
    "checkpoint": {"every_steps": 2},
    "evaluation": {"every_steps": 2},
    "schedule": {"kind": "constant"},
    "log_every_steps": 1,
    "precision": "fp32",
}


def test_chat_goes_on_with_the_same_conversations_on_one_rank_after_two(
    start_ranks: StartRanks, tmp_path: Path
) -> None:
    data = {
        "kind": "chat",
        "path": "input:train/*.jsonl",
        "tokenizer": "input:tok",
        "sequence_length": 64,
        "validation": {"fraction": 0.2},
    }

    def prepare(inputs: Path) -> None:
        write_tokenizer(inputs / "tok")
        lines = [{"messages": [{**TALK[0], "content": f"hello {n} " * (1 + n % 3)}, TALK[1]]} for n in range(40)]
        (inputs / "train").mkdir()
        (inputs / "train" / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    whole, resumed = resumed_and_whole(start_ranks, tmp_path, prepare, model=LLAMA, data=data)

    assert_same_curve(whole, resumed)
    assert "data: 40 conversations in" in (whole.folder / "stdout-0").read_text()


def test_images_go_on_with_the_same_cuts_and_leave_the_names_of_their_classes(
    start_ranks: StartRanks, tmp_path: Path
) -> None:
    data = {
        "kind": "image_folder",
        "path": "input:train",
        "workers_per_gpu": 1,
        "validation": {"kind": "image_folder", "path": "input:val"},
    }

    def prepare(inputs: Path) -> None:
        write_classes(inputs / "train")
        write_classes(inputs / "val", each=2)

    whole, resumed = resumed_and_whole(
        start_ranks, tmp_path, prepare, model=VIT, data=data, loss=None, metrics=[], duration={"epochs": 2}
    )

    assert_same_curve(whole, resumed)
    assert json.loads((resumed.output / "config.json").read_text())["id2label"] == {
        "0": "blue",
        "1": "green",
        "2": "red",
    }


def test_texts_of_a_folder_of_the_hub_train_pretrained_weights_with_their_own_tokenizer(
    start_ranks: StartRanks, tmp_path: Path
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from transformers import LlamaConfig, LlamaForCausalLM

    inputs = tmp_path / "gang" / "inputs"
    LlamaForCausalLM(LlamaConfig(**{**LLAMA["config"], "vocab_size": 400})).save_pretrained(inputs / "base")
    write_tokenizer(inputs / "base")
    for split in ("train", "test"):
        (inputs / "corpus" / "data").mkdir(parents=True, exist_ok=True)
        pq.write_table(
            pa.table({"text": ["the quick brown fox"] * 60}), inputs / "corpus" / "data" / f"{split}-0.parquet"
        )
    data = {"kind": "huggingface", "name": "input:corpus", "tokenizer": "model", "sequence_length": 16}

    ranks = trained(
        start_ranks,
        model={"kind": "huggingface", "weights": "input:base"},
        data={**data, "validation": {**data, "split": "test"}},
        duration={"tokens": 16 * 4 * 3},
    )

    assert sorted(ranks.values("loss")) == [1, 2, 3]
    assert ranks.values("val_perplexity")


def test_texts_with_classes_train_a_classifier_of_as_many(start_ranks: StartRanks, tmp_path: Path) -> None:
    inputs = tmp_path / "gang" / "inputs"
    inputs.mkdir(parents=True)
    lines = [{"text": word, "mood": mood} for word, mood in (("fine", "good"), ("awful", "bad"), ("so so", "even"))]
    (inputs / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in 8 * lines))
    data = {"kind": "jsonl", "path": "input:a.jsonl", "label": "mood", "sequence_length": 8}
    model = {
        "kind": "huggingface",
        "task": "sequence_classification",
        "config": {**LLAMA["config"], "model_type": "bert", "vocab_size": 256},
    }

    ranks = trained(
        start_ranks, model=model, data={**data, "validation": data}, metrics=["top1"], duration={"epochs": 3}
    )

    assert ranks.values("val_top1")[18] >= 1 / 3
    assert "val_perplexity" not in ranks.lines()[-1]
    assert json.loads((ranks.output / "config.json").read_text())["id2label"] == {"0": "bad", "1": "even", "2": "good"}


def test_shards_train_and_a_folder_of_images_evaluates(start_ranks: StartRanks, tmp_path: Path) -> None:
    inputs = tmp_path / "gang" / "inputs"
    write_classes(inputs / "val", each=2)
    with tarfile.open(inputs / "a.tar", "w") as tar:
        for number, file in enumerate(sorted((inputs / "val").rglob("*.png"))):
            tar.add(file, f"{number:03}.png")
            label = tarfile.TarInfo(f"{number:03}.cls")
            label.size = 1
            tar.addfile(label, io.BytesIO(str(number // 2).encode()))
    data = {"kind": "webdataset", "path": "input:*.tar", "samples": 6, "workers_per_gpu": 1}

    ranks = trained(
        start_ranks,
        model={**VIT, "config": {**VIT["config"], "num_labels": 3}},
        data={**data, "validation": {"kind": "image_folder", "path": "input:val"}},
        duration={"epochs": 2},
    )

    assert sorted(ranks.values("loss")) == [1, 2, 3]
    assert ranks.values("val_loss")


def trained(start_ranks: StartRanks, **members: Any) -> Ranks:
    """A training on one rank that came to its end."""
    ranks = start_ranks(document(**{**EVERY_TWO, "batch": {"global_size": 4}, **members}))
    assert ranks.end() == [0], ranks.stderr()
    return ranks


def resumed_and_whole(start_ranks: StartRanks, tmp_path: Path, prepare: Any, **members: Any) -> tuple[Ranks, Ranks]:
    """Six steps on one rank, and two steps on two ranks that one rank goes on with."""
    members = {**EVERY_TWO, "batch": {"global_size": 4}, "duration": {"steps": 6}, **members}
    for name in ("whole", "first", "second"):
        (tmp_path / name / "inputs").mkdir(parents=True)
        prepare(tmp_path / name / "inputs")
    whole = start_ranks(document(**members), 1, name="whole")
    first = start_ranks(document(**{**members, "duration": {"steps": 2}}), 2, name="first")
    assert (whole.end(), first.end()) == ([0], [0, 0]), whole.stderr() + first.stderr()
    second = start_ranks(document(**members), 1, name="second", SHUNTER_RESUME_DIR=str(first.checkpoints))
    assert second.end() == [0], second.stderr()
    return whole, second


def assert_same_curve(whole: Ranks, resumed: Ranks) -> None:
    expected, found = whole.values("loss"), resumed.values("loss")
    assert sorted(found) == [3, 4, 5, 6]
    assert [found[step] for step in found] == pytest.approx([expected[step] for step in found], abs=5e-6)
    assert resumed.values("val_loss")[6] == pytest.approx(whole.values("val_loss")[6], abs=5e-6)
