"""Which processes a generation needs on this node, and their command lines: one function for each launcher."""

from __future__ import annotations

import json
import os
import socket
from typing import Any, Callable, Mapping, NamedTuple

from shunter_agent.files import write_json
from shunter_agent.launching import accelerate
from shunter_agent.launching.ranks import Crew, locate, node_environment, rank_environment
from shunter_agent.preparing.substitution import substitute_all

_PORTS = (20000, 32000)
"""Below the range from which the kernel takes ports of outgoing connections, so a free one stays free for a moment."""


class Process(NamedTuple):
    """One process to start."""

    rank: int
    """Names its files: its rank, or the first of those it stands for."""
    ranks: tuple[int, ...]
    argv: tuple[str, ...]
    environment: dict[str, str]
    signal_group: bool
    """Whether SIGTERM goes to its group: a shell does not pass it on, but a data loader's worker must not get it."""


def plan_processes(crew: Crew) -> list[Process]:
    """All processes of this generation on this node.

    Raises:
        ValueError: the document asks for something that cannot be.
    """
    workload = crew.document["workload"]
    values = substitutions(crew)
    shared = node_environment(crew, values)
    if workload["kind"] == "training":
        return _one_a_rank(crew, shared, (crew.ready.python, "-m", "shunter_trainer"), False)
    arguments = substitute_all(workload.get("arguments") or (), values)
    if crew.ready.resume:
        arguments += substitute_all(workload.get("resume_arguments") or (), values)
    launcher = workload.get("launcher") or "torch"
    if workload.get("command"):
        program = (*substitute_all(workload["command"], values), *arguments)
        if launcher not in ("torch", "plain"):
            raise ValueError(f"the launcher {launcher} starts a Python entrypoint, not a command")
        spread = _one_a_rank if launcher == "torch" else _one_a_node
        return spread(crew, shared, program, True)
    argv = _LAUNCHERS[launcher](crew, _program(workload), values)
    if launcher == "accelerate":
        shared = {**accelerate.environment(crew, values.get("deepspeed_config")), **shared}
    spread = _one_a_rank if launcher == "torch" else _one_a_node
    return spread(crew, shared, (crew.ready.python, *argv, *arguments), False)


def substitutions(crew: Crew) -> dict[str, str]:
    """The closed set of `${…}` values. Configuration files are written only when the document names them."""
    document = crew.document
    text = json.dumps([document["workload"], (document.get("environment") or {}).get("variables")])
    values = {
        "checkpoint_dir": crew.layout.checkpoints,
        "latest_checkpoint": crew.ready.resume or "",
        "output_dir": crew.layout.outputs(crew.generation),
        "world_size": str(crew.ranks["world_size"]),
        "job_id": str(crew.assignment["job_id"]),
    }
    for name in document.get("inputs") or {}:
        values[f"inputs.{name}"] = os.path.join(crew.layout.inputs, name)
    deepspeed = deepspeed_config(crew)
    if deepspeed:
        values["deepspeed_config"] = deepspeed
    if "${accelerate_config}" in text:
        values["accelerate_config"] = accelerate.write_configuration(crew, deepspeed)
    return values


def free_port(address: str) -> int:
    """A port of this machine on which nobody listens at the moment."""
    for _ in range(200):
        port = _PORTS[0] + int.from_bytes(os.urandom(4), "big") % (_PORTS[1] - _PORTS[0])
        try:
            with socket.create_server((address, port)):
                return port
        except OSError:
            continue
    with socket.create_server(("", 0)) as server:
        return int(server.getsockname()[1])


def deepspeed_config(crew: Crew) -> str | None:
    """The DeepSpeed file of the job: the program's own, or one written from the strategy; None without either."""
    strategy = crew.document.get("strategy") or {}
    if strategy.get("kind") == "own" and strategy.get("deepspeed_file"):
        return locate(crew, strategy["deepspeed_file"])
    if strategy.get("kind") != "deepspeed":
        return None
    config = dict(strategy.get("config") or {})
    zero = dict(config.get("zero_optimization") or {})
    zero["stage"] = strategy["zero_stage"]
    for part, field in (("optimizer", "offload_optimizer"), ("param", "offload_parameters")):
        if strategy.get(field, "none") != "none":
            zero[f"offload_{part}"] = {**(zero.get(f"offload_{part}") or {}), "device": strategy[field]}
    config["zero_optimization"] = zero
    path = os.path.join(crew.layout.generation(crew.generation), "deepspeed.json")
    write_json(path, config)
    return path


def _one_a_rank(crew: Crew, shared: dict[str, str], argv: tuple[str, ...], group: bool) -> list[Process]:
    found = []
    for local_rank in range(int(crew.ranks["ranks_per_node"])):
        rank = crew.first_rank + local_rank
        environment = {**shared, **rank_environment(crew, local_rank), **_metrics_file(crew, rank)}
        found.append(Process(rank, (rank,), argv, environment, group))
    return found


def _one_a_node(crew: Crew, shared: dict[str, str], argv: tuple[str, ...], group: bool) -> list[Process]:
    """A launcher or a plain program: it is no rank itself, so it gets none of a rank's variables."""
    first = crew.first_rank
    environment = {**shared, "NODE_RANK": str(crew.ranks["node_rank"]), **_metrics_file(crew, first)}
    return [Process(first, tuple(range(first, first + int(crew.ranks["ranks_per_node"]))), argv, environment, group)]


def _metrics_file(crew: Crew, rank: int) -> dict[str, str]:
    return {"SHUNTER_METRICS_FILE": crew.layout.metrics(crew.generation, rank)}


def _program(workload: Mapping[str, Any]) -> tuple[str, ...]:
    entrypoint = workload.get("entrypoint")
    if not entrypoint:
        raise ValueError("the script names neither an entrypoint nor a command")
    return ("-m", entrypoint) if workload.get("module") else (entrypoint,)


def _plain(crew: Crew, program: tuple[str, ...], values: Mapping[str, str]) -> tuple[str, ...]:
    return program


def _torchrun(crew: Crew, program: tuple[str, ...], values: Mapping[str, str]) -> tuple[str, ...]:
    ranks = crew.ranks
    several = ("--local-addr", local_address(ranks["master_addr"], crew.master_port)) if ranks["num_nodes"] > 1 else ()
    return (
        *("-m", "torch.distributed.run", "--nnodes", str(ranks["num_nodes"])),
        *("--nproc-per-node", str(ranks["ranks_per_node"]), "--node-rank", str(ranks["node_rank"])),
        *("--master-addr", str(ranks["master_addr"]), "--master-port", str(crew.master_port)),
        *("--rdzv-id", f"{crew.assignment['job_id']}-{crew.generation}", "--max-restarts", "0"),
        *several,
        *program,
    )


def _accelerate(crew: Crew, program: tuple[str, ...], values: Mapping[str, str]) -> tuple[str, ...]:
    return (*accelerate.launch_arguments(crew, values.get("deepspeed_config")), *program)


_LAUNCHERS: dict[str, Callable[[Crew, tuple[str, ...], Mapping[str, str]], tuple[str, ...]]] = {
    "torch": _plain,
    "plain": _plain,
    "torchrun": _torchrun,
    "accelerate": _accelerate,
}


def local_address(peer: str, port: int) -> str:
    """The address of this machine from which it reaches the peer."""
    family, kind, _, _, address = socket.getaddrinfo(peer, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(address)  # sends nothing
        return str(probe.getsockname()[0])
