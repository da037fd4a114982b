"""The transformer model."""

import math
from collections.abc import Mapping

import pytest
import torch
from shunter_trainer.failures import UserFault
from shunter_trainer.models.build import build_model, transformer_shape
from shunter_trainer.models.materialise import materialise
from shunter_trainer.models.transformer import Shape, Transformer, first_values, rotary_table, rotate
from support.trainings import TINY, parsed, whole_model
from torch.nn import functional as F

SMALL = Shape(layers=2, hidden=32, heads=4, kv_heads=2, ffn=64, vocab=50, context=24)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        # Llama 2 7B and Llama 3 8B, as published: 6,738,415,616 and 8,030,261,248 parameters.
        (Shape(32, 4096, 32, 32, 11008, 32000, 4096), 6_738_415_616),
        (Shape(32, 4096, 32, 8, 14336, 128256, 8192), 8_030_261_248),
        # TinyLlama 1.1B: 1,100,048,384.
        (Shape(22, 2048, 32, 4, 5632, 32000, 2048), 1_100_048_384),
    ],
)
def test_the_parameter_formula_gives_the_published_numbers(shape: Shape, expected: int) -> None:
    assert shape.parameters == expected


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("tied", [False, True])
def test_the_parameter_formula_counts_what_the_model_has(kv_heads: int, tied: bool) -> None:
    shape = Shape(3, 32, 4, kv_heads, 48, 77, 16, tied_embeddings=tied)

    model = new(shape)

    assert sum(parameter.numel() for parameter in model.parameters()) == shape.parameters


def test_a_position_does_not_see_those_after_it() -> None:
    model = new(SMALL)
    ids = torch.randint(50, (2, 24))
    changed = ids.clone()
    changed[:, 10:] = (changed[:, 10:] + 1) % 50

    before, after = model(ids)["logits"], model(changed)["logits"]

    assert torch.equal(before[:, :10], after[:, :10])
    assert not torch.allclose(before[:, 10:], after[:, 10:])


def test_attention_depends_on_distance_and_not_on_position() -> None:
    cos, sin = rotary_table(20, 8, 10_000.0)
    query, key = torch.randn(8), torch.randn(8)

    def score(at: int, to: int) -> float:
        return float(rotate(query, cos[at], sin[at]) @ rotate(key, cos[to], sin[to]))

    assert score(7, 3) == pytest.approx(score(15, 11), abs=1e-5)
    assert score(7, 3) != pytest.approx(score(7, 4), abs=1e-3)


def test_the_loss_is_the_cross_entropy_of_each_next_token_and_leaves_padding_out() -> None:
    model = new(SMALL)
    ids = torch.randint(50, (2, 24))
    labels = ids.clone()
    labels[1, 5:] = -100

    loss = model(ids, labels)["loss"]

    logits = model(ids)["logits"]
    expected = F.cross_entropy(torch.cat((logits[0, :-1], logits[1, :4])), torch.cat((ids[0, 1:], ids[1, 1:5])))
    assert loss.item() == pytest.approx(expected.item(), abs=1e-5)


def test_a_new_model_is_as_good_as_guessing() -> None:
    model = new(SMALL)
    ids = torch.randint(50, (8, 24))

    loss = model(ids, ids)["loss"]

    assert loss.item() == pytest.approx(math.log(50), abs=0.1)


def test_grouped_queries_share_keys_and_values() -> None:
    grouped = new(SMALL)
    whole = new(Shape(2, 32, 4, 4, 64, 50, 24))
    state = grouped.state_dict()
    for name, value in state.items():
        if "k_proj" in name or "v_proj" in name:
            state[name] = value.view(2, 8, 32).repeat_interleave(2, dim=0).reshape(32, 32)
    whole.load_state_dict(state)
    ids = torch.randint(50, (2, 24))

    assert torch.allclose(grouped(ids)["logits"], whole(ids)["logits"], atol=1e-5)


def test_full_activation_checkpointing_changes_neither_loss_nor_gradients_nor_names() -> None:
    plain = whole_model(parsed())
    recomputed = whole_model(parsed(activation_checkpointing="full"))
    ids = torch.randint(256, (2, 32))

    losses = [model(ids, labels=ids)["loss"] for model in (plain, recomputed)]
    for loss in losses:
        loss.backward()

    assert torch.equal(*losses)
    assert plain.state_dict().keys() == recomputed.state_dict().keys()
    assert gradients(plain).keys() == gradients(recomputed).keys()
    assert all(torch.equal(gradients(plain)[name], gradients(recomputed)[name]) for name in gradients(plain))


def test_the_same_seed_builds_the_same_model() -> None:
    first, again, other = (whole_model(parsed(seed=seed)).state_dict() for seed in (5, 5, 6))

    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["lm_head.weight"], other["lm_head.weight"])


@pytest.mark.parametrize(
    ("sizes", "pointer"),
    [({"heads": 3}, "/workload/model/hidden"), ({"heads": 4, "kv_heads": 3}, "/workload/model/kv_heads")],
)
def test_sizes_that_do_not_fit_are_named(sizes: Mapping[str, int], pointer: str) -> None:
    with pytest.raises(UserFault) as refused:
        transformer_shape(parsed(model={**TINY, **sizes}).model)

    assert refused.value.pointer == pointer


def test_a_submodule_gets_the_same_values_alone_as_in_the_whole_model() -> None:
    whole, alone = whole_model(parsed()), build_model(parsed())
    parts = [part for part in alone.module.named_modules() if part[0].startswith("model.layers.1")]

    materialise(parts, alone.fill, torch.device("cpu"))

    expected = whole.get_submodule("model.layers.1").state_dict()
    found = alone.module.get_submodule("model.layers.1").state_dict()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert alone.module.get_parameter("model.layers.0.mlp.up_proj.weight").is_meta


def test_tied_weights_stay_tied_when_they_get_their_values() -> None:
    model = whole_model(parsed(model={**TINY, "tied_embeddings": True}))

    embedding, head = model.get_parameter("model.embed_tokens.weight"), model.get_parameter("lm_head.weight")

    assert embedding is head
    assert embedding.std().item() == pytest.approx(0.02, rel=0.05)


def new(shape: Shape) -> Transformer:
    with torch.device("meta"):
        model = Transformer(shape)
    materialise(model.named_modules(), first_values(shape, seed=17), torch.device("cpu"))
    return model


def gradients(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
