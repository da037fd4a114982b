"""The plugin in `examples/acme_provider`, built as a distribution of its own and installed beside the wheel."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest
from support.control_plane import plain
from support.up_process import running_up
from support.waiting import wait_until

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "acme_provider"
KEY = "toy-key-of-acme"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of a fresh environment with both wheels; what they need is read from ours."""
    folder = tmp_path_factory.mktemp("beside")
    wheels = folder / "wheels"
    for project in (ROOT, EXAMPLE):
        run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(wheels), str(project)])
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / "bin" / "python"
    offline = ["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index"]
    run([sys.executable, "-m", "pip", "--python", str(python), *offline, *map(str, wheels.glob("*.whl"))])
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    # Only as a path: the links of an editable installation in there are not followed, so the code is the wheel's.
    (site / "needs.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python.parent


@pytest.fixture(scope="module")
def acme(installed: Path) -> Iterator[str]:
    """The toy cloud as its package brings it, in a process of its own; the address of its API."""
    port = free_port()
    command = [str(installed / "python"), "-m", "shunter_acme.toy_cloud", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert "Acme is at" in process.stdout.readline()
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.send_signal(2)
        process.wait(20)
        process.stdout.close()


def test_the_code_is_that_of_the_wheels(installed: Path) -> None:
    found = run(
        [
            str(installed / "python"),
            "-c",
            "import shunter_providers, shunter_acme; print(shunter_providers.__file__, shunter_acme.__file__)",
        ]
    )

    assert all(path.startswith(str(installed.parent)) for path in found.split())


def test_it_is_listed_and_says_what_it_lacks(installed: Path, tmp_path: Path) -> None:
    listed = run([str(installed / "shunter"), "provider", "list"], SHUNTER_DATA_DIR=str(tmp_path))
    checked = subprocess.run(
        [installed / "shunter", "provider", "check", "acme"], capture_output=True, text=True, check=False, env=clean()
    )

    assert any(line.split() == ["plugin", "acme", "loads"] for line in listed.splitlines())
    assert checked.returncode == 1
    assert "api_key is missing" in checked.stdout
    assert "ACME_API_KEY" in checked.stdout


def test_a_live_check_runs_one_node_through_its_life(installed: Path, acme: str, tmp_path: Path) -> None:
    variables = {"ACME_API_KEY": KEY, "SHUNTER_ACME_BASE_URL": acme, "SHUNTER_DATA_DIR": str(tmp_path)}

    said = run([str(installed / "shunter"), "provider", "check", "acme", "--spend", "--yes", "--json"], **variables)

    findings = {one["check"]: one for one in map(json.loads, said.splitlines())}
    assert {name: one["ok"] for name, one in findings.items()} == {
        "plugin and settings": True,
        "contract": True,
        "identity": True,
        "offers": True,
        "listing": True,
        "create": True,
        "find": True,
        "boot": True,
        "end": True,
        "bill": None,
    }
    assert KEY not in said


def test_it_provisions_a_job(installed: Path, acme: str, tmp_path: Path) -> None:
    data_dir, port = tmp_path / "data", free_port()
    data_dir.mkdir()
    (data_dir / "shunter.toml").write_text(
        f'public_url = "http://127.0.0.1:{port}"\n'
        f'[providers.acme.settings]\nbase_url = "{acme}"\napi_key = "{KEY}"\n'
        "visibility_delay_s = 0.5\nscan_interval_s = 1.0\n"
    )
    command = (str(installed / "python"), "-P", "-m", "shunter_service", "up")

    with running_up(data_dir, "--port", str(port), command=command) as up:
        headers = {"Authorization": f"Bearer {(data_dir / 'api-key').read_text().strip()}"}
        with httpx.Client(base_url=up.url, headers=headers, trust_env=False, timeout=20) as http:
            job_id = http.post("/v1/jobs", json=plain("echo", "from acme")).raise_for_status().json()["id"]
            wait_until(
                lambda: http.get(f"/v1/jobs/{job_id}").json()["state"] in ("succeeded", "failed"),
                timeout_s=120,
                description="the job ends",
            )
            job = http.get(f"/v1/jobs/{job_id}").json()
            logs = http.get(f"/v1/jobs/{job_id}/logs").json()["items"]
        stopped = up.stop(timeout_s=60)

    assert (job["state"], [node["provider"] for node in job["nodes"]]) == ("succeeded", ["acme"]), job
    assert [line["text"] for line in logs] == ["from acme"]
    assert stopped == 0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def clean(**variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SHUNTER_", "ACME_", "PYTHON"))}
    return kept | variables


def run(command: Sequence[str], **variables: str) -> str:
    done = subprocess.run(command, env=clean(**variables), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
