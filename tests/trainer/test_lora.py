"""Adapters: what `peft` makes of them, what is trained, and what is exported."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from shunter_trainer.checkpoint.save import own_share
from shunter_trainer.failures import UserFault
from shunter_trainer.models.build import Built, build_model
from shunter_trainer.models.huggingface.configuration import auto_class
from shunter_trainer.models.materialise import materialise
from shunter_trainer.places import Places
from shunter_trainer.strategies.names import model_entries
from support.toy_models import ALONE, CPU, exported, logits, save_toy, task_of
from support.trainings import parsed

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated")

ALL = ["all-linear"]
CASES = [
    ("llama", ["q_proj", "v_proj"], set()),
    ("llama", ["layers.1.mlp.up_proj"], set()),
    ("llama-tied", ALL, set()),
    ("gpt2", ["c_attn", "c_proj"], set()),
    ("bert", ALL, {"classifier.weight", "classifier.bias"}),
    ("vit", ALL, {"classifier.weight", "classifier.bias"}),
]
IDS = ["llama", "one layer", "tied, all linear", "gpt2", "bert", "vit"]


def adapted(name: str, places: Places, targets: list[str], **members: Any) -> Built:
    model = {"kind": "huggingface", "weights": "input:base", "task": task_of(name)}
    adapter = {"kind": "lora", "rank": 4, "alpha": 8, "targets": targets}
    data = {"kind": "python", "target": "nothing:at_all"}
    made = build_model(parsed(model=model, adapter=adapter, data=data, **members), places)
    materialise(made.module.named_modules(), made.fill, CPU)
    made.module.eval()
    return made


def trained(module: torch.nn.Module) -> None:
    """As if some steps had been taken."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))


@pytest.mark.parametrize(("name", "targets", "head"), CASES, ids=IDS)
def test_an_adapter_begins_as_its_base_and_only_it_is_trained(
    name: str, targets: list[str], head: set[str], places: Places
) -> None:
    theirs = save_toy(name, places.inputs / "base")

    ours = adapted(name, places, targets).module

    learning = {key for key, value in ours.named_parameters() if value.requires_grad}
    assert {key for key in learning if ".lora_" not in key} == head
    assert any(".lora_A." in key for key in learning)
    assert torch.equal(logits(ours, name), logits(theirs, name))
    saved = {key.removeprefix("model.") for key in model_entries(ours) if key.startswith("model.")}
    assert saved == learning


@pytest.mark.parametrize(("name", "targets", "head"), CASES, ids=IDS)
def test_every_export_of_an_adapter_says_what_the_trained_model_says(
    name: str, targets: list[str], head: set[str], places: Places, tmp_path: Path
) -> None:
    from peft import PeftModel

    save_toy(name, places.inputs / "base")
    ours = adapted(name, places, targets)
    trained(ours.module)
    expected = logits(ours.module, name)

    full = exported(ours, tmp_path / "full", weights="full")
    merged = exported(ours, tmp_path / "merged", weights="merged")
    alone = exported(ours, tmp_path / "adapter", weights="adapter")

    whole = [auto_class(task_of(name)).from_pretrained(folder).eval() for folder in (full, merged)]
    base = [auto_class(task_of(name)).from_pretrained(places.inputs / "base") for _ in (1, 2)]
    onto_base = [
        PeftModel.from_pretrained(model, str(folder)).eval()
        for model, folder in zip(base, (alone, full / "adapter"), strict=True)
    ]
    for model in whole:
        assert torch.allclose(logits(model, name), expected, atol=2e-6)
    for model in onto_base:
        assert torch.equal(logits(model, name), expected)
    assert {file.name for file in alone.iterdir()} == {"adapter_model.safetensors", "adapter_config.json"}
    assert not (merged / "adapter").exists()


def test_frozen_weights_take_the_compute_type_and_adapters_stay_in_fp32(places: Places, tmp_path: Path) -> None:
    save_toy("llama", places.inputs / "base")

    ours = adapted("llama", places, ["q_proj"], precision="bf16")
    exported(ours, tmp_path / "out", weights="full")

    types = {value.requires_grad: value.dtype for value in ours.module.parameters()}
    assert types == {True: torch.float32, False: torch.bfloat16}
    adapter = load_file(tmp_path / "out" / "adapter" / "adapter_model.safetensors")
    assert {value.dtype for value in adapter.values()} == {torch.float32}
    base, merged = (load_file(file / "model.safetensors") for file in (places.inputs / "base", tmp_path / "out"))
    assert base.keys() == merged.keys()
    assert all(torch.equal(value, merged[name]) for name, value in base.items())  # not rounded to bf16 on the way


def test_the_digest_of_a_base_tells_bases_apart(places: Places) -> None:
    folder = places.inputs / "base"
    save_toy("llama", folder)
    one = adapted("llama", places, ALL).release.base_sha256
    again = adapted("llama", places, ["q_proj"], seed=3).release.base_sha256

    save_toy("llama", folder, seed=2)
    other = adapted("llama", places, ALL).release.base_sha256

    assert one == again != other
    assert one is not None


def test_a_model_without_an_adapter_names_no_base(places: Places) -> None:
    save_toy("llama", places.inputs / "base")

    assert (
        build_model(parsed(model={"kind": "huggingface", "weights": "input:base"}), places).release.base_sha256 is None
    )


@pytest.mark.parametrize(
    ("targets", "number", "hints"),
    [
        (["q_proj", "v_porj"], 1, ["'v_porj' is in no place of the model", "did you mean `v_proj`?"]),
        (["embed_tokens"], 0, ["is a Embedding", "linear layers"]),
        (["xyz"], 0, ["they are down_proj, gate_proj", "all-linear"]),
        (["lm_head"], 0, ["'lm_head' is a Linear"]),
    ],
)
def test_a_target_that_is_no_linear_layer_is_named(
    targets: list[str], number: int, hints: list[str], places: Places
) -> None:
    save_toy("llama", places.inputs / "base")

    with pytest.raises(UserFault) as refused:
        adapted("llama", places, targets)

    assert refused.value.pointer == f"/workload/adapter/targets/{number}"
    assert all(hint in str(refused.value) for hint in hints), str(refused.value)


def test_the_settings_of_an_adapter_are_written_as_peft_writes_them(places: Places, tmp_path: Path) -> None:
    save_toy("bert", places.inputs / "base")

    exported(adapted("bert", places, ["query", "value"]), tmp_path, weights="adapter")

    written = json.loads((tmp_path / "adapter_config.json").read_text())
    assert {name: written[name] for name in ("peft_type", "task_type", "r", "lora_alpha", "inference_mode")} == {
        "peft_type": "LORA",
        "task_type": "SEQ_CLS",
        "r": 4,
        "lora_alpha": 8,
        "inference_mode": True,
    }
    assert written["target_modules"] == ["query", "value"]
    assert written["modules_to_save"] == ["classifier"]


def test_a_checkpoint_holds_a_small_part_of_the_model(places: Places) -> None:
    save_toy("llama", places.inputs / "base")
    ours = adapted("llama", places, ["q_proj"]).module

    share = own_share(model_entries(ours), ALONE)

    assert sum(value.numel() for value in share.values()) == 2 * (4 * 32 + 4 * 32)
