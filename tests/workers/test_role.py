"""`python -m shunter_workers`: what it refuses, what it loads, what it weighs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from shunter_store.installation.exit_codes import UNUSABLE, WRONG_SETTINGS
from support import proc
from support.control_plane import ControlPlane, plain
from support.waiting import wait_until

TOO_HEAVY = ("torch", "litestar", "libcloud", "alembic", "deepspeed", "numpy", "uvicorn", "httpx")


def role(data_dir: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SHUNTER_")}
    environ = kept | {"SHUNTER_DATA_DIR": str(data_dir), **settings}
    command = [sys.executable, "-m", "shunter_workers", *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(("argument", "code"), [("--help", 0), ("--children=4", 2)])
def test_an_argument_is_answered_and_starts_nothing(tmp_path: Path, argument: str, code: int) -> None:
    ended = role(tmp_path / "data", argument)

    assert ended.returncode == code
    assert "usage: shunter worker" in ended.stdout + ended.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("settings", "code", "said"),
    [
        (
            {"SHUNTER_WORKER_CHILDREN": "0"},
            WRONG_SETTINGS,
            "shunter worker: worker_children: Input should be greater than or equal to 1\n",
        ),
        ({"SHUNTER_DATABASE_URL": "mysql://x/y"}, UNUSABLE, "mysql is not supported: use sqlite or postgresql"),
        ({"SHUNTER_PROVIDERS__MINE__PLUGINN": "local"}, WRONG_SETTINGS, "providers.mine.plugin"),
    ],
)
def test_a_wrong_setting_ends_the_role_with_its_name(
    tmp_path: Path, settings: dict[str, str], code: int, said: str
) -> None:
    ended = role(tmp_path, **settings)

    assert ended.returncode == code
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_worker_process_loads_nothing_heavy() -> None:
    program = (
        "import sys, shunter_workers.runtime, shunter_workers.app; "
        "from shunter_providers.registry import load_plugin; load_plugin('local'); "
        f"print([name for name in {TOO_HEAVY!r} if name in sys.modules])"
    )

    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert loaded.stdout.strip() == "[]"


def test_the_group_keeps_within_its_memory(plane: ControlPlane) -> None:
    plane.wait_for(plane.submit(plain("true")), "succeeded")
    master = plane.roles["worker"].pid

    figures = [proc.memory_mib(pid) for pid in (master, *plane.children())]

    assert len(figures) == 3
    assert max(figure["Rss"] for figure in figures) <= 150
    assert sum(figure["Pss"] for figure in figures) <= 250


@pytest.mark.slow
def test_a_worker_makes_the_schema_itself_when_it_comes_first(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SHUNTER_")}
    environ |= {"SHUNTER_DATA_DIR": str(tmp_path), "SHUNTER_REDIS_URL": f"redis+socket://{tmp_path}/none.sock"}
    worker = subprocess.Popen([sys.executable, "-m", "shunter_workers"], env=environ, stderr=subprocess.DEVNULL)

    try:
        wait_until(
            lambda: list(tmp_path.glob("run/alive-*")), timeout_s=30, description="children live without a broker"
        )
    finally:
        worker.terminate()
        status = worker.wait(20)

    assert status == 0
    assert (tmp_path / "shunter.db").exists()
