"""A client that a public generator makes from the served description, at work on the live service."""

from __future__ import annotations

import json
import subprocess
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.api_process import ApiProcess, running_api
from support.documents import REPOSITORY, tiny_lm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

GENERATOR = "openapi-python-client==0.29.1"
WARNINGS = ("Unsupported content type",)
"""What the generator may leave out: archives under their less usual names, which are all the same bytes."""

PROGRAM = """
import json, sys
from shunter_api import AuthenticatedClient
from shunter_api.api.jobs import cancel_job, create_job, get_job, list_jobs
from shunter_api.models import Job, JobPage, JobSpec, Problem, State

url, key = sys.argv[1:]
settings = {"raise_on_unexpected_status": True, "httpx_args": {"trust_env": False}}
document = JobSpec.from_dict(json.load(sys.stdin))

with AuthenticatedClient(base_url=url, token=key, **settings) as client:
    submitted = create_job.sync(client=client, body=document, idempotency_key="once")
    repeated = create_job.sync_detailed(client=client, body=document, idempotency_key="once")
    other = create_job.sync(client=client, body=document)
    assert isinstance(submitted, Job) and isinstance(other, Job), (submitted, other)
    read = get_job.sync(submitted.id, client=client)
    assert isinstance(read, Job), read

    pages, cursor = [], {}
    while True:
        page = list_jobs.sync(client=client, state=[State.QUEUED], limit=1, **cursor)
        assert isinstance(page, JobPage), page
        pages.append([item.id for item in page.items])
        if not page.next_cursor:
            break
        cursor = {"cursor": page.next_cursor}

    cancelled = cancel_job.sync(submitted.id, client=client)
    assert isinstance(cancelled, Job), cancelled
    absent = get_job.sync("job_none", client=client)
    assert isinstance(absent, Problem), absent

print(json.dumps({
    "submitted": submitted.id, "other": other.id, "state": submitted.state, "workload": document.workload.to_dict(),
    "repeated": repeated.parsed.id, "replayed": repeated.headers.get("Idempotent-Replayed"),
    "read": read.id, "name": read.name, "created_at": read.created_at.isoformat(),
    "pages": pages, "cancel_asked": cancelled.revision > read.revision, "absent": absent.status,
}))
"""


@pytest.fixture(scope="module")
def generator(pytestconfig: pytest.Config) -> Path:
    """The `bin` folder of an environment of the generator's own: it wants another typer than ours. Made once."""
    assert pytestconfig.cache is not None
    folder = pytestconfig.cache.mkdir(GENERATOR.replace("==", "-"))
    binaries = folder / "venv" / "bin"
    if not (folder / "ready").exists():
        venv.create(folder / "venv", with_pip=True, clear=True)
        known = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines(keepends=True)
        constraints = folder / "constraints.txt"
        constraints.write_text("".join(line for line in known if not line.startswith("typer==")), encoding="utf-8")
        finish([str(binaries / "pip"), "install", "--quiet", "-c", str(constraints), GENERATOR])
        (folder / "ready").touch()
    return binaries


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiProcess]:
    with running_api(tmp_path / "data") as running:
        yield running


def test_it_submits_reads_lists_and_cancels(generator: Path, api: ApiProcess, tmp_path: Path) -> None:
    generate(generator, api, tmp_path)

    did: dict[str, Any] = json.loads(
        finish(
            [str(generator / "python"), "-W", "error", "-c", PROGRAM, api.url, api.key], tmp_path, json.dumps(tiny_lm())
        ).stdout
    )

    assert did["repeated"] == did["read"] == did["submitted"] != did["other"]
    assert did["replayed"] == "true"
    assert (did["state"], did["name"]) == ("queued", tiny_lm()["name"])
    assert did["workload"]["model"] == tiny_lm()["workload"]["model"]
    assert did["pages"] == [[did["other"]], [did["submitted"]]]
    assert did["cancel_asked"]
    assert did["absent"] == 404


def generate(generator: Path, api: ApiProcess, folder: Path) -> None:
    """The package `shunter_api` in the folder, whole: the generator leaves out what it does not understand."""
    config = folder / "generator.json"
    config.write_text(json.dumps({"post_hooks": []}), encoding="utf-8")
    ran = finish(
        [
            *(str(generator / "openapi-python-client"), "generate", "--url", f"{api.url}/openapi.json"),
            *("--meta", "none", "--output-path", str(folder / "shunter_api"), "--config", str(config)),
        ],
        folder,
    )
    said = ran.stdout + ran.stderr
    assert "Unable to" not in said
    assert "omitted from" not in said
    assert said.count("WARNING") == sum(said.count(warning) for warning in WARNINGS)


def finish(command: list[str], folder: Path | None = None, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """The command, once it has ended well."""
    ran = subprocess.run(command, cwd=folder, input=stdin, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran
