"""Hugging Face's accelerate: its command line, its configuration file, and what both say of the job's strategy.

Accelerate spreads a program over GPUs by DDP, FSDP2, HSDP (FSDP2 on a two-dimensional mesh) or DeepSpeed; over CPUs by
DDP alone (under DeepSpeed it tells no rank of the others there, and each takes all of the data).
"""

from __future__ import annotations

import os
from typing import Any, Mapping

from shunter_agent.files import write_json
from shunter_agent.launching.ranks import Crew


def launch_arguments(crew: Crew, deepspeed: str | None) -> tuple[str, ...]:
    """Arguments of `python`, up to the program. `deepspeed` is the path of a DeepSpeed document."""
    ranks = crew.ranks
    return (
        *("-m", "accelerate.commands.launch", "--num_machines", str(ranks["num_nodes"])),
        *("--num_processes", str(ranks["world_size"]), "--machine_rank", str(ranks["node_rank"])),
        *("--main_process_ip", str(ranks["master_addr"]), "--main_process_port", str(crew.master_port)),
        *("--same_network", "--mixed_precision", "no", "--dynamo_backend", "no"),
        *_kind(crew, deepspeed),
    )


def write_configuration(crew: Crew, deepspeed: str | None) -> str:
    """Write a configuration file for a program that calls accelerate itself; its path."""
    ranks = crew.ranks
    config: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": _distributed_type(crew, deepspeed),
        "num_machines": ranks["num_nodes"],
        "num_processes": ranks["world_size"],
        "machine_rank": ranks["node_rank"],
        "main_process_ip": ranks["master_addr"],
        "main_process_port": crew.master_port,
        "same_network": True,
        "mixed_precision": "no",
        "use_cpu": not ranks.get("gpus"),
    }
    if deepspeed:
        config["deepspeed_config"] = {"deepspeed_config_file": deepspeed, "deepspeed_multinode_launcher": "standard"}
    elif _shards(crew):
        config["fsdp_config"] = _fsdp(crew)
        if _mesh(crew):
            config["parallelism_config"] = _mesh(crew)
    path = os.path.join(crew.layout.generation(crew.generation), "accelerate.json")
    write_json(path, config)
    return path


def environment(crew: Crew, deepspeed: str | None) -> dict[str, str]:
    """What the launcher needs besides: on CPUs, accelerate gives every rank a training of its own unless it is told."""
    return {"ACCELERATE_USE_CPU": "true"} if not crew.ranks.get("gpus") and not deepspeed else {}


def _kind(crew: Crew, deepspeed: str | None) -> tuple[str, ...]:
    if deepspeed:
        return (
            *("--use_deepspeed", "--deepspeed_config_file", deepspeed),
            *("--deepspeed_multinode_launcher", "standard"),
        )
    if _shards(crew):
        mesh = _mesh(crew)
        switches = ("--use_fsdp", *(("--use_parallelism_config",) if mesh else ()))
        return (*switches, *(word for name, value in {**_fsdp(crew), **mesh}.items() for word in (f"--{name}", value)))
    if int(crew.ranks["world_size"]) > 1:
        return ("--multi_gpu",)
    return () if crew.ranks.get("gpus") else ("--cpu",)


def _distributed_type(crew: Crew, deepspeed: str | None) -> str:
    if deepspeed:
        return "DEEPSPEED"
    if _shards(crew):
        return "FSDP"
    if int(crew.ranks["world_size"]) > 1:
        return "MULTI_GPU" if crew.ranks.get("gpus") else "MULTI_CPU"
    return "NO"


def _strategy(crew: Crew) -> Mapping[str, Any]:
    found: Mapping[str, Any] = crew.document.get("strategy") or {}
    return found


def _shards(crew: Crew) -> bool:
    return _strategy(crew).get("kind") in ("fsdp", "hsdp")


def _fsdp(crew: Crew) -> dict[str, str]:
    strategy = _strategy(crew)
    wrap = strategy.get("wrap", "auto")
    config = {
        "fsdp_version": "2",
        "fsdp_reshard_after_forward": str(strategy.get("reshard_after_forward", True)).lower(),
        "fsdp_offload_params": str(strategy.get("offload", "none") == "cpu").lower(),
        # Without names: the blocks that a model of transformers names itself, else the whole model as one unit.
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    }
    if wrap != "auto":
        config["fsdp_transformer_layer_cls_to_wrap"] = ",".join(wrap)
    return config


def _mesh(crew: Crew) -> dict[str, str]:
    """The two axes of HSDP."""
    strategy, ranks = _strategy(crew), crew.ranks
    if strategy.get("kind") != "hsdp":
        return {}
    wanted = strategy.get("shard_size", "node")
    size = int(ranks["ranks_per_node"]) if wanted == "node" else int(wanted)
    return {
        "parallelism_config_dp_replicate_size": str(int(ranks["world_size"]) // size),
        "parallelism_config_dp_shard_size": str(size),
    }
