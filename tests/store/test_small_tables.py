"""Artifacts, bundles, providers, watches, API keys, the deployment, the outbox: each does the one thing it is for."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from shunter_schemas.states import Reason
from shunter_store.accounts import providers
from shunter_store.installation import api_keys, deployment
from shunter_store.job import outbox, steps, watch
from shunter_store.job.lifecycle import Trigger
from shunter_store.report import artifacts
from shunter_store.sql.database import Database
from shunter_store.sql.sqltypes import db_now
from shunter_store.storage import bundles
from shunter_store.tables import watches
from sqlalchemy import update
from support.store_rows import advance, claim_job, new_job


def test_outputs_are_listed_by_path_and_a_newer_generation_wins(database: Database) -> None:
    job = new_job(database).id
    for path, generation, size in [("b", 2, 20), ("a/x", 1, 1), ("b", 1, 10), ("c", 1, 3)]:
        put_artifact(database, job, path, generation, size)

    page = database.read(lambda conn: artifacts.page(conn, job, limit=2))
    rest = database.read(lambda conn: artifacts.page(conn, job, after=page[-1].path))

    assert [(one.path, one.generation, one.size) for one in page + rest] == [("a/x", 1, 1), ("b", 2, 20), ("c", 1, 3)]
    assert database.read(lambda conn: artifacts.get(conn, job, "b")) == page[1]
    assert database.read(lambda conn: artifacts.get(conn, job, "d")) is None


def test_a_bundle_is_known_by_its_digest(database: Database) -> None:
    database.write(lambda conn: bundles.put(conn, "sha256:1", 10, 2))
    database.write(lambda conn: bundles.put(conn, "sha256:1", 10, 2))

    found = database.read(lambda conn: bundles.get(conn, "sha256:1"))

    assert found is not None
    assert (found.size, found.entries) == (10, 2)
    assert database.read(lambda conn: bundles.get(conn, "sha256:2")) is None


def test_the_newest_health_of_a_provider_takes_the_place_of_the_former(database: Database) -> None:
    database.write(lambda conn: providers.record_health(conn, "b", "local", True, account="me", offers=[{"gpus": 1}]))
    database.write(lambda conn: providers.record_health(conn, "a", "cloud", False, "no key"))
    database.write(lambda conn: providers.record_health(conn, "b", "local", False, "broken"))

    rows = database.read(providers.list_all)

    assert [(one.instance, one.ok, one.detail, one.account, one.offers) for one in rows] == [
        ("a", False, "no key", None, []),
        ("b", False, "broken", None, [{"gpus": 1}]),
    ]


def test_only_jobs_that_have_not_ended_can_be_watched(database: Database) -> None:
    lives, ended = new_job(database).id, new_job(database).id
    advance(database, ended, Trigger.PLANNED)
    claim = claim_job(database, ended)
    stop = steps.Change(Trigger.STOP, reason=Reason.CANCELLED_BY_USER)
    database.write(lambda conn: steps.apply(conn, claim, stop))
    advance(database, ended, Trigger.NODES_GONE)

    found = database.read(lambda conn: watch.living(conn, [ended, lives, "job_of_nobody"]))

    assert found == [lives]


def test_a_job_is_watched_for_a_while(database: Database) -> None:
    job = new_job(database).id
    before = database.read(lambda conn: watch.is_watched(conn, job))
    database.write(lambda conn: watch.touch(conn, [job], for_s=10))
    database.write(lambda conn: watch.touch(conn, [job], for_s=30))
    during = database.read(lambda conn: watch.is_watched(conn, job))

    database.write(lambda conn: conn.execute(update(watches).values(until=db_now() - 1)))

    assert (before, during, database.read(lambda conn: watch.is_watched(conn, job))) == (False, True, False)


def test_a_key_is_found_by_its_secret_and_only_its_hash_is_kept(database: Database) -> None:
    database.write(lambda conn: api_keys.add(conn, "shk_secret", "cli", ["jobs:write", "jobs:read"], "team"))

    key = database.read(lambda conn: api_keys.find(conn, "shk_secret"))
    rows = database.read(lambda conn: conn.exec_driver_sql("SELECT * FROM api_keys").all())

    assert key is not None
    assert (key.project, key.name, key.scopes) == ("team", "cli", frozenset({"jobs:read", "jobs:write"}))
    assert database.read(lambda conn: api_keys.find(conn, "shk_secre")) is None
    assert "shk_secret" not in repr(rows)


def test_keys_are_listed_by_ids_that_give_nothing_away_and_are_revoked_by_them(database: Database) -> None:
    for name in ("cli", "ci"):
        database.write(lambda conn, name=name: api_keys.add(conn, f"shk_{name}", name, ["jobs:read"]))  # type: ignore[misc]

    listed = database.read(api_keys.list_all)
    revoked = [database.write(lambda conn: api_keys.revoke(conn, api_keys.id_of("shk_cli"))) for _ in range(2)]

    assert {(key.id, key.name) for key in listed} == {
        (api_keys.id_of("shk_cli"), "cli"),
        (api_keys.id_of("shk_ci"), "ci"),
    }
    assert revoked == [True, False]
    assert [key.name for key in database.read(api_keys.list_all)] == ["ci"]


@pytest.mark.parametrize("key_id", ["", "%", "a%%%%%%%%%%%", "A" * 12, "a" * 13])
def test_what_is_no_id_revokes_nothing(database: Database, key_id: str) -> None:
    database.write(lambda conn: api_keys.add(conn, "shk_secret", "cli", ["admin"]))

    with pytest.raises(ValueError, match="no id of a key"):
        database.write(lambda conn: api_keys.revoke(conn, key_id))

    assert len(database.read(api_keys.list_all)) == 1


def test_adding_a_key_again_leaves_it_as_it_is(database: Database) -> None:
    database.write(lambda conn: api_keys.add(conn, "shk_secret", "first", ["admin"]))

    database.write(lambda conn: api_keys.add(conn, "shk_secret", "second", ["jobs:read"]))

    key = database.read(lambda conn: api_keys.find(conn, "shk_secret"))
    assert key is not None
    assert (key.name, key.scopes) == ("first", frozenset({"admin"}))


def test_a_scope_that_does_not_exist_is_refused(database: Database) -> None:
    with pytest.raises(ValueError, match=r"\['root'\]"):
        database.write(lambda conn: api_keys.add(conn, "shk_secret", "cli", ["root", "admin"]))


def test_everybody_who_starts_at_once_is_the_same_deployment(database_url: str) -> None:
    database = Database.connect(database_url, readers=8)
    start = threading.Barrier(8)

    def begin(_: int) -> deployment.Deployment:
        start.wait()
        return database.write(deployment.get_or_create)

    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(begin, range(8)))
    database.close()

    [one] = made
    assert len(one.id) == 6
    assert len(one.install_nonce) == 32


def test_hints_stay_in_the_outbox_until_they_are_deleted(database: Database) -> None:
    for topic in ("due", "other", "due"):
        database.write(lambda conn, topic=topic: outbox.put(conn, topic))  # type: ignore[misc]

    taken = database.read(lambda conn: outbox.take(conn, 2))
    database.write(lambda conn: outbox.delete(conn, [row.id for row in taken]))
    database.write(lambda conn: outbox.delete(conn, []))

    assert [row.topic for row in taken] == ["due", "other"]
    assert [row.topic for row in database.read(lambda conn: outbox.take(conn, 9))] == ["due"]


def test_a_number_of_the_outbox_is_never_used_again(database: Database) -> None:
    database.write(outbox.put)
    [first] = database.read(lambda conn: outbox.take(conn, 9))
    database.write(lambda conn: outbox.delete(conn, [first.id]))

    database.write(outbox.put)

    assert database.read(lambda conn: outbox.take(conn, 9))[0].id > first.id


def put_artifact(database: Database, job_id: str, path: str, generation: int, size: int) -> None:
    file: dict[str, Any] = {"size": size, "sha256": "0" * 64, "object": f"{job_id}/{generation}/{path}"}
    database.write(lambda conn: artifacts.put(conn, job_id, path, generation=generation, **file))


def test_offers_that_cannot_be_read_now_stay_with_their_age(database: Database) -> None:
    database.write(lambda conn: providers.record_health(conn, "a", "cloud", True, offers=[{"gpus": 1}]))
    (before,) = database.read(providers.list_all)

    database.write(lambda conn: providers.record_health(conn, "a", "cloud", False, "it hangs"))

    (after,) = database.read(providers.list_all)
    assert (after.ok, after.detail, after.offers) == (False, "it hangs", [{"gpus": 1}])
    assert after.offers_at == before.offers_at is not None


def test_an_instance_that_was_never_read_has_no_age(database: Database) -> None:
    database.write(lambda conn: providers.record_health(conn, "a", "cloud", False, "no key"))

    assert database.read(providers.list_all)[0].offers_at is None
