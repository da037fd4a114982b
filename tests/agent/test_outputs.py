"""What of the output folder is stored, and what is said of the rest."""

import os
from pathlib import Path

import pytest
from shunter_agent.reporting.outputs import output_files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An output folder within a job's folder, and a file outside of it."""
    (tmp_path / "outside.bin").write_bytes(b"x")
    (tmp_path / "job" / "cache").mkdir(parents=True)
    (tmp_path / "job" / "cache" / "shared.bin").write_bytes(b"x")
    outputs = tmp_path / "job" / "outputs" / "1"
    (outputs / "deep" / "er").mkdir(parents=True)
    (outputs / "deep" / "er" / "model.bin").write_bytes(b"x")
    return outputs


def test_files_and_links_to_files_of_the_job_are_stored(folder: Path) -> None:
    (folder / "a.bin").symlink_to(folder.parents[1] / "cache" / "shared.bin")
    (folder / "best").symlink_to("deep/er/model.bin")

    found = output_files(str(folder))

    assert found.files == ["a.bin", "best", "deep/er/model.bin"]
    assert found.left_out == {}


def test_what_is_not_stored_is_named_with_the_reason(folder: Path, tmp_path: Path) -> None:
    (folder / "out").symlink_to(tmp_path / "outside.bin")
    (folder / "root").symlink_to("/usr")
    (folder / "latest").symlink_to("deep")
    (folder / "gone").symlink_to("nowhere")
    os.mkfifo(folder / "pipe")
    (folder / "new\nline").touch()
    (folder / "back\\slash").touch()

    found = output_files(str(folder))

    assert found.files == ["deep/er/model.bin"]
    assert found.left_out == {
        "back\\slash": "a name with a line end, another control character or a backslash; rename it",
        "gone": "a broken link",
        "new\nline": "a name with a line end, another control character or a backslash; rename it",
        "out": "a link that leads out of the job's folder; copy the file there",
        "pipe": "no regular file",
        "latest": "a link to a folder; what lies in the output folder is stored by its own name",
        "root": "a link that leads out of the job's folder; copy the file there",
    }
