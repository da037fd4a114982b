"""DeepSpeed files in uploaded bundles, judged when the job is submitted."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import httpx
import pytest
from shunter import bundle as packing
from shunter_store.storage import bundle_members
from support.documents import changed, script
from support.service_app import App

WRONG = {"train_batch_size": 30, "train_micro_batch_size_per_gpu": 4}
RIGHT = {"train_micro_batch_size_per_gpu": 4}


async def submitted(app: App, folder: Path, path: str, files: dict[str, bytes], **changes: Any) -> httpx.Response:
    """The answer to a script with this DeepSpeed file, in a bundle of these files."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    with packing.pack(folder) as packed:
        data = b"".join(packed.chunks())
    made = await app.http.post("/v1/bundles", content=data, headers={"Content-Type": "application/gzip"})
    bundle = made.json()["id"]
    document = changed(
        script(),
        {
            "source.id": bundle,
            "inputs.train.from": f"bundle:{bundle}",
            "strategy": {"kind": "own", "deepspeed_file": path},
            **changes,
        },
    )
    return await app.http.post("/v1/jobs", json=document)


@pytest.mark.parametrize("path", ["configs/ds.json", "./configs/ds.json", "input:train/configs/ds.json"])
async def test_a_file_that_cannot_work_is_refused_with_its_place_and_numbers(
    app: App, tmp_path: Path, path: str
) -> None:
    files = {"train.py": b"", "configs/ds.json": json.dumps(WRONG).encode()}

    refused = await submitted(app, tmp_path, path, files)

    assert refused.status_code == 422
    assert refused.json()["errors"] == [
        {
            "pointer": "/strategy/deepspeed_file",
            "detail": f"{path}#/train_batch_size: 30 does not divide by `train_micro_batch_size_per_gpu` 4 x 2 ranks "
            "(/resources/cpu_processes), together 8; use 24 or 32",
        }
    ]


async def test_a_file_is_held_to_the_arguments_of_the_program(app: App, tmp_path: Path) -> None:
    arguments = ["--deepspeed", "${deepspeed_config}", "--per_device_train_batch_size", "8"]
    files = {"ds.json": json.dumps(RIGHT).encode()}

    refused = await submitted(app, tmp_path, "ds.json", files, **{"workload.arguments": arguments})

    assert refused.status_code == 422
    assert [fault["pointer"] for fault in refused.json()["errors"]] == ["/workload/arguments/2"]


async def test_a_file_that_can_work_is_taken(app: App, tmp_path: Path) -> None:
    taken = await submitted(app, tmp_path, "ds.json", {"ds.json": json.dumps(RIGHT).encode()})

    assert taken.status_code == 201


async def test_a_file_that_is_not_there_is_named(app: App, tmp_path: Path) -> None:
    refused = await submitted(app, tmp_path, "other.json", {"ds.json": b"{}"})

    assert refused.status_code == 422
    assert refused.json()["errors"][0]["detail"] == "there is no file other.json in this bundle"


async def test_a_file_far_inside_an_archive_is_left_to_the_node(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle_members, "READ_UP_TO_BYTES", 1 << 16)
    files = {"a.bin": os.urandom(1 << 17), "z.json": json.dumps(WRONG).encode()}

    taken = await submitted(app, tmp_path, "z.json", files)

    assert taken.status_code == 201
