"""The real API under schemathesis: what it answers is what its description says, for every operation and database."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from shunter_schemas.states import Reason
from support.api_process import ApiProcess, running_api
from support.documents import tiny_lm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request that was made, and its answer."""

    operation: str
    path: str
    status: int
    answer: bytes


@pytest.fixture
def api(tmp_path: Path, database_url: str) -> Iterator[ApiProcess]:
    """The API with one job that has ended and left something of every kind."""
    with running_api(tmp_path / "data", database_url) as running:
        headers = {"Authorization": f"Bearer {running.key}"}
        answer = httpx.post(f"{running.url}/v1/jobs", json=tiny_lm(), headers=headers, trust_env=False)
        part = running.worker_part(answer.raise_for_status().json()["id"])
        part.run()
        part.report(3, 10, loss=1.5)
        part.print("hello\n")
        part.leave("model.bin", b"abc")
        part.end(Reason.DONE)
        yield running


def test_every_answer_is_in_the_description_and_jobs_are_walked_from_birth_to_cancel(
    api: ApiProcess, tmp_path: Path
) -> None:
    ran = schemathesis(api, tmp_path / "report")

    assert ran.returncode == 0, ran.stdout[-20_000:]
    exchanges = list(read_exchanges(tmp_path / "report"))
    born = {json.loads(one.answer)["id"] for one in exchanges if (one.operation, one.status) == ("POST /v1/jobs", 201)}
    read = {job_of(one) for one in exchanges if (one.operation, one.status) == ("GET /v1/jobs/{job_id}", 200)}
    cancelled = {
        job_of(one) for one in exchanges if (one.operation, one.status) == ("POST /v1/jobs/{job_id}/cancel", 202)
    }
    assert born & read & cancelled
    assert {one.operation for one in exchanges} >= described_operations(api)


def schemathesis(api: ApiProcess, report_dir: Path) -> subprocess.CompletedProcess[str]:
    """Its command line over the running API, as anybody would call it."""
    command = [
        str(Path(sys.executable).with_name("schemathesis")),
        *("--config-file", str(FOLDER / "schemathesis.toml")),
        *("run", f"{api.url}/openapi.json", "--url", api.url, "-H", f"Authorization: Bearer {api.key}"),
        *("--report", "ndjson", "--report-dir", str(report_dir), "--no-color"),
    ]
    hooks = {"PYTHONPATH": str(FOLDER.parent), "SCHEMATHESIS_HOOKS": "support.schemathesis_hooks"}
    return subprocess.run(
        command, env=os.environ | hooks, cwd=report_dir.parent, capture_output=True, text=True, timeout=180, check=False
    )


def read_exchanges(report_dir: Path) -> Iterator[Exchange]:
    """What the report says was asked and answered."""
    (report,) = report_dir.glob("*.ndjson")
    with report.open(encoding="utf-8") as lines:
        for line in lines:
            finished = json.loads(line).get("ScenarioFinished")
            if finished is not None:
                yield from exchanges_of(finished["recorder"])


def exchanges_of(recorder: dict[str, Any]) -> Iterator[Exchange]:
    for case_id, interaction in recorder.get("interactions", {}).items():
        case, response = recorder.get("cases", {}).get(case_id), interaction["response"]
        if case is not None and response is not None:
            value = case["value"]
            content = base64.b64decode((response["content"] or {}).get("$base64", ""))
            path = httpx.URL(interaction["request"]["uri"]).path
            yield Exchange(f"{value['method']} {value['path']}", path, response["status_code"], content)


def job_of(exchange: Exchange) -> str:
    return exchange.path.split("/")[3]


def described_operations(api: ApiProcess) -> set[str]:
    paths = httpx.get(f"{api.url}/openapi.json", trust_env=False).json()["paths"]
    return {f"{method.upper()} {path}" for path, operations in paths.items() for method in operations}
