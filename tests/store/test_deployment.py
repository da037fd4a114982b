"""A database that went back in time is noticed, and what it may not know is only reported until somebody confirms."""

from __future__ import annotations

from shunter_store.installation import deployment, notices
from shunter_store.installation.deployment import Deployment
from shunter_store.sql.database import Database
from shunter_store.tables import deployment as table
from sqlalchemy import update


def first(database: Database) -> Deployment:
    return database.write(deployment.get_or_create)


def told(database: Database) -> list[str]:
    return [one.type for one in database.read(notices.newest)][::-1]


def test_a_new_installation_may_end_what_it_does_not_know(database: Database) -> None:
    found = first(database)

    assert not found.reaping_is_held
    assert database.write(deployment.get_or_create) == found


def test_reaping_is_held_with_a_new_nonce_until_it_is_confirmed(database: Database) -> None:
    before = first(database)

    database.write(lambda conn: deployment.hold(conn, "restored", by="restore"))
    held = first(database)
    database.write(lambda conn: deployment.hold(conn, "once more", by="ann"))
    database.write(lambda conn: deployment.confirm(conn, by="ann"))
    after = first(database)
    database.write(lambda conn: deployment.confirm(conn, by="bob"))

    assert (held.reaping_is_held, held.held_reason, held.id) == (True, "restored", before.id)
    assert held.install_nonce != before.install_nonce
    assert (after.reaping_is_held, after.held_reason, after.confirmed_by) == (False, None, "ann")
    assert after.install_nonce == held.install_nonce
    assert told(database) == ["reaping.held", "reaping.confirmed"]


def test_a_database_that_went_back_in_time_is_held_by_its_witness_and_only_once(database: Database) -> None:
    found = first(database)
    for _ in range(5):
        database.write(deployment.advance)
    known = first(database).epoch
    database.write(lambda conn: conn.execute(update(table).values(epoch=2)))  # as a restored dump has it

    held = database.write(lambda conn: deployment.witness(conn, found.id, known))
    database.write(lambda conn: deployment.confirm(conn, by="ann"))
    another = database.write(lambda conn: deployment.witness(conn, found.id, known))

    assert known == 5
    assert held.reaping_is_held
    assert "epoch 2, and was at 5" in (held.held_reason or "")
    assert held.epoch == 5
    assert not another.reaping_is_held, "a second witness of the same restore does not undo the confirmation"


def test_an_epoch_that_grew_holds_nothing_and_another_deployment_is_none_of_its_business(database: Database) -> None:
    found = first(database)
    database.write(deployment.advance)

    same = database.write(lambda conn: deployment.witness(conn, found.id, 1))
    other = database.write(lambda conn: deployment.witness(conn, "zzzzzz", 99))

    assert not same.reaping_is_held
    assert not other.reaping_is_held
