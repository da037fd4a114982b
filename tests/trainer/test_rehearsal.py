"""`shunter rehearse`: what is cut, what is refused, and whole rehearsals."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from shunter_schemas.training import TrainingWorkload
from shunter_trainer.rehearsal import weights
from shunter_trainer.rehearsal.acts import goes_on, learned
from shunter_trainer.rehearsal.cutting import Cut, cut, cut_config, with_steps
from shunter_trainer.rehearsal.gang import substituted
from shunter_trainer.rehearsal.inputs import MOST_LINES, lay_out
from shunter_trainer.rehearsal.preparing import Unrehearsable, prepare
from support.trainings import document

ROOT = Path(__file__).parents[2]
LARGE = {
    "kind": "transformer",
    "layers": 32,
    "hidden": 4096,
    "heads": 32,
    "kv_heads": 8,
    "ffn": 14336,
    "vocab": 128256,
    "context": 8192,
}


def test_a_transformer_keeps_two_layers_and_short_sequences() -> None:
    made = cut(document(model=LARGE, data={"kind": "sample"}, schedule={"kind": "constant"}), narrow=False)

    assert made.workload["model"] == {**LARGE, "layers": 2}
    assert made.workload["data"]["sequence_length"] == 128
    assert made.workload["batch"] == {"global_size": 4, "micro_size": 1}
    assert made.workload["duration"] == {"steps": 3}
    assert {"model.layers 32 -> 2", "data.sequence_length = 128"} <= set(made.notes)


def test_widths_are_cut_where_it_is_asked_for() -> None:
    made = cut(document(model=LARGE), narrow=True)

    model = made.workload["model"]
    assert (model["hidden"], model["heads"], model["kv_heads"], model["ffn"], model["vocab"]) == (64, 4, 2, 128, 128256)


def test_a_document_that_was_cut_is_still_one() -> None:
    whole = document(
        model=LARGE,
        evaluation={"every_steps": 50, "early_stopping": {"patience": 3}},
        profile={"first_step": 5},
        compile=True,
    )

    made = cut(whole, narrow=True)

    workload = TrainingWorkload.model_validate_json(json.dumps(with_steps(made.document, 12)["workload"]))
    assert (workload.compile, workload.profile, workload.duration.steps) == (False, None, 12)
    assert workload.evaluation is not None
    assert workload.evaluation.early_stopping is None
    assert [part.partition(" ")[0] for part in made.open] == ["early", "torch.compile", "the", "GPUs,"]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ({"kind": "auto"}, {"kind": "ddp"}),
        ({"kind": "hsdp", "shard_size": 8}, {"kind": "hsdp", "shard_size": 2}),
        ({"kind": "hsdp"}, {"kind": "hsdp", "shard_size": 2}),
        (
            {"kind": "fsdp", "reshard_after_forward": 8},
            {"kind": "fsdp", "reshard_after_forward": True},
        ),
        ({"kind": "deepspeed", "zero_stage": 3}, {"kind": "deepspeed", "zero_stage": 3}),
    ],
)
def test_a_strategy_is_kept_as_far_as_two_processes_can(strategy: dict[str, Any], expected: dict[str, Any]) -> None:
    made = cut({**document(), "strategy": strategy}, narrow=False)

    assert made.document["strategy"] == expected
    assert any("groups" in part for part in made.open) is (strategy["kind"] == "hsdp")


def test_a_configuration_keeps_two_layers_and_what_it_says_of_each() -> None:
    config = {"num_hidden_layers": 28, "hidden_size": 3584, "layer_types": ["full", "sliding"] * 14, "vocab_size": 99}

    told = list(cut_config(config, narrow=False))

    assert config == {
        "num_hidden_layers": 2,
        "hidden_size": 3584,
        "layer_types": ["full", "sliding"],
        "vocab_size": 99,
    }
    assert told == ["num_hidden_layers 28 -> 2"]


def test_long_files_of_lines_are_cut_and_others_are_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shunter_trainer.rehearsal.inputs.LARGE_BYTES", 10_000)
    (tmp_path / "train" / "deep").mkdir(parents=True)
    (tmp_path / "train" / "deep" / "a.jsonl").write_text('{"text": "x"}\n' * 5000)
    (tmp_path / "train" / "b.jsonl").write_text("{}\n")
    (tmp_path / "base").mkdir()

    notes = lay_out(tmp_path / "inputs", {"train": tmp_path / "train", "base": tmp_path / "base"})

    assert notes == [f"input train: the first {MOST_LINES} lines of deep/a.jsonl"]
    assert len((tmp_path / "inputs/train/deep/a.jsonl").read_text().splitlines()) == MOST_LINES
    assert (tmp_path / "inputs/train/b.jsonl").read_text() == "{}\n"
    assert (tmp_path / "inputs/base").is_symlink()


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"workload": {"kind": "script", "entrypoint": "train.py"}}, "torchrun --nproc-per-node 2"),
        ({"source": {"kind": "git", "url": "https://git.example/a.git"}}, "--source"),
        ({"inputs": {"base": {"from": "bundle:bun_1"}}}, "--set inputs.base.from=FOLDER"),
        ({"workload": document(model={**LARGE, "hidden": 65536, "heads": 64})["workload"]}, "use --narrow"),
    ],
    ids=["script", "git", "bundle", "too wide"],
)
def test_what_cannot_be_rehearsed_names_the_way_out(tmp_path: Path, changes: dict[str, Any], hint: str) -> None:
    with pytest.raises(Unrehearsable, match=hint):
        prepare({**document(), **changes}, tmp_path / "play", narrow=False)


def test_large_pretrained_weights_are_replaced_by_two_fresh_layers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transformers = pytest.importorskip("transformers")
    monkeypatch.setattr(weights, "SMALL_BYTES", 1000)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "vocab_size": 64}
    config = transformers.LlamaConfig(num_hidden_layers=5, **sizes)
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "base")
    (tmp_path / "base" / "tokenizer.json").write_text("{}")
    (tmp_path / "inputs").mkdir()
    made = Cut(document(model={"kind": "huggingface", "weights": "input:base"}), narrow=False)

    weights.stand_in(made, tmp_path / "base", tmp_path / "inputs")

    folder = tmp_path / "inputs" / "rehearsal-weights"
    loaded = transformers.AutoModelForCausalLM.from_pretrained(folder)
    assert made.workload["model"]["weights"] == "input:rehearsal-weights"
    assert (loaded.config.num_hidden_layers, loaded.config.hidden_size) == (2, 16)
    assert (folder / "tokenizer.json").read_text() == "{}"
    assert made.open == ["the values of the pretrained weights"]


@pytest.mark.parametrize(
    ("losses", "ok", "detail"),
    [
        ({1: 3.0, 2: 2.5, 3: 2.25}, True, "loss 3.0000 -> 2.2500 in 3 steps on 2 processes"),
        ({1: 3.0}, False, "the loss is not finite at step 2, 3 of 3: look at the data, the precision and"),
        ({}, False, "the loss is not finite at step 1, 2, 3 of 3: look at"),
    ],
)
def test_losses_that_are_not_finite_are_no_training(losses: dict[int, float], ok: bool, detail: str) -> None:
    found = learned(losses)

    assert (found.name, found.ok) == ("trains", ok)
    assert found.detail.startswith(detail)


@pytest.mark.parametrize(
    ("after", "ok", "detail"),
    [
        ({3: 2.0, 4: 1.9, 5: 1.8}, True, "took up at step 3, with the same losses as before up to step 4"),
        ({3: 2.0, 4: 1.7}, False, "took up at step 3, with other losses than before (they differ by up to 0.2)"),
        ({6: 1.0, 7: 0.9}, True, "took up at step 6 and trained to step 7"),
        ({}, False, "no step after the checkpoint had a finite loss"),
    ],
)
def test_going_on_repeats_the_losses_of_before(after: dict[int, float], ok: bool, detail: str) -> None:
    found = goes_on({1: 3.0, 2: 2.5, 3: 2.0, 4: 1.9}, after)

    assert (found.name, found.ok) == ("resumes", ok)
    assert found.detail.startswith(detail)


def test_variables_of_the_document_get_their_places(tmp_path: Path) -> None:
    variables = {"CORPUS": "${inputs.train}/a:${output_dir}", "RANKS": "${world_size}", "PLAIN": "$HOME"}
    whole = {"inputs": {"train": {"from": "./x"}}, "environment": {"variables": variables}}

    found = substituted(whole, tmp_path / "inputs", tmp_path / "act", 2)

    corpus = f"{tmp_path}/inputs/train/a:{tmp_path}/act/output"
    assert found == {"CORPUS": corpus, "RANKS": "2", "PLAIN": "$HOME"}


MODELS = """
from torch import nn

class Fragile(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.step = nn.Linear(4, 4), 0

    def forward(self, x):
        self.step += 1
        if self.step == 3:
            raise ValueError("a fault that would have cost money")
        return {"loss": self.layer(x).square().mean()}
"""


def rehearse(file: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "shunter", "rehearse", str(file), *options],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=280,
        check=False,
    )


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.trainer
@pytest.mark.timeout(300)
def test_the_demo_is_rehearsed_to_its_end(tmp_path: Path) -> None:
    played = rehearse(ROOT / "examples" / "tiny-lm-ddp.json", "--json", "--keep", str(tmp_path / "kept"))

    assert played.returncode == 0, played.stdout + played.stderr
    told = json.loads(played.stdout)
    names = [finding["name"] for finding in told["findings"]]
    assert names == ["trains", "evaluates", "exports", "saves", "is killed", "resumes", "exports"]
    assert told["proven"] is all(finding["ok"] for finding in told["findings"]) is True
    assert "model.layers 4 -> 2" in told["cut"]
    assert (tmp_path / "kept" / "resumed" / "output" / "model.safetensors").is_file()


@pytest.mark.slow
@pytest.mark.trainer
@pytest.mark.timeout(300)
def test_a_fault_in_the_users_code_is_found_before_anything_is_rented(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(MODELS)
    job = {
        **document(
            model={"kind": "python", "target": "models:Fragile"},
            data={"kind": "synthetic", "samples": 64, "fields": {"x": {"shape": [4], "dtype": "float32"}}},
        ),
        "source": {"kind": "folder", "path": "."},
        "resources": {"gpus": 8},
    }
    (tmp_path / "job.json").write_text(json.dumps(job))

    played = rehearse(tmp_path / "job.json")

    assert played.returncode == 1
    assert "FAIL trains: ValueError: a fault that would have cost money" in played.stdout
