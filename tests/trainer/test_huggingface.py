"""Models of `transformers`: values, losses and exports are those of the library itself."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from shunter_trainer.models.build import Built, build_model
from shunter_trainer.models.huggingface.configuration import auto_class
from shunter_trainer.models.materialise import materialise
from shunter_trainer.models.objective import Objective
from shunter_trainer.places import Places
from support.tokenizer_folders import write_tokenizer
from support.toy_models import CONFIGS, CPU, exported, logits, save_toy, task_of, toy_inputs, toy_model
from support.trainings import parsed

NAMES = sorted(CONFIGS)


def built(name: str, places: Places, **members: Any) -> Built:
    model = {"kind": "huggingface", "task": task_of(name), **members.pop("model", {})}
    data: dict[str, Any] = (
        {"kind": "python", "target": "nothing:at_all"} if task_of(name) != "causal_lm" else {"kind": "sample"}
    )
    data |= {"sequence_length": 32} if data["kind"] == "sample" else {}
    return build_model(parsed(model=model, data=data, **members), places)


def from_folder(name: str, places: Places, folder: str = "base", **members: Any) -> Built:
    model = {"weights": f"input:{folder}", **members.pop("model", {})}
    return filled(built(name, places, model=model, **members))


def fresh(name: str, places: Places, **members: Any) -> Built:
    return built(name, places, model={"config": CONFIGS[name]}, **members)


def net(made: Built) -> Any:
    return made.module


def filled(made: Built) -> Built:
    materialise(made.module.named_modules(), made.fill, CPU)
    made.module.eval()
    return made


def stored_names(folder: Path) -> set[str]:
    return {name for file in folder.glob("*.safetensors") for name in load_file(file)}


@pytest.mark.parametrize("name", NAMES)
def test_a_model_from_a_folder_says_what_transformers_says_and_goes_back_as_it_came(
    name: str, places: Places, tmp_path: Path
) -> None:
    folder = places.inputs / "base"
    theirs = save_toy(name, folder, shard_size="20KB")

    ours = from_folder(name, places)
    out = exported(ours, tmp_path / "out", shard_bytes=20_000)

    again, told = auto_class(task_of(name)).from_pretrained(out, output_loading_info=True)
    assert torch.equal(logits(net(ours), name), logits(theirs, name))
    assert torch.equal(logits(again.eval(), name), logits(theirs, name))
    assert not told["missing_keys"]
    assert not told["unexpected_keys"]
    assert stored_names(out) == stored_names(folder)
    assert json.loads((out / "config.json").read_text()) == json.loads((folder / "config.json").read_text())
    assert ours.notes == ()


@pytest.mark.parametrize("name", NAMES)
def test_fresh_values_are_those_of_the_library_whatever_the_order_they_are_filled_in(name: str, places: Places) -> None:
    theirs = toy_model(name)
    ours, backward = fresh(name, places), fresh(name, places)
    filled(ours)

    materialise(reversed(list(backward.module.named_modules())), backward.fill, CPU)

    for (key, value), expected in zip(net(ours).named_parameters(), theirs.parameters(), strict=True):
        chance = 6 / value.numel() ** 0.5
        assert value.std().item() == pytest.approx(expected.std().item(), rel=chance), key
        assert value.mean().item() == pytest.approx(expected.mean().item(), abs=chance * expected.std().item()), key
        assert torch.equal(value, backward.module.get_parameter(key)), key
    for (key, value), (_, expected) in zip(net(ours).named_buffers(), theirs.named_buffers(), strict=True):
        assert torch.equal(value, expected), key
    tied = {len(set(map(id, module.parameters()))) for module in (net(ours), theirs)}
    assert len(tied) == 1


def test_another_seed_gives_other_values(places: Places) -> None:
    one, other = (net(filled(fresh("llama", places, seed=seed))) for seed in (1, 2))

    assert not torch.equal(one.model.layers[0].mlp.up_proj.weight, other.model.layers[0].mlp.up_proj.weight)


def test_values_that_only_a_constructor_gives_are_taken_from_it(places: Places) -> None:
    config = {"model_type": "apertus", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
    config |= {"num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 64}

    ours = filled(built("llama", places, model={"config": config}))

    alpha = net(ours).model.layers[0].mlp.act_fn.alpha_p
    assert alpha.item() == pytest.approx(torch.log(torch.expm1(torch.tensor(0.8))).item())


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_the_own_loss_is_the_documents_causal_lm_loss(name: str, places: Places) -> None:
    own = filled(fresh(name, places))
    ids = toy_inputs(name)["input_ids"]
    batch = {"input_ids": ids, "labels": ids.masked_fill(ids < 40, -100), "not taken": ids}
    asked = parsed(loss={"kind": "causal_lm"})

    losses = [Objective(loss, own.accepts, own.own_labels)(own.module, batch).item() for loss in (None, asked.loss)]

    assert losses[0] == pytest.approx(losses[1], abs=1e-6)


@pytest.mark.parametrize("name", ["vit", "bert"])
@pytest.mark.parametrize("called", ["labels", "label"])
def test_the_own_loss_of_a_classifier_is_cross_entropy(name: str, called: str, places: Places) -> None:
    own = filled(fresh(name, places))
    batch = {**toy_inputs(name), called: torch.tensor([2, 0])}
    asked = parsed(loss={"kind": "cross_entropy"})

    objectives = [Objective(loss, own.accepts, own.own_labels, own.classifies) for loss in (None, asked.loss)]
    losses = [objective(own.module, batch).item() for objective in objectives]

    assert losses[0] == pytest.approx(losses[1], abs=1e-6)
    assert [objective.classifies for objective in objectives] == [True, True]


def test_a_classifier_begins_its_head_afresh_and_says_so(places: Places) -> None:
    theirs = save_toy("vit", places.inputs / "base")

    ours = from_folder("vit", places, model={"config": {"num_labels": 5}})

    assert net(ours).classifier.weight.shape == (5, 32)
    assert net(ours).classifier.weight.std().item() == pytest.approx(0.02, rel=0.35)
    assert torch.equal(net(ours).vit.layernorm.weight, theirs.vit.layernorm.weight)
    assert ours.notes == ("not in the pretrained weights, begun afresh: classifier.bias, classifier.weight",)
    assert len(ours.release.config["id2label"]) == 5


def test_a_language_model_that_classifies_knows_what_fills_its_rows(places: Places) -> None:
    theirs = save_toy("llama", places.inputs / "base")
    model = {"kind": "huggingface", "weights": "input:base", "task": "sequence_classification"}
    data = {"kind": "jsonl", "path": "input:texts/*", "label": "class", "sequence_length": 32}
    ids = toy_inputs("llama")["input_ids"].clamp(min=1)
    padded = torch.nn.functional.pad(ids, (0, 5))  # as the tokenizer of bytes fills rows: with 0

    ours = filled(build_model(parsed(model=model, data=data), places))

    with torch.no_grad():
        assert torch.allclose(net(ours)(input_ids=padded).logits, net(ours)(input_ids=ids).logits, atol=1e-6)
    assert ours.release.config["pad_token_id"] == 0
    assert torch.equal(net(ours).model.norm.weight, theirs.model.norm.weight)


def test_a_tied_tensor_may_be_stored_under_either_name(places: Places) -> None:
    folder = places.inputs / "base"
    theirs = save_toy("llama-tied", folder)
    weights = load_file(folder / "model.safetensors")
    weights["lm_head.weight"] = weights.pop("model.embed_tokens.weight")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    ours = from_folder("llama-tied", places)

    assert torch.equal(logits(net(ours), "llama-tied"), logits(theirs, "llama-tied"))
    assert net(ours).lm_head.weight is net(ours).model.embed_tokens.weight


def test_pickled_weights_are_read_without_running_anything(places: Places) -> None:
    folder = places.inputs / "base"
    theirs = save_toy("qwen2", folder)
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()

    ours = from_folder("qwen2", places)

    assert torch.equal(logits(net(ours), "qwen2"), logits(theirs, "qwen2"))


def test_weights_keep_their_type_in_the_export_and_train_in_another(places: Places, tmp_path: Path) -> None:
    folder = places.inputs / "base"
    toy_model("llama").to(torch.bfloat16).save_pretrained(folder)

    ours = from_folder("llama", places)
    as_came = exported(ours, tmp_path / "auto")
    asked = exported(from_folder("llama", places, export={"dtype": "fp16"}), tmp_path / "asked")

    assert {value.dtype for value in net(ours).parameters()} == {torch.float32}
    assert {value.dtype for value in load_file(as_came / "model.safetensors").values()} == {torch.bfloat16}
    assert {value.dtype for value in load_file(asked / "model.safetensors").values()} == {torch.float16}
    assert [json.loads((out / "config.json").read_text())["dtype"] for out in (as_came, asked)] == [
        "bfloat16",
        "float16",
    ]


def test_parameters_in_bf16_leave_the_angles_of_rotary_positions_in_fp32(places: Places) -> None:
    precision = {"parameters": "bf16", "compute": "bf16", "reduce": "bf16"}

    ours = net(filled(fresh("llama", places, precision=precision)))

    assert {value.dtype for value in ours.parameters()} == {torch.bfloat16}
    assert torch.equal(ours.model.rotary_emb.inv_freq, toy_model("llama").model.rotary_emb.inv_freq)


def test_what_came_with_the_weights_goes_with_the_export(places: Places, tmp_path: Path) -> None:
    folder = places.inputs / "base"
    save_toy("llama", folder)
    companions = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"}
    for name in (*companions, "README.md", "optimizer.pt"):
        (folder / name).write_text(name)

    out = exported(from_folder("llama", places), tmp_path / "out")

    names = {file.name for file in out.iterdir()}
    assert names == companions | {"model.safetensors", "config.json", "generation_config.json"}
    assert json.loads((out / "config.json").read_text())["use_cache"] is True
    assert (out / "tokenizer.json").read_text() == "tokenizer.json"


def test_a_model_without_a_tokenizer_takes_that_of_its_data_along(places: Places, tmp_path: Path) -> None:
    write_tokenizer(places.inputs / "tok")
    data = {"kind": "sample", "tokenizer": "input:tok", "sequence_length": 32}

    out = exported(filled(build_model(parsed(data=data), places)), tmp_path / "out")

    assert {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"} <= {file.name for file in out.iterdir()}


def test_our_own_transformer_loads_as_llama_with_the_same_logits(tmp_path: Path) -> None:
    model = {"kind": "transformer", "layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "ffn": 48, "vocab": 256}
    ids = toy_inputs("llama")
    for tied in (False, True):
        ours = filled(build_model(parsed(model={**model, "context": 32, "tied_embeddings": tied})))
        out = exported(ours, tmp_path / str(tied), shard_bytes=10_000)

        theirs, told = auto_class("causal_lm").from_pretrained(out, output_loading_info=True)

        with torch.no_grad():
            expected, found = net(ours)(**ids)["logits"], theirs.eval()(**ids).logits
        assert type(theirs).__name__ == "LlamaForCausalLM"
        assert (told["missing_keys"], told["unexpected_keys"]) == (set(), set())
        assert torch.allclose(found, expected, atol=1e-6)
        assert ("lm_head.weight" in stored_names(out)) is not tied


def test_files_stay_below_the_bound_and_the_index_names_the_file_of_each_tensor(places: Places, tmp_path: Path) -> None:
    out = exported(filled(fresh("llama", places)), tmp_path / "out", shard_bytes=30_000)
    index = json.loads((out / "model.safetensors.index.json").read_text())

    files = sorted(out.glob("*.safetensors"))

    held = {name: file.name for file in files for name in load_file(file)}
    sizes = [sum(value.nbytes for value in load_file(file).values()) for file in files]
    assert index["weight_map"] == held
    assert index["metadata"]["total_size"] == sum(sizes)
    assert files[0].name == f"model-00001-of-{len(files):05d}.safetensors"
    assert len(files) > 2
    assert all(size <= 32_768 for size in sizes)  # the embedding alone is larger than the bound


def test_an_export_over_an_older_one_leaves_nothing_of_it(places: Places, tmp_path: Path) -> None:
    made = filled(fresh("llama", places))
    exported(made, tmp_path / "out", shard_bytes=30_000)

    out = exported(made, tmp_path / "out")

    assert sorted(file.name for file in out.iterdir()) == ["config.json", "model.safetensors"]
