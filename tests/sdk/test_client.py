"""The client against a real API process."""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from shunter import Client, errors
from shunter_schemas.api import Job
from shunter_schemas.states import Reason, State
from support.api_process import ApiProcess
from support.both_clients import Kind
from support.documents import changed, script, tiny_lm


def source_folder(root: Path, text: str = "print('hello')\n") -> Path:
    folder = root / "code"
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(text)
    return folder


def soon(*calls: Callable[[], None]) -> threading.Thread:
    """Make the calls in a while, in another thread: what a worker does while a client waits."""

    def make() -> None:
        time.sleep(0.3)
        for call in calls:
            call()

    thread = threading.Thread(target=make)
    thread.start()
    return thread


def test_a_submitted_document_is_a_queued_job_with_what_was_set(client: Client) -> None:
    job = client.submit(tiny_lm(), settings=["name=mine", "workload.duration.steps=40"])

    assert (job.state, job.name) == ("queued", "mine")
    assert job.spec["workload"]["duration"]["steps"] == 40
    assert client.get(job.id).id == job.id


def test_submitting_with_the_same_key_twice_makes_one_job(client: Client) -> None:
    first = client.submit(tiny_lm(), idempotency_key="twice-7")
    second = client.submit(tiny_lm(), idempotency_key="twice-7")

    assert first.id == second.id
    with pytest.raises(errors.ApiError) as raised:
        client.submit(changed(tiny_lm(), {"name": "other"}), idempotency_key="twice-7")
    assert raised.value.slug == "idempotency_key_reused"


def test_a_folder_is_sent_once_and_submitted_as_a_bundle(client: Client, tmp_path: Path) -> None:
    folder = source_folder(tmp_path, f"print({str(tmp_path)!r})\n")
    sent: list[bool] = []

    document = changed(script(), {"inputs": {}, "workload.arguments": []})

    jobs = [
        client.submit(document, source=folder, uploading=lambda archive, known: sent.append(known)) for _ in range(2)
    ]

    assert sent == [False, True]
    assert {job.spec["source"]["kind"] for job in jobs} == {"bundle"}
    assert jobs[0].spec["source"] == jobs[1].spec["source"]


def test_relative_folders_lie_beside_the_document(client: Client, tmp_path: Path) -> None:
    source_folder(tmp_path, "x = 1\n")
    data = tmp_path / "data"
    data.mkdir()
    (data / "a.jsonl").write_text("{}\n")
    document = changed(script(), {"source": {"kind": "folder", "path": "code"}, "inputs.train": {"from": "./data"}})
    (tmp_path / "job.json").write_text(json.dumps(document))

    job = client.submit(tmp_path / "job.json")

    assert job.spec["source"]["kind"] == "bundle"
    assert job.spec["inputs"]["train"]["from"].startswith("bundle:bun_")


def test_a_wrong_document_names_every_fault_and_nothing_is_stored(client: Client) -> None:
    wrong = changed(tiny_lm(), {"name": "never-stored", "workload.batch.global_size": 15})

    with pytest.raises(errors.InvalidDocument) as raised:
        client.submit(wrong)

    assert [fault.pointer for fault in raised.value.faults] == ["/workload/batch/global_size"]
    assert list(client.list(name="never-stored")) == []


def test_a_wrong_document_costs_no_packing_and_no_upload(client: Client, tmp_path: Path) -> None:
    folder = source_folder(tmp_path, f"print({str(tmp_path)!r})\n")
    sent: list[bool] = []
    wrong = {"name": "never-sent", "placement": {"providers": ["mars"]}, "inputs": {"a": {"from": "./nowhere"}}}

    with pytest.raises(errors.InvalidDocument) as raised:
        client.submit(
            changed(script(), {**wrong, "workload.arguments": []}),
            source=folder,
            uploading=lambda archive, known: sent.append(known),
        )

    assert [fault.pointer for fault in raised.value.faults] == ["/placement/providers/0"]
    assert "no provider `mars` is configured" in str(raised.value)
    assert sent == []
    assert list(client.list(name="never-sent")) == []


def test_jobs_are_listed_over_pages_and_by_filters(client: Client, kind: Kind) -> None:
    name = f"paged-{kind}"
    made = [client.submit(changed(tiny_lm(), {"name": name, "labels": {"n": str(n)}})).id for n in range(5)]

    assert [job.id for job in client.list(name=name, page_size=2)] == made[::-1]
    assert [job.id for job in client.list(name=name, labels={"n": "3"})] == [made[3]]
    assert list(client.list(name=name, states=["running"])) == []


@pytest.mark.parametrize("job_id", ["job_01kb9m4t8zq3v5x7y9a1c3e5g7", "nonsense", "../../readyz", "a b?c=d#e"])
def test_a_job_that_does_not_exist_is_not_found(client: Client, job_id: str) -> None:
    for ask in (client.get, client.cancel, lambda job: list(client.events(job)), lambda job: list(client.logs(job))):
        with pytest.raises(errors.NotFound):
            ask(job_id)


def test_a_wrong_key_is_unauthorized(api: ApiProcess) -> None:
    with Client(api.url, "shk_wrong") as stranger, pytest.raises(errors.Unauthorized):
        stranger.submit(tiny_lm())


def test_cancelling_twice_is_as_good_as_once_and_an_ended_job_refuses(client: Client, api: ApiProcess) -> None:
    job = client.submit(tiny_lm())
    client.cancel(job.id)

    again = client.cancel(job.id)

    assert again.id == job.id
    done = client.submit(tiny_lm())
    part = api.worker_part(done.id)
    part.run()
    part.end(Reason.DONE)
    with pytest.raises(errors.Conflict) as raised:
        client.cancel(done.id)
    assert raised.value.slug == "job_ended"


def test_waiting_returns_the_ended_job_and_shows_it_on_the_way(client: Client, api: ApiProcess) -> None:
    job = client.submit(tiny_lm())
    part = api.worker_part(job.id)
    seen: list[State] = []

    def show(now: Job) -> None:
        if now.state not in seen:
            seen.append(now.state)
            {State.QUEUED: part.run, State.RUNNING: lambda: part.end(Reason.DONE)}.get(now.state, int)()

    ended = client.wait(job.id, progress=show, poll_s=0.01)

    assert seen == ["queued", "running", "succeeded"]
    assert (ended.outcome, ended.reason) == ("succeeded", "done")


def test_waiting_without_progress_is_woken_by_the_service(client: Client, api: ApiProcess) -> None:
    job = client.submit(tiny_lm())
    part = api.worker_part(job.id)
    ending = soon(part.run, lambda: part.end(Reason.USER_ERROR, "Boom"))

    ended = client.wait(job.id, timeout_s=20)

    ending.join()
    assert (ended.state, ended.reason, ended.message) == ("failed", "user_error", "Boom")


def test_waiting_gives_up_in_time_and_leaves_the_job_alone(client: Client) -> None:
    job = client.submit(tiny_lm())

    with pytest.raises(errors.WaitTimeout, match="is still queued"):
        client.wait(job.id, timeout_s=0.2)

    assert client.get(job.id).state == "queued"


def test_events_are_numbered_without_a_gap_and_followed_to_the_end(client: Client, api: ApiProcess) -> None:
    job = client.submit(tiny_lm())
    part = api.worker_part(job.id)
    moving = soon(part.run, lambda: part.end(Reason.DONE))

    followed = list(client.follow_events(job.id))

    moving.join()
    assert [event.seq for event in followed] == list(range(1, len(followed) + 1))
    assert followed == list(client.events(job.id))
    assert [event.seq for event in client.follow_events(job.id, after=3)] == list(range(4, len(followed) + 1))


def test_logs_are_read_whole_by_rank_and_from_the_end(client: Client, api: ApiProcess) -> None:
    job = client.submit(tiny_lm())
    part = api.worker_part(job.id)
    part.run()
    part.print("".join(f"zero {n}\n" for n in range(2500)))
    part.print("one 1\none 2\n", rank=1)

    assert len(list(client.logs(job.id))) == 2502
    assert [line.text for line in client.logs(job.id, rank=1)] == ["one 1", "one 2"]
    assert [line.text for line in client.logs(job.id, tail=3)] == ["zero 2499", "one 1", "one 2"]
    assert [line.text for line in client.logs(job.id, after=2500)] == ["one 1", "one 2"]


def test_logs_are_searched_for_a_text(client: Client, api: ApiProcess) -> None:
    job = client.submit(tiny_lm())
    part = api.worker_part(job.id)
    part.run()
    part.print("".join(f"step {n}\n" for n in range(1, 1500)) + "CUDA Error: out of memory\n")
    part.print("error of rank one\n", rank=1)

    assert [line.rank for line in client.logs(job.id, search="error")] == [0, 1]
    assert [line.text for line in client.logs(job.id, search="step 149", tail=2)] == ["step 1498", "step 1499"]
    assert [line.text for line in client.logs(job.id, rank=1, search="error")] == ["error of rank one"]
    assert list(client.logs(job.id, search="never said")) == []


def test_logs_are_followed_until_no_more_will_come(client: Client, api: ApiProcess) -> None:
    job = client.submit(tiny_lm())
    part = api.worker_part(job.id)
    part.run()
    part.print("before\n")
    printing = soon(lambda: part.print("after\n"), lambda: part.end(Reason.DONE))

    followed = [line.text for line in client.follow_logs(job.id)]

    printing.join()
    assert followed == ["before", "after"]


def test_metrics_come_as_series_and_bins(client: Client, api: ApiProcess) -> None:
    job = client.submit(tiny_lm())
    part = api.worker_part(job.id)
    part.run()
    for step in range(1, 101):
        part.report(step, 100, loss=1 / step, lr=0.1)

    answer = client.metrics(job.id, names=["loss"])
    binned = client.metrics(job.id, names=["loss"], from_step=11, max_points=10)

    assert [series.name for series in answer.series] == ["loss"]
    assert answer.series[0].steps == tuple(range(1, 101))
    assert len(binned.series[0].values) <= 10


def test_artifacts_are_listed_and_fetched_whole(client: Client, api: ApiProcess, tmp_path: Path) -> None:
    job = client.submit(tiny_lm())
    part = api.worker_part(job.id)
    part.run()
    contents: dict[str, bytes] = {f"deep/er/file {n} ä#?%.bin": bytes([n % 256]) * n * 1000 for n in range(120)}
    for path, content in contents.items():
        part.leave(path, content)

    listed = list(client.artifacts(job.id))
    fetched = client.download_artifacts(job.id, tmp_path / "out")

    assert {artifact.path: artifact.size_bytes for artifact in listed} == {p: len(c) for p, c in contents.items()}
    assert {str(path.relative_to(tmp_path / "out")): path.read_bytes() for path in fetched} == contents


def test_providers_and_readiness_are_typed(client: Client) -> None:
    assert [provider.name for provider in client.providers()] == ["local"]
    assert client.readiness().status == "ready"
