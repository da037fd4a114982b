"""Job documents for tests: a valid one, and copies of it with something changed."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
BUNDLE_ID = "bun_" + "0123456789abcdef" * 4

ABSENT = object()
"""In `changed`: the member is removed."""


def tiny_lm() -> dict[str, Any]:
    """The example document, which trains a small language model with DDP on two CPU processes."""
    document: dict[str, Any] = json.loads((REPOSITORY / "examples" / "tiny-lm-ddp.json").read_text(encoding="utf-8"))
    return document


def script() -> dict[str, Any]:
    """A document that runs a program of the user's from an uploaded bundle."""
    return {
        "version": "1",
        "name": "a script",
        "source": {"kind": "bundle", "id": BUNDLE_ID},
        "inputs": {"train": {"from": f"bundle:{BUNDLE_ID}"}},
        "workload": {"kind": "script", "entrypoint": "train.py", "arguments": ["--data", "${inputs.train}"]},
        "resources": {"cpu_processes": 2},
    }


def changed(document: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A copy with members set by path (`workload.batch.global_size`), or removed by `ABSENT`."""
    result = copy.deepcopy(document)
    for path, value in changes.items():
        *parents, last = path.split(".")
        place = result
        for name in parents:
            place = place.setdefault(name, {})
        if value is ABSENT:
            place.pop(last, None)
        else:
            place[last] = value
    return result


def body(document: Any) -> bytes:
    """The document as a request carries it."""
    return json.dumps(document).encode()
