"""The nodes' side of the API, with an agent that the test plays by hand."""

import hashlib
import time
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from shunter_schemas.node_sync import GrantAnswer, LogChunk, NodeStatus, Phase, Record, SyncAnswer, SyncRequest
from shunter_schemas.states import NodeState
from shunter_store.installation import signing
from shunter_store.job import events
from shunter_store.node import ledger
from shunter_store.node.ledger import NodeRow
from support.service_app import App
from support.store_rows import new_job, reread, run_gang


@dataclass
class Agent:
    """Speaks the node protocol over HTTP."""

    app: App
    node: NodeRow
    seq: int = 0
    acknowledged: int = 0
    journal_id: str = "journal"
    sent: list[Record] = field(default_factory=list)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer token:{self.node.token}"}

    def note(self, type_: str, generation: int = 1, **data: Any) -> Record:
        """Write a record into the journal."""
        self.seq += 1
        record = Record(seq=self.seq, at=time.time(), type=type_, generation=generation, data=data)
        self.sent.append(record)
        return record

    async def exchange(self, records: list[Record] | None = None) -> SyncAnswer:
        """One sync; everything that is not acknowledged goes along."""
        waiting = [record for record in self.sent if record.seq > self.acknowledged] if records is None else records
        message = SyncRequest(
            protocol=1,
            node=self.node.token,
            journal_id=self.journal_id,
            status=NodeStatus(phase="running", generation=1),
            records=waiting,
        )
        answer = await self.app.http.post("/v1/node/sync", content=message.model_dump_json(), headers=self.headers)
        assert answer.status_code == 200, answer.text
        found = SyncAnswer.model_validate_json(answer.content)
        self.acknowledged = found.acknowledged
        return found

    async def grants(self, **wanted: list[str]) -> GrantAnswer:
        answer = await self.app.http.post("/v1/node/grants", json=wanted, headers=self.headers)
        assert answer.status_code == 200, answer.text
        return GrantAnswer.model_validate_json(answer.content)

    async def put(self, key: str, data: bytes, **headers: str) -> httpx.Response:
        """Upload an object by a granted URL, as an agent does."""
        url = (await self.grants(put=[key])).put[key]
        announced = {"X-Shunter-Sha256": hashlib.sha256(data).hexdigest(), **headers}
        return await self.app.http.put(url, content=data, headers=announced)

    async def print(self, text: str, *, rank: int = 0, offset: int = 0) -> None:
        """Upload a piece of output and report it."""
        key = f"{self.node.job_id}/1/logs/{self.journal_id}/{rank}-stdout-{offset:012}"
        assert (await self.put(key, text.encode())).status_code == 201
        chunk = LogChunk(
            rank=rank,
            stream="stdout",
            offset=offset,
            length=len(text.encode()),
            lines=text.count("\n"),
            object=key,
            first_at=time.time(),
            last_at=time.time(),
        )
        self.note("log", **chunk.model_dump())
        await self.exchange()


BOOT: dict[str, Any] = {
    "boot_id": "b",
    "hostname": "trainbox",
    "agent_version": "1",
    "python": "3.11",
    "cpus": 2,
    "memory_gib": 4.0,
}


def agents_of(app: App, num_nodes: int = 1) -> list[Agent]:
    """A job whose nodes were told to run, and an agent for each."""
    job = new_job(app.database)
    return [Agent(app, node) for node in run_gang(app.database, job.id, num_nodes)]


async def test_an_agent_that_boots_makes_its_node_ready_and_gets_its_assignment(app: App) -> None:
    [agent] = agents_of(app)
    agent.note("boot", generation=0, **BOOT)

    message = SyncRequest(
        protocol=1,
        node=agent.node.token,
        journal_id="j",
        status=NodeStatus(phase="idle"),
        records=agent.sent,
    )
    answer = await app.http.post("/v1/node/sync", content=message.model_dump_json(), headers=agent.headers)

    found = SyncAnswer.model_validate_json(answer.content)
    [row] = app.database.read(lambda conn: ledger.of_job(conn, agent.node.job_id))
    shown = (await app.http.get(f"/v1/jobs/{agent.node.job_id}")).json()["nodes"][0]
    assert found.acknowledged == 1
    assert found.desired.phase is Phase.RUN
    assert found.desired.assignment is not None
    assert row.state is NodeState.READY
    assert (shown["hostname"], shown["state"], shown["token"]) == ("trainbox", "ready", agent.node.token)


async def test_a_sync_that_is_repeated_changes_nothing(app: App) -> None:
    [agent] = agents_of(app)
    agent.note("boot", generation=0, **BOOT)
    first = await agent.exchange()
    before = reread(app.database, agent.node.job_id)

    again = await agent.exchange(records=agent.sent)

    assert again.acknowledged == first.acknowledged
    assert reread(app.database, agent.node.job_id).event_seq == before.event_seq


async def test_a_record_that_cannot_be_used_does_not_hold_up_those_behind_it(app: App) -> None:
    [agent] = agents_of(app)
    records = [
        '{"seq": 1, "at": "yesterday", "type": "boot"}',
        '{"seq": 2, "at": 1.0, "type": "metrics", "generation": 1, '
        '"data": {"points": [{"step": 1, "at": 1.0, "values": {"loss": NaN, "lr": 0.5}}]}}',
        '{"seq": 3, "at": 1.0, "type": "progress", "generation": 1, "data": {"step": 7}}',
    ]
    body = (
        f'{{"protocol": 1, "node": "{agent.node.token}", "journal_id": "j", '
        f'"status": {{"phase": "running"}}, "records": [{",".join(records)}]}}'
    )

    answer = await app.http.post("/v1/node/sync", content=body, headers=agent.headers)

    job = (await app.http.get(f"/v1/jobs/{agent.node.job_id}")).json()
    types = [event.type for event in app.database.read(lambda conn: events.page(conn, agent.node.job_id))]
    assert answer.json()["acknowledged"] == 3
    assert job["progress"]["step"] == 7
    assert "node.bad_record" in types


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"", 400), (b"no json", 400), (b"[]", 422), (b"{}", 422), (b'{"protocol": 1}', 422), (b"[" * 9000, 400)],
)
async def test_a_message_that_is_none_is_refused(lite: App, body: bytes, status: int) -> None:
    [agent] = agents_of(lite)

    sync = await lite.http.post("/v1/node/sync", content=body, headers=agent.headers)
    grants = await lite.http.post("/v1/node/grants", content=b"[]", headers=agent.headers)

    assert sync.status_code == status
    assert sync.headers["Content-Type"] == "application/problem+json"
    assert grants.status_code == 422


async def test_only_the_nodes_own_token_opens_its_door(lite: App) -> None:
    mine, other = agents_of(lite, 2)
    message = SyncRequest(protocol=1, node=mine.node.token, journal_id="j", status=NodeStatus(phase="idle"))

    answers = {
        name: (await lite.http.post("/v1/node/sync", content=message.model_dump_json(), headers=headers)).status_code
        for name, headers in {
            "none": {"Authorization": ""},
            "a user's key": {},
            "another node's": other.headers,
            "unknown": {"Authorization": "Bearer sns_unknown"},
            "its own": mine.headers,
        }.items()
    }

    assert answers == {"none": 401, "a user's key": 401, "another node's": 403, "unknown": 401, "its own": 200}


async def test_a_node_that_is_gone_is_told_to_go_and_is_granted_nothing(app: App) -> None:
    job = new_job(app.database)
    [node] = run_gang(app.database, job.id, 1)
    agent = Agent(app, node)
    app.database.write(lambda conn: ledger.close_absent(conn, node.id, {"kind": "never_begun"}))

    answer = await agent.exchange()
    refused = await app.http.post("/v1/node/grants", json={"put": []}, headers=agent.headers)

    assert answer.desired.phase is Phase.RELEASE
    assert (refused.status_code, refused.json()["type"]) == (410, "/v1/problems/node_gone")


async def test_urls_are_granted_for_the_nodes_own_job_and_generations_only(lite: App) -> None:
    [agent] = agents_of(lite)
    job_id = agent.node.job_id
    foreign = new_job(lite.database).id
    own = [f"{job_id}/1/artifacts/model.bin", f"{job_id}/0/logs/setup"]

    granted = await agent.grants(
        put=[
            *own,
            f"{job_id}/2/x",
            f"{foreign}/1/x",
            f"{job_id}/1/",
            f"{job_id}x/1/y",
            "bundles/a",
            "../x",
            f"{job_id}/-1/x",
        ],
        get=[f"{job_id}/1/checkpoints/x", f"{foreign}/1/x", "bundles/a"],
    )

    assert sorted(granted.put) == sorted(own)
    assert list(granted.get) == [f"{job_id}/1/checkpoints/x"]


async def test_the_bundle_that_the_assignment_names_may_be_read(lite: App) -> None:
    job = new_job(lite.database)
    [node] = run_gang(lite.database, job.id, 1)
    task = {
        **(node_assignment(lite, node)),
        "source": {"path": "a", "size": 1, "sha256": "0" * 64, "object": "bundles/a"},
    }
    lite.database.write(lambda conn: ledger.want(conn, [node.id], phase=Phase.RUN, generation=2, assignment=task))

    granted = await Agent(lite, node).grants(get=["bundles/a", "bundles/b"])

    assert list(granted.get) == ["bundles/a"]


def node_assignment(app: App, node: NodeRow) -> dict[str, Any]:
    [row] = app.database.read(lambda conn: ledger.of_job(conn, node.job_id))
    assert row.assignment is not None
    return row.assignment


async def test_an_object_is_written_once_and_read_back_in_parts(app: App) -> None:
    [agent] = agents_of(app)
    key = f"{agent.node.job_id}/1/artifacts/a b/ü.bin"
    data = bytes(range(256)) * 8000

    first = await agent.put(key, data)
    same = await agent.put(key, data)
    other = await agent.put(key, data[::-1])
    url = (await agent.grants(get=[key])).get[key]
    whole = await app.http.get(url)
    part = await app.http.get(url, headers={"Range": "bytes=1000-1999"})

    assert [answer.status_code for answer in (first, same, other)] == [201, 201, 409]
    assert other.json()["type"] == "/v1/problems/object_exists"
    assert whole.content == data
    assert (part.status_code, part.content) == (206, data[1000:2000])
    assert part.headers["Content-Range"] == f"bytes 1000-1999/{len(data)}"


async def test_bytes_that_are_not_those_announced_are_not_stored(lite: App) -> None:
    [agent] = agents_of(lite)
    key = f"{agent.node.job_id}/1/artifacts/a"

    wrong = await agent.put(key, b"abc", **{"X-Shunter-Sha256": "0" * 64})
    malformed = await agent.put(key, b"abc", **{"X-Shunter-Sha256": "abc"})
    url = (await agent.grants(get=[key])).get[key]
    absent = await lite.http.get(url)

    assert (wrong.status_code, malformed.status_code, absent.status_code) == (422, 422, 404)


async def test_a_signed_url_opens_one_object_for_one_method_for_a_while(lite: App) -> None:
    [agent] = agents_of(lite)
    key = f"{agent.node.job_id}/1/artifacts/a"
    await agent.put(key, b"abc")
    url = (await agent.grants(get=[key])).get[key]
    expired = signing.sign(lite.service.signing_key, "GET", key, time.time() - 1)

    answers = {
        "as granted": await lite.http.get(url),
        "without": await lite.http.get(url.partition("?")[0]),
        "other object": await lite.http.get(url.replace("/artifacts/a", "/artifacts/b")),
        "other method": await lite.http.put(url, content=b"x"),
        "longer": await lite.http.get(url.replace("expires=", "expires=9")),
        "expired": await lite.http.get(expired),
        "tampered": await lite.http.get(url[:-1] + ("0" if url[-1] != "0" else "1")),
    }

    assert {name: answer.status_code for name, answer in answers.items()} == {
        "as granted": 200,
        "without": 422,
        "other object": 403,
        "other method": 403,
        "longer": 403,
        "expired": 403,
        "tampered": 403,
    }


async def test_what_an_agent_reports_shows_up_for_the_user(app: App) -> None:
    [agent] = agents_of(app)
    job = f"/v1/jobs/{agent.node.job_id}"
    model = b"weights" * 1000
    key = f"{agent.node.job_id}/1/artifacts/out/model.bin"
    await agent.put(key, model)
    entry = {"path": "out/model.bin", "size": len(model), "sha256": hashlib.sha256(model).hexdigest(), "object": key}
    agent.note("boot", generation=0, **BOOT)
    agent.note("artifact", file=entry)
    agent.note("checkpoint", step=10, node_rank=0, files=[entry], values={"val_loss": 2.0})
    agent.note(
        "metrics", points=[{"step": step, "at": float(step), "values": {"loss": 10.0 - step}} for step in range(8)]
    )
    await agent.exchange()

    artifacts = (await app.http.get(f"{job}/artifacts")).json()["items"]
    checkpoints = (await app.http.get(f"{job}/checkpoints")).json()["items"]
    metrics = (await app.http.get(f"{job}/metrics", params={"max_points": 4})).json()
    download = await app.http.get(artifacts[0]["href"])
    same = await app.http.get(artifacts[0]["href"], headers={"If-None-Match": download.headers["ETag"]})

    assert [(item["path"], item["size_bytes"]) for item in artifacts] == [("out/model.bin", len(model))]
    assert [(item["step"], item["values"]) for item in checkpoints] == [(10, {"val_loss": 2.0})]
    assert metrics["series"] == [
        {
            "name": "loss",
            "steps": [0, 2, 4, 6],
            "times_s": [1.0, 3.0, 5.0, 7.0],
            "values": [9.5, 7.5, 5.5, 3.5],
            "min": [9.0, 7.0, 5.0, 3.0],
            "max": [10.0, 8.0, 6.0, 4.0],
        }
    ]
    assert {(mark["kind"], mark["step"]) for mark in metrics["marks"]} == {("generation", 0), ("checkpoint", 10)}
    assert download.content == model
    assert same.status_code == 304


@pytest.mark.parametrize("path", ["a b/c", "ü/#?&=.bin", "100%25", " leading", "a/%2e%2e/b", "x+y", "q'\"q"])
async def test_an_artifact_of_any_name_is_found_by_its_address(app: App, path: str) -> None:
    [agent] = agents_of(app)
    key = f"{agent.node.job_id}/1/artifacts/object"
    await agent.put(key, b"abc")
    agent.note("boot", generation=0, **BOOT)
    agent.note("artifact", file={"path": path, "size": 3, "sha256": hashlib.sha256(b"abc").hexdigest(), "object": key})
    await agent.exchange()

    [item] = (await app.http.get(f"/v1/jobs/{agent.node.job_id}/artifacts")).json()["items"]
    download = await app.http.get(item["href"])

    assert item["path"] == path
    assert download.content == b"abc"


async def test_somebody_who_looks_at_a_job_makes_its_nodes_upload_their_logs(app: App) -> None:
    [agent] = agents_of(app)
    unwatched = await agent.exchange()

    await app.http.get(f"/v1/jobs/{agent.node.job_id}/logs")
    await app.service.lookers.close()
    watched = await agent.exchange()

    assert (unwatched.upload_logs, watched.upload_logs) == (False, True)
