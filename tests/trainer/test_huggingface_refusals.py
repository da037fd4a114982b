"""What is wrong with a `huggingface` model is named by its place in the document, with the way out."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from shunter_trainer.failures import UserFault
from shunter_trainer.models.build import build_model
from shunter_trainer.places import Places
from support.toy_models import CONFIGS, edit_config, save_toy
from support.trainings import parsed

LLAMA = CONFIGS["llama"]


def refusal(places: Places, model: dict[str, Any], **members: Any) -> UserFault:
    with pytest.raises(UserFault) as refused:
        build_model(
            parsed(model={"kind": "huggingface", **model}, data={"kind": "sample", "sequence_length": 32}, **members),
            places,
        )
    return refused.value


@pytest.mark.parametrize(
    ("config", "pointer", "hints"),
    [
        ({**LLAMA, "model_type": "lama"}, "model_type", ["not known", "did you mean `llama`?"]),
        ({"hidden_size": 32}, "model_type", ["must name the architecture"]),
        ({**LLAMA, "hiden_size": 32}, "hiden_size", ["no such setting", "did you mean `hidden_size`?"]),
        ({**LLAMA, "hidden_size": "32"}, "", ["hidden_size"]),
        ({**LLAMA, "num_attention_heads": 5}, "", ["5"]),
        ({**LLAMA, "model_type": "acme", "auto_map": {"AutoConfig": "a.B"}}, "", ["code of its own", "`python` model"]),
    ],
)
def test_a_configuration_that_cannot_be_followed(
    places: Places, config: dict[str, Any], pointer: str, hints: list[str]
) -> None:
    fault = refusal(places, {"config": config})

    assert fault.pointer == "/workload/model/config" + (f"/{pointer}" if pointer else "")
    assert all(hint in str(fault) for hint in hints), str(fault)


def test_settings_that_only_the_code_of_the_model_reads_are_known(places: Places) -> None:
    config = {**CONFIGS["mixtral"], "head_dim": 8, "rope_theta": 5e5, "num_labels": 3}

    assert build_model(parsed(model={"kind": "huggingface", "config": config}), places)


def test_a_model_without_this_task(places: Places) -> None:
    fault = refusal(places, {"config": CONFIGS["vit"]})

    assert fault.pointer == "/workload/model/task"
    assert "no causal_lm form; it can be image_classification" in str(fault)


def test_more_tokens_than_the_model_has_positions(places: Places) -> None:
    fault = refusal(places, {"config": {**LLAMA, "max_position_embeddings": 16}})

    assert fault.pointer == "/workload/data/sequence_length"
    assert "32 is more than the 16 positions" in str(fault)


def without_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def without_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def with_torn_weights(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def with_a_pickle_that_runs_something(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"a": Path}))


def with_an_index_of_missing_files(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../elsewhere.safetensors"}}))


def without_a_layer(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def with_another_name(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["model.last_norm.weight"] = weights.pop("model.norm.weight")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def quantised(folder: Path) -> None:
    edit_config(folder, quantization_config={"quant_method": "gptq"})


def of_code_of_its_own(folder: Path) -> None:
    edit_config(folder, model_type="acme", auto_map={"AutoModelForCausalLM": "modeling.Acme"})


@pytest.mark.parametrize(
    ("spoil", "hint"),
    [
        (without_config, "has no config.json (it holds"),
        (without_weights, "holds no model.safetensors"),
        (with_torn_weights, "cannot be read as safetensors"),
        (with_a_pickle_that_runs_something, "cannot be read safely; convert the weights to safetensors"),
        (with_an_index_of_missing_files, "names '../elsewhere.safetensors', which is not in the folder"),
        (without_a_layer, "hold no model.layers.1.mlp.up_proj.weight"),
        (with_another_name, "hold no model.norm.weight; they hold model.last_norm.weight instead"),
        (quantised, "quantised"),
        (of_code_of_its_own, "never run from a folder of weights"),
    ],
)
def test_a_folder_that_is_no_model(places: Places, spoil: Callable[[Path], None], hint: str) -> None:
    save_toy("llama", places.inputs / "base")
    spoil(places.inputs / "base")

    fault = refusal(places, {"weights": "input:base"})

    assert fault.pointer == "/workload/model/weights"
    assert hint in str(fault)


def test_a_folder_that_is_not_there_is_not_looked_for_on_a_hub(places: Places) -> None:
    fault = refusal(places, {"weights": "acme/llama-8b"})

    assert fault.pointer == "/workload/model/weights"
    assert "there is no folder 'acme/llama-8b'" in str(fault)
    assert "nothing is downloaded" in str(fault)


def test_sizes_that_do_not_fit_the_files_are_both_named(places: Places) -> None:
    save_toy("llama", places.inputs / "base")

    fault = refusal(places, {"weights": "input:base", "config": {"intermediate_size": 48}})

    assert fault.pointer == "/workload/model/config"
    assert "(64, 32) in the files and (48, 32) here" in str(fault)


def test_fewer_layers_are_taken_and_the_rest_is_named(places: Places) -> None:
    save_toy("llama", places.inputs / "base")
    model = {"kind": "huggingface", "weights": "input:base", "config": {"num_hidden_layers": 1}}

    built = build_model(parsed(model=model), places)

    assert "in no place of this model: model.layers.1." in built.notes[0]


def test_tied_tensors_with_different_values_are_refused(places: Places) -> None:
    folder = places.inputs / "base"
    save_toy("llama", folder)
    edit_config(folder, tie_word_embeddings=True)

    fault = refusal(places, {"weights": "input:base"})

    assert fault.pointer == "/workload/model/config/tie_word_embeddings"
    assert "different values for model.embed_tokens.weight and lm_head.weight" in str(fault)


def test_a_model_that_was_pickled_by_hand_is_refused(places: Places) -> None:
    folder = places.inputs / "base"
    model = save_toy("llama", folder)
    (folder / "model.safetensors").unlink()
    torch.save({"a": model}, folder / "pytorch_model.bin")

    assert "cannot be read safely" in str(refusal(places, {"weights": "input:base"}))
