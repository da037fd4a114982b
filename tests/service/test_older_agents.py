"""An agent of the release before keeps reporting to this service: its messages, as a real run of it was recorded."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from shunter_schemas.node_sync import Phase
from shunter_store.node import gang, ledger
from shunter_store.node.gang import End
from support.service_app import App
from support.store_rows import new_job, run_gang

RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "data" / "older_agent" / "exchanges.json").read_text()
)
"""A script of one rank that printed, told metrics, saved a checkpoint, left a file and ended: every exchange of it."""


async def replay(app: App, more: dict[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    """Every message again, as of a node of this service; `more`: members that no release knows, put into each part."""
    job = new_job(app.database)
    [node] = run_gang(app.database, job.id, 1)
    headers = {"Authorization": f"Bearer token:{node.token}"}
    for key, text in RECORDED["objects"].items():
        await put(app, headers, key.replace("job_test", job.id), text.encode())
    answers = []
    for exchange in RECORDED["exchanges"]:
        text = json.dumps(widened(exchange["request"], more))
        text = text.replace("job_test", job.id).replace(exchange["request"]["node"], node.token)
        answer = await app.http.post("/v1/node/sync", content=text, headers=headers)
        assert answer.status_code == 200, answer.text
        answers.append(answer.json())
    return job.id, answers


async def put(app: App, headers: dict[str, str], key: str, data: bytes) -> None:
    grants = await app.http.post("/v1/node/grants", json={"put": [key]}, headers=headers)
    digest = hashlib.sha256(data).hexdigest()
    stored = await app.http.put(grants.json()["put"][key], content=data, headers={"X-Shunter-Sha256": digest})
    assert stored.status_code in (200, 201, 204), stored.text


def widened(message: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    records = [{**record, "data": {**record["data"], **more}, **more} for record in message["records"]]
    return {**message, **more, "status": {**message["status"], **more}, "records": records}


@pytest.mark.parametrize(
    "more", [{}, {"from_the_future": {"deep": [1, None, "x"]}}], ids=["as it was", "with members of a newer one"]
)
async def test_all_that_an_older_agent_reports_is_kept(app: App, more: dict[str, Any]) -> None:
    job_id, answers = await replay(app, more)

    last = RECORDED["exchanges"][-1]["request"]["records"]
    sent = [record["seq"] for one in RECORDED["exchanges"] for record in one["request"]["records"]]
    assert answers[-1]["acknowledged"] == max(sent), last
    shown = (await app.http.get(f"/v1/jobs/{job_id}")).json()
    assert (shown["progress"]["step"], shown["progress"]["total_steps"]) == (3, 3)
    log = await app.http.get(f"/v1/jobs/{job_id}/logs", headers={"Accept": "text/plain"})
    assert log.text == "step 1\nstep 2\nstep 3\n"
    artifacts = (await app.http.get(f"/v1/jobs/{job_id}/artifacts")).json()["items"]
    assert [one["path"] for one in artifacts] == ["result.txt"]
    checkpoints = (await app.http.get(f"/v1/jobs/{job_id}/checkpoints")).json()["items"]
    assert [one["step"] for one in checkpoints] == [3]
    [part] = app.database.read(lambda conn: gang.gang_facts(conn, job_id, 1)).nodes
    assert (part.ended, part.drained) == (End.DONE, True)


async def test_every_member_that_an_older_agent_reads_is_still_answered(lite: App) -> None:
    _, answers = await replay(lite, {})

    for old, new in zip((one["answer"] for one in RECORDED["exchanges"]), answers, strict=True):
        assert old.keys() <= new.keys()
        assert old["desired"].keys() <= new["desired"].keys()
        assert old["lease"].keys() <= new["lease"].keys()
        assert old["protocol"] == new["protocol"]


async def test_an_older_agent_is_told_to_run_stop_and_end_in_words_that_it_knows(lite: App) -> None:
    recorded = next(one["answer"]["desired"] for one in RECORDED["exchanges"] if one["answer"]["desired"]["assignment"])
    job = new_job(lite.database)
    [node] = run_gang(lite.database, job.id, 1)
    headers = {"Authorization": f"Bearer token:{node.token}"}
    first = RECORDED["exchanges"][0]["request"]
    said = []

    for phase in (Phase.RUN, Phase.STOP, Phase.RELEASE):
        if phase is not Phase.RUN:
            lite.database.write(lambda conn, phase=phase: ledger.want(conn, [node.id], phase=phase, generation=1))  # type: ignore[misc]
        message = {**first, "node": node.token, "records": []}
        said.append((await lite.http.post("/v1/node/sync", json=message, headers=headers)).json()["desired"])

    assert [desired["phase"] for desired in said] == ["run", "stop", "release"]
    assert recorded["assignment"].keys() <= said[0]["assignment"].keys()
    assert recorded["assignment"]["ranks"].keys() <= said[0]["assignment"]["ranks"].keys()
