"""Trainings that outlive the supervisor: the agents of `local` nodes in the data directory."""

from __future__ import annotations

import json
from pathlib import Path


def count_live(nodes: Path) -> int:
    """How many agents of local nodes run now, by `nodes/<token>/agent.json` and /proc (a zombie is dead)."""
    return sum(_lives(folder) for folder in nodes.glob("*/agent.json"))


def _lives(agent_file: Path) -> bool:
    try:
        agent = json.loads(agent_file.read_text())
        fields = Path(f"/proc/{int(agent['pid'])}/stat").read_text().rpartition(")")[2].split()
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return (
            fields[0] not in "ZX"
            and int(fields[19]) == int(agent["start_time"])
            and agent.get("boot_id", boot_id) == boot_id
        )
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return False
