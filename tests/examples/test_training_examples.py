"""The documents that users would write first, as they are submitted, with small models and little data."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from shunter import Client
from shunter_trainer.models.huggingface.configuration import auto_class
from support.documents import REPOSITORY
from support.git_repositories import make_repository
from support.image_folders import write_classes
from support.tokenizer_folders import write_tokenizer
from support.toy_models import save_toy
from support.up_process import Up, running_up

pytestmark = [
    pytest.mark.slow,
    pytest.mark.trainer,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated"),
]

ENDS_WITHIN_S = 240
RESNET = """
from torch import nn

class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.linear = nn.Linear(8, 10)

    def forward(self, x):
        return self.linear(self.bn(self.conv(x)).relu().mean((2, 3)))

def ResNet18():
    return ResNet()
"""
SMALL = {
    "workload.data.sequence_length": 64,
    "workload.batch.global_size": 4,
    "workload.duration": {"steps": 6},
    "workload.checkpoint": {"every_steps": 3, "keep": 1},
    "workload.evaluation.every_steps": 3,
    "workload.optimizer.lr": 0.01,
    "workload.log_every_steps": 1,
}
SMALL_PICTURES = {
    "workload.model.config": {
        "model_type": "vit",
        "image_size": 16,
        "patch_size": 4,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    },
    "workload.data.workers_per_gpu": 0,
    "workload.batch.global_size": 6,
    "workload.duration": {"steps": 40},
    "workload.checkpoint": {"every_steps": 40},
    "workload.evaluation.every_steps": 20,
    "workload.optimizer.lr": 0.003,
}


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running_up(tmp_path_factory.mktemp("up")) as process:
        yield process


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documents, and beside them what they name."""
    folder = tmp_path_factory.mktemp("examples")
    for name in ("chat-fsdp", "lora-hsdp", "images-ddp", "smoke-git"):
        (folder / f"{name}.json").write_text((REPOSITORY / "examples" / f"{name}.json").read_text())
    save_toy("llama", folder / "base", vocab_size=400)
    write_tokenizer(folder / "base")
    (folder / "chats").mkdir()
    (folder / "chats" / "greetings.jsonl").write_text("".join(f"{json.dumps(chat(number))}\n" for number in range(80)))
    write_classes(folder / "images" / "train", each=16)
    write_classes(folder / "images" / "validation", each=4)
    return folder


def chat(number: int) -> dict[str, Any]:
    question, answer = f"hello, how are you, number {number}?", "I am fine, thank you."
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


def trained(up: Up, document: Path, out: Path, changes: dict[str, Any]) -> tuple[Path, dict[str, list[float]]]:
    """What the job leaves, and its losses by name."""
    settings = [f"{path}={json.dumps(value)}" for path, value in changes.items()]
    with Client(data_dir=up.data_dir) as client:
        job = client.wait(client.submit(document, settings=settings).id, timeout_s=ENDS_WITHIN_S)
        said = "\n".join(line.text for line in client.logs(job.id, tail=30))
        assert job.state == "succeeded", f"{job.reason} {job.message}\n{said}"
        client.download_artifacts(job.id, out)
        columns = client.metrics(job.id, names=["loss", "val_loss", "val_top1"]).columns()
    return out, {name: list(values.values()) for name, values in columns.items()}


def test_a_chat_model_is_fine_tuned_under_fsdp_and_loads_with_its_tokenizer(
    up: Up, folder: Path, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    changes = {**SMALL, "resources": {"cpu_processes": 2}}
    out, values = trained(up, folder / "chat-fsdp.json", tmp_path, changes)

    model, tokenizer = auto_class("causal_lm").from_pretrained(out), AutoTokenizer.from_pretrained(out)
    prompt: Any = tokenizer.apply_chat_template(
        chat(3)["messages"][:1], add_generation_prompt=True, return_tensors="pt"
    )
    with torch.no_grad():
        assert model(**prompt).logits.shape[-1] == 400
    assert values["loss"][-1] < values["loss"][0] - 0.3
    assert len(values["val_loss"]) == 2


def test_an_adapter_is_trained_under_hsdp_and_loads_onto_its_base(up: Up, folder: Path, tmp_path: Path) -> None:
    from peft import PeftModel

    changes = {**SMALL, "resources": {"cpu_processes": 2}}
    out, values = trained(up, folder / "lora-hsdp.json", tmp_path, changes)

    ids = {"input_ids": torch.arange(5, 37).unsqueeze(0)}
    merged = auto_class("causal_lm").from_pretrained(out).eval()
    base = auto_class("causal_lm").from_pretrained(folder / "base").eval()
    with torch.no_grad():
        before = base(**ids).logits
        adapted = PeftModel.from_pretrained(base, str(out / "adapter")).eval()(**ids).logits
        assert torch.allclose(merged(**ids).logits, adapted, atol=1e-5)
    assert not torch.allclose(adapted, before, atol=1e-3)
    assert values["loss"][-1] < values["loss"][0] - 0.2


def test_a_vision_transformer_learns_classes_under_ddp_and_names_them(up: Up, folder: Path, tmp_path: Path) -> None:
    changes = {**SMALL_PICTURES, "resources": {"cpu_processes": 2}}
    out, values = trained(up, folder / "images-ddp.json", tmp_path, changes)

    model = auto_class("image_classification").from_pretrained(out)
    assert model.config.id2label == {0: "blue", 1: "green", 2: "red"}
    assert values["val_top1"][-1] > 0.9
    assert len(values["val_loss"]) == 2


def test_a_model_from_a_git_repository_is_tried_on_two_processes(up: Up, folder: Path, tmp_path: Path) -> None:
    commit = make_repository(
        tmp_path / "repository", {"models/__init__.py": "from .resnet import *", "models/resnet.py": RESNET}
    )
    changes = {"source.url": f"file://{tmp_path}/repository", "source.ref": commit, "workload.log_every_steps": 1}

    out, values = trained(up, folder / "smoke-git.json", tmp_path / "out", changes)

    assert {"conv.weight", "bn.running_var", "linear.bias"} <= load_file(out / "model.safetensors").keys()
    assert len(values["loss"]) == 10
    assert len(values["val_top1"]) == 2
