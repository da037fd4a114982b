"""Programs as people publish them, unmodified, as script jobs of a real agent on two ranks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from shunter.checking import check
from shunter.document import load_document
from support.agents import AgentProcess, assignment
from support.documents import REPOSITORY
from support.node_service import NodeService

pytestmark = [pytest.mark.trainer, pytest.mark.slow, pytest.mark.timeout(300)]

PROGRAMS = Path(__file__).parents[1] / "data" / "programs"
EXAMPLE = REPOSITORY / "examples" / "script-deepspeed"
WITHOUT_COMPILER = {"environment": {"variables": {"PYTHONPATH": str(PROGRAMS / "without_compiler")}}}
"""DeepSpeed on CPUs would compile an operator for a minute."""
NANOGPT = ["--backend=gloo", "--device=cpu", "--compile=False", "--out_dir=${output_dir}"]
HUGGING_FACE = ["--output_dir", "${output_dir}", "--per_device_train_batch_size", "4", "--max_steps", "3"]


def run(
    service: NodeService, program: str, *arguments: str, strategy: dict[str, Any] | None = None, **workload: Any
) -> str:
    """What the program's ranks printed."""
    script = {"kind": "script", "entrypoint": str(PROGRAMS / program), "arguments": list(arguments), **workload}
    document = {**WITHOUT_COMPILER, "strategy": strategy or {"kind": "own"}}
    service.run(assignment(script, ranks={"ranks_per_node": 2}, document=document))
    service.wait_for("drained", seconds=240)
    said = b"\n".join(service.log(rank, stream) for rank in range(2) for stream in ("stdout", "stderr")).decode()
    assert service.data("failed") == [], said[-3000:]
    return said


def test_a_character_level_gpt_with_ddp(service: NodeService, agent: AgentProcess) -> None:
    said = run(service, "nanogpt.py", *NANOGPT, strategy={"kind": "ddp"})

    losses = [float(loss) for loss in re.findall(r"iter \d+: loss ([0-9.]+)", said)]
    assert len(losses) == 20
    assert losses[-1] < losses[0] - 0.3
    assert (agent.folder / "outputs" / "1" / "ckpt.pt").is_file()


@pytest.mark.nightly
def test_a_trainer_with_snapshots_under_torchrun(service: NodeService, agent: AgentProcess) -> None:
    said = run(service, "mingpt.py", "--snapshot_path", "${output_dir}/snapshot.pt", launcher="torchrun")

    assert {rank for rank in ("[RANK0]", "[RANK1]") if rank in said} == {"[RANK0]", "[RANK1]"}
    assert (agent.folder / "outputs" / "1" / "snapshot.pt").is_file()


@pytest.mark.nightly
def test_a_sharded_model_of_its_own_under_torchrun(service: NodeService, agent: AgentProcess) -> None:
    said = run(service, "fsdp2.py", "--checkpoint-dir", "${output_dir}", launcher="torchrun")

    assert len(re.findall(r"step \d loss", said)) == 5
    assert (agent.folder / "outputs" / "1" / "step-5" / ".metadata").is_file()


def test_deepspeeds_first_example_with_its_own_file(service: NodeService, agent: AgentProcess) -> None:
    own = {"kind": "own", "deepspeed_file": str(PROGRAMS / "ds_cifar.json")}

    said = run(service, "cifar_deepspeed.py", "--deepspeed", "--deepspeed_config", "${deepspeed_config}", strategy=own)

    assert re.findall(r"\[1, +(\d)\] loss: [0-9.]+ stage 2", said) == ["1", "2", "3", "4"]
    assert said.count("Finished Training") == 2


def test_a_program_with_accelerate_is_spread_by_its_launcher(service: NodeService, agent: AgentProcess) -> None:
    said = run(service, "with_accelerate.py", launcher="accelerate", strategy={"kind": "ddp"})

    assert "DistributedType.MULTI_CPU on 2 processes" in said
    losses = [float(loss) for loss in re.findall(r"epoch \d: loss ([0-9.]+)", said)]
    assert len(losses) == 3
    assert losses[-1] < losses[0]


def test_the_document_of_the_example_is_valid() -> None:
    check(load_document(EXAMPLE / "job.json"), EXAMPLE)


def test_hugging_faces_trainer_with_a_deepspeed_file(service: NodeService, agent: AgentProcess) -> None:
    own = {"kind": "own", "deepspeed_file": str(EXAMPLE / "ds_z3.json")}

    said = run(service, str(EXAMPLE / "train.py"), "--deepspeed", "${deepspeed_config}", *HUGGING_FACE, strategy=own)

    assert re.search(r"stage 3 steps 3 loss [0-9.]+", said)
    assert (agent.folder / "outputs" / "1" / "config.json").is_file()


def test_a_deepspeed_file_that_cannot_work_ends_the_job_before_a_rank_starts(
    service: NodeService, agent: AgentProcess, tmp_path: Path
) -> None:
    (tmp_path / "ds.json").write_text('{"train_batch_size": 15, "bf16": {"enabled": true}, "fp16": {"enabled": true}}')
    own = {"kind": "own", "deepspeed_file": str(tmp_path / "ds.json")}
    script = {"kind": "script", "entrypoint": str(PROGRAMS / "cifar_deepspeed.py")}

    service.run(assignment(script, ranks={"ranks_per_node": 2}, document={"strategy": own}))
    service.wait_for("drained", seconds=30)

    (failure,) = service.data("failed")
    assert failure["reason"] == "setup_failed"
    assert "15 does not divide by 2 ranks (of this job)" in failure["message"]
    assert "`bf16.enabled` is true as well" in failure["message"]
    assert service.data("rank_up") == []
