"""What travels to a node."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path

from shunter_schemas.node_sync import LaunchFile
from shunter_workers import packing

FILE = LaunchFile(node="shn-abcdef-1", sync_token="sns_secret", service_url="http://127.0.0.1:1")


def names(archive: bytes) -> list[str]:
    return zipfile.ZipFile(io.BytesIO(archive)).namelist()


def test_the_same_sources_make_the_same_bytes() -> None:
    first = packing.agent_archive(), packing.trainer_archive()
    packing.agent_archive.cache_clear()
    packing.trainer_archive.cache_clear()

    assert (packing.agent_archive(), packing.trainer_archive()) == first
    times = {entry.date_time for entry in zipfile.ZipFile(io.BytesIO(first[0])).infolist()}
    assert times == {(1980, 1, 1, 0, 0, 0)}


def test_the_agent_runs_from_its_archive_alone(tmp_path: Path) -> None:
    (tmp_path / "agent.pyz").write_bytes(packing.agent_archive())

    said = subprocess.run(
        [sys.executable, "-I", "-S", "agent.pyz", "nonsense"], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert said.returncode == 2
    assert "start|run" in said.stderr


def test_archives_hold_sources_only() -> None:
    agent, trainer = names(packing.agent_archive()), names(packing.trainer_archive())

    assert all(name.endswith(".py") for name in (*agent, *trainer))
    assert {name.split("/")[0] for name in agent} == {"__main__.py", "shunter_agent"}
    assert {name.split("/")[0] for name in trainer} == {"shunter_trainer", "shunter_schemas"}


def test_a_launch_says_who_the_node_is() -> None:
    launch = packing.pack_launch(FILE)

    assert list(launch.argv) == ["{python}", "agent.pyz", "start", "--dir", "."]
    assert set(launch.files) == {"agent.pyz", "trainer.zip", "launch.json"}
    assert json.loads(launch.files["launch.json"])["node"] == "shn-abcdef-1"
