"""Parameters counted from a configuration: the numbers that are published, and those of the classes themselves."""

from __future__ import annotations

from typing import Any

import pytest
from shunter_planner.models.document import Known, Unknown, model_of
from shunter_planner.models.huggingface import UnknownArchitecture, known_architectures, shape_of_config
from shunter_schemas.training import TrainingWorkload
from support.documents import changed, tiny_lm


def gpt2(layers: int, hidden: int, heads: int) -> dict[str, Any]:
    return {"model_type": "gpt2", "n_layer": layers, "n_embd": hidden, "n_head": heads}


def decoder(kind: str, layers: int, hidden: int, heads: int, kv_heads: int, ffn: int, vocab: int) -> dict[str, Any]:
    return {
        "model_type": kind,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": ffn,
        "vocab_size": vocab,
    }


TIED = {"tie_word_embeddings": True}
MIXTRAL = decoder("mixtral", 32, 4096, 32, 8, 14336, 32000)

# Of the authors' checkpoints, as their files hold them.
PUBLISHED: list[tuple[str, dict[str, Any], int]] = [
    ("GPT-2 124M", gpt2(12, 768, 12), 124_439_808),
    ("GPT-2 355M", gpt2(24, 1024, 16), 354_823_168),
    ("GPT-2 774M", gpt2(36, 1280, 20), 774_030_080),
    ("GPT-2 1.5B", gpt2(48, 1600, 25), 1_557_611_200),
    ("Llama 3.1 8B", decoder("llama", 32, 4096, 32, 8, 14336, 128256), 8_030_261_248),
    ("Llama 3.1 70B", decoder("llama", 80, 8192, 64, 8, 28672, 128256), 70_553_706_496),
    ("Llama 3.1 405B", decoder("llama", 126, 16384, 128, 8, 53248, 128256), 405_853_388_800),
    ("Qwen2.5 0.5B", {**decoder("qwen2", 24, 896, 14, 2, 4864, 151936), **TIED}, 494_032_768),
    ("Qwen2.5 1.5B", {**decoder("qwen2", 28, 1536, 12, 2, 8960, 151936), **TIED}, 1_543_714_304),
    ("Qwen2.5 3B", {**decoder("qwen2", 36, 2048, 16, 2, 11008, 151936), **TIED}, 3_085_938_688),
    ("Qwen2.5 7B", decoder("qwen2", 28, 3584, 28, 4, 18944, 152064), 7_615_616_512),
    ("Qwen2.5 14B", decoder("qwen2", 48, 5120, 40, 8, 13824, 152064), 14_770_033_664),
    ("Qwen2.5 32B", decoder("qwen2", 64, 5120, 40, 8, 27648, 152064), 32_763_876_352),
    ("Qwen2.5 72B", decoder("qwen2", 80, 8192, 64, 8, 29568, 152064), 72_706_203_648),
    ("Mixtral 8x7B", MIXTRAL, 46_702_792_704),
]


@pytest.mark.parametrize(("name", "config", "parameters"), PUBLISHED)
def test_parameters_are_those_that_are_published(name: str, config: dict[str, Any], parameters: int) -> None:
    assert shape_of_config(config).parameters == parameters


def test_of_mixtrals_experts_two_in_eight_are_active() -> None:
    shape = shape_of_config(MIXTRAL)

    assert shape.active_parameters == 12_879_925_248  # "12.9 B active", arXiv:2401.04088


SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4}
TEXT = {**SIZES, "vocab_size": 512, "max_position_embeddings": 64}
SMALL: dict[str, dict[str, Any]] = {
    "llama": {**TEXT, "num_key_value_heads": 2},
    "mistral": {**TEXT, "num_key_value_heads": 2},
    "mixtral": {**TEXT, "num_key_value_heads": 2, "num_local_experts": 4},
    "gemma": {**TEXT, "num_key_value_heads": 2, "head_dim": 32},
    "gemma2": {**TEXT, "num_key_value_heads": 2, "head_dim": 32},
    "qwen2": {**TEXT, "num_key_value_heads": 2},
    "qwen3": {**TEXT, "num_key_value_heads": 2, "head_dim": 32},
    "qwen3_moe": {**TEXT, "num_key_value_heads": 2, "head_dim": 32, "num_experts": 8, "moe_intermediate_size": 48},
    "gpt2": {"n_embd": 64, "n_layer": 3, "n_head": 4, "vocab_size": 512, "n_positions": 64},
    "gpt_neox": TEXT,
    "bert": TEXT,
    "roberta": TEXT,
    "vit": {**SIZES, "image_size": 32, "patch_size": 8},
}
TASKS = {
    **dict.fromkeys(SMALL, ("causal_lm", "sequence_classification")),
    "bert": ("sequence_classification",),
    "roberta": ("sequence_classification",),
    "vit": ("image_classification",),
}


def test_every_architecture_is_compared_with_its_class() -> None:
    assert sorted(SMALL) == known_architectures()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SMALL))
def test_parameters_are_those_of_the_class_on_the_meta_device(name: str) -> None:
    import torch
    import transformers

    for task in TASKS[name]:
        config = {**SMALL[name], "num_labels": 5, "pad_token_id": 0}
        made = transformers.AutoConfig.for_model(name, **config)
        kind: Any = getattr(transformers, _CLASSES[task])
        with torch.device("meta"):
            model = kind.from_config(made)

        counted = sum(parameter.numel() for parameter in model.parameters())

        assert shape_of_config({"model_type": name, **config}, task).parameters == counted, task


_CLASSES = {
    "causal_lm": "AutoModelForCausalLM",
    "sequence_classification": "AutoModelForSequenceClassification",
    "image_classification": "AutoModelForImageClassification",
}


@pytest.mark.slow
@pytest.mark.parametrize("tied", [False, True])
def test_parameters_of_our_transformer_are_those_that_the_trainer_builds(tied: bool) -> None:
    from shunter_trainer.models.build import build_model

    workload = training({"workload.model.kv_heads": 2, "workload.model.tied_embeddings": tied})
    known = model_of(workload)

    counted = sum(parameter.numel() for parameter in build_model(workload).module.parameters())

    assert isinstance(known, Known)
    assert known.shape.parameters == counted


def test_adapters_are_counted_beside_frozen_weights() -> None:
    config = {"model_type": "llama", **SMALL["llama"]}
    adapter = {"kind": "lora", "rank": 8, "alpha": 16, "targets": ["q_proj", "v_proj"]}
    workload = training(
        {
            "workload.model": {"kind": "huggingface", "config": config},
            "workload.adapter": adapter,
            "workload.data.sequence_length": 32,
        }
    )

    known = model_of(workload)

    assert isinstance(known, Known)
    assert known.shape.trained_parameters == 3 * 8 * ((64 + 64) + (64 + 32))
    assert known.shape.frozen_parameters == shape_of_config(config).parameters


def test_a_model_of_the_users_own_code_is_known_by_its_hints() -> None:
    model = {"kind": "python", "target": "models:make", "hints": {"parameters": 7.6e9, "sequence_length": 2048}}

    known = model_of(training({"workload.model": model, "workload.data": {"kind": "python", "target": "data:make"}}))

    assert isinstance(known, Known)
    assert known.shape.parameters == 7_600_000_000
    assert not known.shape.is_exact
    assert (known.shape.layers, known.positions) == (41, 2048)


def test_without_hints_a_model_of_the_users_own_code_is_not_known() -> None:
    model = {"kind": "python", "target": "models:make"}

    known = model_of(training({"workload.model": model, "workload.data": {"kind": "python", "target": "data:make"}}))

    assert isinstance(known, Unknown)
    assert "`hints`" in known.detail


def test_weights_whose_configuration_cannot_be_read_are_not_known() -> None:
    changes = {"workload.model": {"kind": "huggingface", "weights": "input:base"}, "inputs.base.from": "./base"}

    assert isinstance(model_of(training({**changes, "workload.data.sequence_length": 32})), Unknown)


def test_an_architecture_without_a_rule_is_named() -> None:
    with pytest.raises(UnknownArchitecture, match="no rule counts the parameters of a mamba"):
        shape_of_config({"model_type": "mamba"})


def training(changes: dict[str, Any]) -> TrainingWorkload:
    from shunter_schemas.job import load_job

    workload = load_job(changed(tiny_lm(), changes)).workload
    assert isinstance(workload, TrainingWorkload)
    return workload
