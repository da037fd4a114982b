"""Files that a document names in a folder on this machine are looked for before anything is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from shunter.checking import check
from shunter.errors import InvalidDocument
from shunter_schemas.faults import Fault
from support.documents import ABSENT, changed, script


def document(**changes: Any) -> dict[str, Any]:
    folder = {"source": {"kind": "folder", "path": "project"}, "inputs": ABSENT, "workload.arguments": []}
    return changed(script(), {**folder, **changes})


@pytest.mark.parametrize(
    ("changes", "place", "detail"),
    [
        ({"workload.entrypoint": "trian.py"}, "/workload/entrypoint", "trian.py in {}; did you mean `train.py`?"),
        ({"workload.entrypoint": "python train.py"}, "/workload/entrypoint", "python train.py in {}; did you mean"),
        ({"workload.entrypoint": "deep/x.py"}, "/workload/entrypoint", "deep/x.py in {}"),
        (
            {"environment.requirements_file": "requirements.txt"},
            "/environment/requirements_file",
            "requirements.txt in {}",
        ),
    ],
)
def test_a_file_that_is_not_there_is_named(tmp_path: Path, changes: dict[str, Any], place: str, detail: str) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train.py").touch()

    with pytest.raises(InvalidDocument) as refusal:
        check(document(**changes), tmp_path)

    (fault,) = refusal.value.faults
    assert isinstance(fault, Fault)
    assert fault.pointer == place
    assert fault.detail.startswith(f"there is no file {detail.format(tmp_path / 'project')}")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"workload.entrypoint": "made.py", "environment.setup": ["touch made.py"]},
        {"workload.entrypoint": "package.train", "workload.module": True},
        {"workload.entrypoint": ABSENT, "workload.command": ["nothing"]},
    ],
)
def test_what_may_be_there_on_the_node_is_not_looked_for(tmp_path: Path, changes: dict[str, Any]) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train.py").touch()

    check(document(**changes), tmp_path)
