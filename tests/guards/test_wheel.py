"""`pip install shunter` stays light: the built wheel with its base dependencies only, in an environment of its own."""

import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

HEAVY = ("litestar", "celery", "redis", "torch", "sqlalchemy", "alembic", "libcloud", "deepspeed")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment that holds the wheel and what it depends on, and nothing else."""
    folder = tmp_path_factory.mktemp("wheel")
    run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)], ROOT)
    venv.create(folder / "venv", with_pip=True)
    binaries = folder / "venv" / "bin"
    (wheel,) = folder.glob("shunter-*.whl")
    constraints = ROOT / "constraints.txt"
    run([str(binaries / "pip"), "install", "--quiet", "-c", str(constraints), str(wheel)], folder)
    return binaries


def test_the_bare_installation_holds_nothing_heavy(bare: Path) -> None:
    listed = run([str(bare / "pip"), "list", "--format=freeze"], bare).lower()

    installed = {line.partition("==")[0] for line in listed.splitlines()}

    assert installed.isdisjoint({*HEAVY, "apache-libcloud"})
    assert {"shunter", "httpx", "pydantic", "typer"} <= installed


@pytest.mark.parametrize(
    "module",
    ["shunter", "shunter.client", "shunter.cli", "shunter.checking", "shunter_schemas.api", "shunter_schemas.parse",
     "shunter_schemas.node_sync", "shunter_providers.contract", "shunter_planner", "shunter_agent"],
)  # fmt: skip
def test_what_a_user_and_a_plugin_author_import_loads_without_the_server(bare: Path, module: str) -> None:
    loaded = run([str(bare / "python"), "-c", f"import sys, {module}; print(*sys.modules)"], bare).split()

    assert module in loaded
    assert {name.partition(".")[0] for name in loaded}.isdisjoint(HEAVY)


def test_the_command_line_works_and_validates_offline(bare: Path, tmp_path: Path) -> None:
    example = ROOT / "examples" / "tiny-lm-ddp.json"

    shown = run([str(bare / "shunter"), "--help"], tmp_path)
    validated = run([str(bare / "shunter"), "validate", str(example)], tmp_path)

    assert "submit" in shown
    assert "is valid" in validated


def test_starting_the_service_without_its_parts_says_what_to_install(bare: Path, tmp_path: Path) -> None:
    started = subprocess.run([bare / "shunter", "up"], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert started.returncode == 2
    assert "pip install 'shunter[all]'" in started.stderr
    assert "Traceback" not in started.stderr


def test_the_wheel_carries_the_type_marker_of_every_package(bare: Path) -> None:
    (site,) = bare.parent.glob("lib/python*/site-packages")

    packages = {path.parent.name for path in site.glob("shunter*/py.typed")}

    assert packages >= {"shunter", "shunter_schemas", "shunter_providers", "shunter_planner"}


def run(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
