"""The API as a process of its own: what it loads, and what it writes down."""

import json
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest
from support.api_process import ApiProcess, running_api
from support.documents import tiny_lm


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    with running_api(tmp_path_factory.mktemp("api")) as running:
        yield running


def log_of(process: ApiProcess) -> list[dict[str, object]]:
    return [json.loads(line) for line in (process.data_dir / "api.log").read_text().splitlines()]


def test_the_service_loads_no_broker_no_cloud_and_no_torch() -> None:
    script = (
        "import sys, shunter_service.server as server; "
        "print([name for name in ('celery', 'kombu', 'redis', 'torch', 'libcloud', 'alembic') if name in sys.modules])"
    )

    loaded = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True)

    assert loaded.stdout.strip() == "[]"


def test_the_log_is_json_and_holds_no_secret_and_no_body(process: ApiProcess) -> None:
    headers = {"Authorization": f"Bearer {process.key}"}
    document = {**tiny_lm(), "environment": {"variables": {"TOKEN": "hunter2"}}}
    answer = httpx.post(f"{process.url}/v1/jobs", json=document, headers=headers, trust_env=False)
    httpx.get(f"{process.url}/v1/jobs?name=hunter2&bad=1", headers=headers, trust_env=False)
    httpx.put(f"{process.url}/v1/objects/a/b?expires=1&signature=hunter2", trust_env=False)

    text = (process.data_dir / "api.log").read_text()
    lines = {line["request_id"]: line for line in log_of(process)}
    line = lines[answer.headers["X-Request-Id"]]

    assert {name: line[name] for name in ("method", "path", "status", "key")} == {
        "method": "POST",
        "path": "/v1/jobs",
        "status": 201,
        "key": "local",
    }
    assert "hunter2" not in text
    assert process.key not in text


def test_polling_does_not_fill_the_log(process: ApiProcess) -> None:
    before = len(log_of(process))

    for _ in range(20):
        httpx.get(f"{process.url}/healthz", trust_env=False)

    assert len(log_of(process)) == before
