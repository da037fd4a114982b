"""What the jobs of a chaos run do: they count, and shout when another gang of the same job runs beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

SHOUT: Final = "TWO GANGS AT ONCE"

# Each rank holds a lock for its whole life; the kernel lets go of it however the process ends. Each line is a metric
# point too. A shell, since it starts quickest.
COUNTER: Final = """
exec 9>>"$1.$SHUNTER_NODE_RANK.generations"
flock --exclusive --nonblock 9 || echo "TWO GANGS AT ONCE"
echo "$SHUNTER_GENERATION" >&9
line=0
while [ "$line" -lt "$2" ]; do
    echo "line $SHUNTER_GENERATION $line"
    echo "{\\"step\\": $line, \\"count\\": $line}" >>"$SHUNTER_METRICS_FILE"
    line=$((line + 1))
    sleep 0.1 9>&-
done
"""

DUO: Final[dict[str, Any]] = {
    "name": "duo",
    "usd_per_hour": 0.1,
    "gpu_model": "S1",
    "gpus": 1,
    "gpu_memory_gib": 16,
    "cpus": 4,
    "memory_gib": 16,
}
"""A type of node of which a gang needs two."""
SOLO: Final[dict[str, Any]] = {"name": "solo", "usd_per_hour": 0.1, "cpu_slots": 2, "cpus": 2, "memory_gib": 8}

ENDLESS: Final = 100_000
STOP_TAKES_S: Final = 60.0
"""What a budget keeps back for an orderly stop."""


def counting(marks: Path, name: str, lines: int, *, nodes: int = 1) -> dict[str, Any]:
    """A job that prints so many lines on each node, ten a second, and leaves its generations in `marks`."""
    return {
        "version": "1",
        "name": name,
        "workload": {
            "kind": "script",
            "launcher": "plain",
            "command": ["/bin/sh", "-c", COUNTER, "sh", str(marks / name), str(lines)],
        },
        "resources": {"cpu_processes": 1} if nodes == 1 else {"gpus": nodes, "nodes": nodes},
        "recovery": {"node_recoveries": 50},
        "limits": {"max_cost_usd": 5.0, "max_queue_s": 600},
    }


def with_budget(document: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The same with money for so many seconds on one node, and for its stop."""
    budget_usd = (seconds + STOP_TAKES_S) * SOLO["usd_per_hour"] / 3600
    return {**document, "limits": {**document["limits"], "max_cost_usd": budget_usd}}
