"""`shunter provider new`: what it writes works, is the example, and takes every name that a plugin may have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from shunter_providers.skeleton import BadName, rendered, write_skeleton

EXAMPLE = Path(__file__).parents[2] / "examples" / "acme_provider"


def test_the_example_is_what_it_writes_for_acme() -> None:
    files = {path: (EXAMPLE / path).read_text(encoding="utf-8") for path in rendered("acme")}

    assert files == rendered("acme")


def test_no_file_of_a_plugin_with_another_name_speaks_of_acme(tmp_path: Path) -> None:
    written = write_skeleton("my-cloud-2", tmp_path / "new")

    texts = [f"{path} {path.read_text(encoding='utf-8')}" for path in written]

    assert [text for text in texts if "acme" in text.lower()] == []
    assert (tmp_path / "new" / "shunter_my_cloud_2" / "provider.py").exists()
    assert 'my-cloud-2 = "shunter_my_cloud_2:MyCloud2Provider"' in (tmp_path / "new" / "pyproject.toml").read_text()


@pytest.mark.parametrize("name", ["", "A", "a", "1st", "with space", "../up", "ends-", "x" * 40])
def test_a_name_that_cannot_be_a_plugins_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadName, match="small letters, digits and hyphens"):
        write_skeleton(name, tmp_path / "new")

    assert not (tmp_path / "new").exists()


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")

    with pytest.raises(FileExistsError, match="holds something already"):
        write_skeleton("acme", tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.slow
def test_a_new_plugin_passes_the_whole_kit_at_once(tmp_path: Path) -> None:
    write_skeleton("my-cloud", tmp_path / "new")
    environment = {"PYTHONPATH": str(tmp_path / "new"), "PATH": "/usr/bin:/bin", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}

    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "pytest_asyncio.plugin", "-p", "shunter_providers.pytest_plugin"],
        cwd=tmp_path / "new",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )

    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-2000:]
    assert " passed" in run.stdout
