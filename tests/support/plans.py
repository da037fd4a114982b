"""Documents and offers for tests of plans."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shunter_planner import Candidate
from shunter_providers.contract import Availability, Offer, Price
from shunter_schemas.job import JobSpec, load_job

LLAMA_8B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}
TINY = {
    "kind": "transformer",
    "layers": 2,
    "hidden": 128,
    "heads": 4,
    "kv_heads": 4,
    "ffn": 512,
    "vocab": 256,
    "context": 128,
}


def training(**parts: Any) -> JobSpec:
    """Llama 3.1 8B on 8 GPUs for 1,000 steps: 24 USD an hour and somewhat more than an hour on H100s."""
    workload = {
        "kind": "training",
        "model": {"kind": "huggingface", "config": LLAMA_8B},
        "data": {"kind": "sample", "name": "python-docs", "tokenizer": "bytes", "sequence_length": 4096},
        "batch": {"global_size": 64},
        "duration": {"steps": 1000},
    }
    workload |= parts.pop("workload", {})
    document = {"version": "1", "name": "job", "workload": workload, "resources": {"gpus": 8}, **parts}
    return load_job(document)


def script(hints: dict[str, Any] | None = None, **parts: Any) -> JobSpec:
    """A program of the user's on 8 GPUs."""
    workload = {"kind": "script", "command": ["true"], **({"hints": hints} if hints else {})}
    return load_job({"version": "1", "name": "job", "workload": workload, "resources": {"gpus": 8}, **parts})


def on(model: str, card_gib: float, usd: float, gpus: int = 8, instance: str = "alpha", **changes: Any) -> Candidate:
    """An offer."""
    offer = Offer(
        instance_type=f"{gpus}x{model}",
        region="eu-1",
        jurisdiction="DE",
        price=Price(gpu_usd_per_hour=usd),
        gpu_model=model,
        gpus=gpus,
        gpu_memory_gib=card_gib,
        cpus=16 * gpus,
        memory_gib=200.0 * gpus,
        availability=Availability.AVAILABLE,
        interconnect="rdma",
    )
    return Candidate(instance, replace(offer, **changes))


def on_cpus(**changes: Any) -> Candidate:
    """Four CPU ranks, which cost nothing."""
    offer = Offer(
        instance_type="cpu",
        region="here",
        jurisdiction="",
        price=Price(billed=False),
        cpus=4,
        cpu_slots=4,
        memory_gib=16.0,
        availability=Availability.AVAILABLE,
    )
    return Candidate("alpha", replace(offer, **changes))


H100, L40S = on("H100", 80, 24.0), on("L40S", 48, 8.0)
