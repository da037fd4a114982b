"""What a client asks of jobs beyond submitting and looking, against a real API process."""

import uuid

import pytest
from shunter import Client, errors
from shunter_schemas.states import Reason, State
from support.api_process import ApiProcess
from support.documents import changed, tiny_lm


def ended(client: Client, api: ApiProcess, reason: Reason = Reason.USER_ERROR) -> str:
    """The id of a job that has run and ended."""
    job_id = client.submit(tiny_lm()).id
    part = api.worker_part(job_id)
    part.run()
    part.end(reason)
    return job_id


def labelled(client: Client, count: int) -> tuple[str, list[str]]:
    """Jobs with a label of their own, newest first; the label's value too."""
    value = uuid.uuid4().hex
    document = changed(tiny_lm(), {"labels": {"batch": value}})
    return value, [client.submit(document).id for _ in range(count)][::-1]


def test_jobs_are_found_by_a_label_with_and_without_its_value(client: Client) -> None:
    value, jobs = labelled(client, 3)

    assert [job.id for job in client.list(labels={"batch": value})] == jobs
    assert [job.id for job in client.list(labels=[f"batch={value}"], page_size=1)] == jobs
    assert {job.id for job in client.list(labels=["batch"])} >= set(jobs)


def test_jobs_are_found_by_what_their_names_begin_with_and_by_time(client: Client) -> None:
    prefix = f"sweep-{uuid.uuid4().hex[:8]}-"
    first, second = (client.submit(changed(tiny_lm(), {"name": f"{prefix}{n}"})) for n in range(2))

    assert [job.id for job in client.list(name_prefix=prefix)] == [second.id, first.id]
    assert [job.id for job in client.list(name_prefix=prefix, created_after=second.created_at)] == []
    assert [job.id for job in client.list(name_prefix=prefix, created_before=first.created_at)] == []
    assert list(client.list(name_prefix=prefix, created_by="nobody")) == []


def test_every_job_with_a_label_is_asked_to_stop(client: Client) -> None:
    value, jobs = labelled(client, 3)

    asked = client.cancel_all(labels={"batch": value})

    assert list(asked) == jobs
    assert all(client.get(job_id).cancel_requested_at is not None for job_id in jobs)
    assert list(client.cancel_all(labels={"batch": value})) == []


def test_cancelling_all_needs_a_filter(client: Client) -> None:
    with pytest.raises(errors.Unprocessable):
        client.cancel_all()


def test_an_ended_job_is_submitted_again_with_changes(client: Client, api: ApiProcess) -> None:
    job_id = ended(client, api)

    again = client.retry(job_id, labels={"again": "yes"}, limits={"max_duration_s": 60}, priority="high")

    assert (again.state, again.retry_of) == ("queued", job_id)
    assert (again.labels["again"], again.priority) == ("yes", "high")
    assert again.spec["limits"]["max_duration_s"] == 60


def test_without_a_checkpoint_a_retry_from_one_is_refused(client: Client, api: ApiProcess) -> None:
    job_id = ended(client, api)

    with pytest.raises(errors.Conflict):
        client.retry(job_id, start_from="checkpoint")

    assert client.retry(job_id, start_from="start").retry_of == job_id


def test_retrying_with_the_same_key_twice_makes_one_job(client: Client, api: ApiProcess) -> None:
    job_id, key = ended(client, api), uuid.uuid4().hex

    assert client.retry(job_id, idempotency_key=key).id == client.retry(job_id, idempotency_key=key).id


def test_a_paused_job_rests_until_it_is_resumed(client: Client) -> None:
    job_id = client.submit(tiny_lm()).id

    paused = client.pause(job_id)
    resumed = client.resume(job_id)

    assert paused.pause_requested_at is not None
    assert resumed.pause_requested_at is None


def test_a_running_training_is_asked_for_a_checkpoint_and_a_queued_one_refuses(client: Client, api: ApiProcess) -> None:
    job_id = client.submit(tiny_lm()).id
    with pytest.raises(errors.Conflict):
        client.checkpoint(job_id)

    api.worker_part(job_id).run()

    assert client.checkpoint(job_id).id == job_id


def test_labels_priority_and_limits_change_and_go_away(client: Client) -> None:
    job = client.submit(changed(tiny_lm(), {"labels": {"keep": "1", "drop": "2"}}))

    changed_ = client.update(job.id, labels={"drop": None, "new": "3"}, limits={"max_duration_s": 60}, priority="low")

    assert (changed_.labels, changed_.priority) == ({"keep": "1", "new": "3"}, "low")
    assert changed_.spec["limits"]["max_duration_s"] == 60
    assert client.update(job.id, limits={"max_duration_s": None}).spec["limits"]["max_duration_s"] is None


def test_a_change_of_an_old_revision_is_refused(client: Client) -> None:
    job = client.submit(tiny_lm())
    client.update(job.id, priority="high", revision=job.revision)

    with pytest.raises(errors.RevisionMismatch):
        client.update(job.id, priority="low", revision=job.revision)


def test_the_record_of_an_ended_job_is_deleted_and_that_of_a_live_one_is_not(client: Client, api: ApiProcess) -> None:
    job_id, living = ended(client, api), client.submit(tiny_lm()).id

    client.delete(job_id)

    with pytest.raises(errors.NotFound):
        client.get(job_id)
    with pytest.raises(errors.Conflict):
        client.delete(living)


def test_jobs_are_counted_by_state(client: Client) -> None:
    before = client.counts()
    client.submit(tiny_lm())

    after = client.counts()

    assert after.states[State.QUEUED] == before.states[State.QUEUED] + 1
    assert after.total == before.total + 1


def test_a_client_knows_who_it_is(client: Client) -> None:
    me = client.me()

    assert (me.project, "jobs:write" in me.scopes) == ("default", True)


def test_a_job_without_checkpoints_lists_none(client: Client) -> None:
    assert list(client.checkpoints(client.submit(tiny_lm()).id)) == []
