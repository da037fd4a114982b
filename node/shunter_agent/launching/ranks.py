"""The environment of set-up commands and ranks: torchrun's exact set, the document's variables, and ours."""

from __future__ import annotations

import os
from typing import Any, Mapping, NamedTuple

from shunter_agent.keeping.layout import Layout
from shunter_agent.launching.debugging import SWITCH, debug_environment
from shunter_agent.preparing.substitution import substitute_values
from shunter_agent.processes import MARK

TORCHRUN = frozenset(
    {
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "GROUP_RANK",
        "GROUP_WORLD_SIZE",
        "ROLE_RANK",
        "ROLE_WORLD_SIZE",
        "ROLE_NAME",
        "MASTER_ADDR",
        "MASTER_PORT",
        "TORCHELASTIC_RESTART_COUNT",
        "TORCHELASTIC_MAX_RESTARTS",
        "TORCHELASTIC_RUN_ID",
        "TORCHELASTIC_USE_AGENT_STORE",
        "TORCHELASTIC_ERROR_FILE",
    }
)
"""Never inherited: each is set exactly, or absent."""


class Ready(NamedTuple):
    """What the set-up of a generation made."""

    python: str
    """The interpreter of ranks and set-up commands."""
    cwd: str
    virtual_env: str | None = None
    resume: str | None = None
    """Folder of the checkpoint to go on from."""


class Crew(NamedTuple):
    """One generation on this node: its assignment, its folders, and what was made ready for it."""

    assignment: dict[str, Any]
    layout: Layout
    ready: Ready
    master_port: int

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = self.assignment["document"]
        return found

    @property
    def generation(self) -> int:
        return int(self.assignment["generation"])

    @property
    def ranks(self) -> dict[str, Any]:
        found: dict[str, Any] = self.assignment["ranks"]
        return found

    @property
    def first_rank(self) -> int:
        return int(self.ranks["node_rank"]) * int(self.ranks["ranks_per_node"])


def locate(crew: Crew, path: str) -> str:
    """A path of the document on this node: `input:NAME[/path]`, or relative to the source."""
    if path.startswith("input:"):
        return os.path.join(crew.layout.inputs, path[len("input:") :])
    return os.path.join(crew.ready.cwd, path)


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """The agent's own environment without what is Shunter's, which may hold secrets, or torchrun's."""
    return {
        name: value for name, value in environment.items() if not name.startswith("SHUNTER_") and name not in TORCHRUN
    }


def node_environment(crew: Crew, values: Mapping[str, str]) -> dict[str, str]:
    """What every process of the generation on this node gets; `values` are the substitutions."""
    environment = inherited(os.environ)
    environment.update(_defaults(crew))
    variables = substitute_values((crew.document.get("environment") or {}).get("variables") or {}, values)
    dumps = os.path.join(crew.layout.outputs(crew.generation), "flight-recorder")
    environment.update(debug_environment(variables.get(SWITCH, ""), dumps))
    environment.update(variables)
    environment["PATH"] = os.pathsep.join([os.path.dirname(crew.ready.python), environment.get("PATH") or os.defpath])
    if crew.ready.virtual_env:
        environment["VIRTUAL_ENV"] = crew.ready.virtual_env
    environment.update(_ours(crew))
    if (crew.document.get("workload") or {}).get("kind") == "training":
        inherited_path = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join(
            [crew.layout.trainer, *([inherited_path] if inherited_path else [])]
        )
    return environment


def rank_environment(crew: Crew, local_rank: int) -> dict[str, str]:
    """What one rank gets besides: exactly torchrun's variables, and the rank's metrics file.

    `TORCHELASTIC_USE_AGENT_STORE` is False, since no launcher of ours hosts a store: rank 0 does.
    """
    ranks, rank = crew.ranks, crew.first_rank + local_rank
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "WORLD_SIZE": str(ranks["world_size"]),
        "LOCAL_WORLD_SIZE": str(ranks["ranks_per_node"]),
        "GROUP_RANK": str(ranks["node_rank"]),
        "GROUP_WORLD_SIZE": str(ranks["num_nodes"]),
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(ranks["world_size"]),
        "ROLE_NAME": "default",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": f"{crew.assignment['job_id']}-{crew.generation}",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCHELASTIC_ERROR_FILE": crew.layout.error_file(crew.generation, rank),
    }


def _defaults(crew: Crew) -> dict[str, str]:
    """What the document's variables may change."""
    defaults = {
        "OMP_NUM_THREADS": str(crew.ranks.get("cpu_threads_per_rank") or 1),
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "PYTHONUNBUFFERED": "1",
    }
    interface = crew.ranks.get("interface")
    if interface:
        defaults.update(GLOO_SOCKET_IFNAME=interface, NCCL_SOCKET_IFNAME=interface)
    return defaults


def _ours(crew: Crew) -> dict[str, str]:
    """What nobody may change."""
    layout, ranks, generation = crew.layout, crew.ranks, crew.generation
    environment = {
        "MASTER_ADDR": str(ranks["master_addr"]),
        "MASTER_PORT": str(crew.master_port),
        "CUDA_VISIBLE_DEVICES": ",".join(str(gpu) for gpu in ranks.get("gpus") or []),
        "SHUNTER_JOB_ID": str(crew.assignment["job_id"]),
        "SHUNTER_GENERATION": str(generation),
        "SHUNTER_NODE_RANK": str(ranks["node_rank"]),
        "SHUNTER_NUM_NODES": str(ranks["num_nodes"]),
        "SHUNTER_RANKS_PER_NODE": str(ranks["ranks_per_node"]),
        "SHUNTER_WORLD_SIZE": str(ranks["world_size"]),
        "SHUNTER_DOCUMENT": layout.document(generation),
        "SHUNTER_INPUTS_DIR": layout.inputs,
        "SHUNTER_CHECKPOINT_DIR": layout.checkpoints,
        "SHUNTER_OUTPUT_DIR": layout.outputs(generation),
        MARK: layout.root,
    }
    if crew.ready.resume:
        environment["SHUNTER_RESUME_DIR"] = crew.ready.resume
    return environment
