"""What the agent tells of its machine."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from shunter_agent import probe
from shunter_schemas.node_sync import Boot
from support.agents import AgentMaker
from support.node_service import NodeService

LISTING = """0, NVIDIA H100 80GB HBM3, 81559, GPU-5f1c, 550.54.15
1, NVIDIA H100 80GB HBM3, [N/A], GPU-77ab, 550.54.15
Failed to initialize NVML: Driver/library version mismatch
"""


def test_gpus_are_read_from_nvidias_tool(service: NodeService, make_agent: AgentMaker, tmp_path: Path) -> None:
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{LISTING}END\n")
    tool.chmod(stat.S_IRWXU)
    make_agent(environment={"PATH": f"{tool.parent}:{os.environ['PATH']}"}).start()

    boot = service.wait_for("boot")

    assert [(gpu["index"], gpu["name"], gpu["memory_gib"]) for gpu in boot["gpus"]] == [
        (0, "NVIDIA H100 80GB HBM3", 79.65),
        (1, "NVIDIA H100 80GB HBM3", 0.0),
    ]


def test_the_record_has_the_protocols_shape(tmp_path: Path) -> None:
    found = Boot.model_validate(probe.boot_record([], str(tmp_path)))

    assert found.cpus >= 1
    assert found.memory_gib > 0.1
    assert found.hostname == os.uname().nodename
    assert not any(address.startswith("127.") or address == "::1" for address in found.addresses)
