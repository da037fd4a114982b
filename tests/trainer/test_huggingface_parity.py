"""The same document gives the same losses under every strategy, with models of `transformers`."""

from typing import Any

import pytest
from shunter_trainer.optim.schedules import schedule_factor
from shunter_trainer.places import Places
from support.many_trainings import ManyTrainings
from support.toy_models import CONFIGS, save_toy, task_of
from support.trainings import bare_losses, document, parsed

pytestmark = [pytest.mark.trainer, pytest.mark.slow, pytest.mark.timeout(300)]

FP32_TOLERANCE = 5e-6
BF16_TOLERANCE = 5e-3
STEPS = 8
STRATEGIES: dict[str, dict[str, Any]] = {
    "ddp": {"kind": "ddp"},
    "fsdp": {"kind": "fsdp"},
    "zero-1": {"kind": "deepspeed", "zero_stage": 1},
    "zero-3": {"kind": "deepspeed", "zero_stage": 3},
}
MODELS = ("llama", "qwen2", "gpt2", "vit")
ADAPTED = ("lora-fp32", "lora-bf16")
CASES = [(name, strategy) for strategy in ("ddp", "fsdp") for name in MODELS + ADAPTED]
CASES += [("gpt2", "zero-1"), ("lora-bf16", "zero-1"), ("gpt2", "zero-3"), ("vit", "zero-3"), ("lora-bf16", "zero-3")]
ADAPTER = {"kind": "lora", "rank": 4, "alpha": 8, "targets": ["all-linear"]}


def members(name: str) -> dict[str, Any]:
    # In the order of their names, as the trainer reads them: random fields are drawn one after the other.
    fields = {
        "labels": {"shape": [], "dtype": "int64", "high": 3},
        "pixel_values": {"shape": [3, 16, 16], "dtype": "float32"},
    }
    pictures = {"kind": "synthetic", "samples": 64, "fields": fields}
    return {
        "model": {"kind": "huggingface", "config": CONFIGS[name], "task": task_of(name)},
        "data": pictures if name == "vit" else {"kind": "sample", "sequence_length": 32},
        "optimizer": {"kind": "adamw", "lr": 0.003},
        "duration": {"steps": STEPS},
    }


def adapted(precision: str) -> dict[str, Any]:
    model = {"kind": "huggingface", "weights": "input:base"}
    optimizer = {"kind": "adamw", "lr": 0.03}
    return {**members("llama"), "model": model, "adapter": ADAPTER, "optimizer": optimizer, "precision": precision}


@pytest.fixture(scope="module")
def losses(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[float]]:
    """Of all trainings on two ranks."""
    folder = tmp_path_factory.mktemp("many")
    save_toy("llama", folder / "inputs" / "base")
    documents = {}
    for name, strategy in CASES:
        parts = adapted(name.removeprefix("lora-")) if name in ADAPTED else members(name)
        documents[f"{name} {strategy}"] = {**document(**parts), "strategy": STRATEGIES[strategy]}
    ranks = ManyTrainings(folder, documents, 2)
    try:
        return ranks.losses()
    finally:
        ranks.close()


@pytest.mark.parametrize(("name", "strategy"), [case for case in CASES if case[0] in MODELS])
def test_the_losses_are_those_of_a_hand_written_loop(
    losses: dict[str, list[float]], name: str, strategy: str, places: Places
) -> None:
    training = parsed(**members(name))
    factor = schedule_factor(training.schedule, STEPS)

    expected = bare_losses(training, places, [factor(step) if factor else 1.0 for step in range(1, STEPS + 1)])

    assert losses[f"{name} {strategy}"] == pytest.approx(expected, abs=FP32_TOLERANCE)
    assert name == "vit" or expected[-1] < expected[0] - 0.3  # random pictures teach nothing


@pytest.mark.parametrize(("name", "strategy"), [case for case in CASES if case[0] in ADAPTED])
def test_adapters_learn_the_same_under_every_strategy(losses: dict[str, list[float]], name: str, strategy: str) -> None:
    found = losses[f"{name} {strategy}"]

    tolerance = FP32_TOLERANCE if name == "lora-fp32" else BF16_TOLERANCE
    assert found == pytest.approx(losses["lora-fp32 ddp"], rel=tolerance)
    assert found[-1] < found[0] - 0.1
