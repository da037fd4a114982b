"""Leases of singletons: one holder, a growing fence, the database's clock."""

import threading
from concurrent.futures import ThreadPoolExecutor

from shunter_store.installation import leases
from shunter_store.sql.database import Database
from shunter_store.sql.sqltypes import db_now
from shunter_store.tables import leases as leases_table
from sqlalchemy import update


def test_a_lease_has_one_holder(database: Database) -> None:
    fences = [acquire(database, owner) for owner in ("a", "b", "a")]

    assert fences == [1, None, None]


def test_a_lease_that_ran_out_is_taken_with_a_higher_fence_and_the_former_holder_loses_it(database: Database) -> None:
    first = acquire(database, "a")
    run_out(database)

    second = acquire(database, "b")

    assert (first, second) == (1, 2)
    assert not renew(database, "a", 1)
    assert renew(database, "b", 2)


def test_a_lease_that_ran_out_cannot_be_renewed_even_if_nobody_took_it(database: Database) -> None:
    acquire(database, "a")
    run_out(database)

    assert not renew(database, "a", 1)


def test_a_renewed_lease_holds_on(database: Database) -> None:
    acquire(database, "a", ttl_s=0.5)

    assert database.write(lambda conn: leases.renew(conn, "sweep", "a", 1, 60))
    assert acquire(database, "b") is None


def test_a_released_lease_is_free_at_once(database: Database) -> None:
    acquire(database, "a")

    database.write(lambda conn: leases.release(conn, "sweep", "a", 1))

    assert acquire(database, "b") == 2


def test_a_release_of_anothers_lease_does_nothing(database: Database) -> None:
    acquire(database, "a")

    database.write(lambda conn: leases.release(conn, "sweep", "b", 1))
    database.write(lambda conn: leases.release(conn, "sweep", "a", 7))

    assert renew(database, "a", 1)


def test_a_lease_left_far_in_the_future_by_a_jump_of_the_clock_is_taken(database: Database) -> None:
    acquire(database, "a")
    database.write(lambda conn: conn.execute(update(leases_table).values(until=db_now() + 1e6)))

    assert acquire(database, "b") == 2


def test_names_are_leases_of_their_own(database: Database) -> None:
    acquire(database, "a")

    assert database.write(lambda conn: leases.acquire(conn, "relay", "b", 60)) == 1


def test_of_eight_that_come_at_once_one_gets_it(database_url: str) -> None:
    database = Database.connect(database_url, readers=8)
    start = threading.Barrier(8)

    def come(owner: int) -> int | None:
        start.wait()
        return database.write(lambda conn: leases.acquire(conn, "sweep", str(owner), 60))

    with ThreadPoolExecutor(8) as pool:
        fences = list(pool.map(come, range(8)))
    database.close()

    assert sorted(fence for fence in fences if fence is not None) == [1]


def acquire(database: Database, owner: str, ttl_s: float = 60) -> int | None:
    return database.write(lambda conn: leases.acquire(conn, "sweep", owner, ttl_s))


def renew(database: Database, owner: str, fence: int) -> bool:
    return database.write(lambda conn: leases.renew(conn, "sweep", owner, fence, 60))


def run_out(database: Database) -> None:
    database.write(lambda conn: conn.execute(update(leases_table).values(until=db_now() - 0.01)))
