"""A DeepSpeed file that cannot work is refused on the user's own machine, before anything is sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from shunter.checking import check
from shunter.errors import InvalidDocument
from support.documents import ABSENT, changed, script


def document(**changes: Any) -> dict[str, Any]:
    return changed(
        script(),
        {
            "source": {"kind": "folder", "path": "project"},
            "inputs": ABSENT,
            "workload.arguments": [],
            "strategy": {"kind": "own", "deepspeed_file": "ds.json"},
            **changes,
        },
    )


@pytest.mark.parametrize(
    ("content", "detail"),
    [
        ({"train_batch_size": 3}, "ds.json#/train_batch_size: 3 does not divide by 2 ranks"),
        (None, "ds.json cannot be read: No such file or directory"),
    ],
)
def test_a_file_that_cannot_work_is_refused(tmp_path: Path, content: Any, detail: str) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train.py").touch()
    if content is not None:
        (tmp_path / "project" / "ds.json").write_text(json.dumps(content))

    with pytest.raises(InvalidDocument) as refusal:
        check(document(), tmp_path)

    (fault,) = refusal.value.faults
    assert fault.pointer == "/strategy/deepspeed_file"
    assert detail in fault.detail


def test_a_file_that_can_work_is_taken(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train.py").touch()
    (tmp_path / "project" / "ds.json").write_text('{"train_batch_size": 4}')

    check(document(), tmp_path)
