"""After a restore the reaper only reports what it would end, until an operator confirms; and a restore is noticed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from shunter_providers.contract import Fault, Instance, NodeCondition, NodeView, Provider, ProviderError
from shunter_providers.local.provider import LocalProvider
from shunter_providers.registry import Registry
from shunter_store.accounts import readings
from shunter_store.installation import deployment, notices
from shunter_store.sql.database import Database
from shunter_store.tables import deployment as table
from shunter_workers.accounts import Accounts
from shunter_workers.duties.reaper import Reaper
from shunter_workers.duties.scanner import Scanner
from shunter_workers.witness import Witness
from sqlalchemy import update


class Listing(LocalProvider):
    """`local` with a listing of the test's choosing, or an error."""

    def __init__(self, instance: Instance) -> None:
        super().__init__(instance)
        self.views: list[NodeView] = []
        self.terminated: list[str] = []
        self.error: ProviderError | None = None

    async def list_owned(self, deployment: str) -> list[NodeView]:
        del deployment
        if self.error is not None:
            raise self.error
        return self.views

    async def terminate(self, handle: str) -> bool:
        self.terminated.append(handle)
        return True


@pytest.fixture
def listing(tmp_path: Path) -> Listing:
    return Listing(Instance("local", "local", {}, str(tmp_path)))


@pytest.fixture
def orphan() -> list[NodeView]:
    return [NodeView("orphan", "shn-abcdef-0", NodeCondition.RUNNING, billed_usd_per_hour=2.0)]


def hold(database: Database) -> None:
    database.write(deployment.get_or_create)
    database.write(lambda conn: deployment.hold(conn, "restored", by="restore"))


def told(database: Database) -> list[tuple[str, Any]]:
    found = database.read(notices.newest)[::-1]
    return [(one.type, one.data.get("handle")) for one in found if one.type.startswith("reaping.")]


def strangers(database: Database) -> list[str]:
    return [one["handle"] for reading in database.read(readings.list_all) for one in reading.strangers]


async def test_after_a_restore_the_reaper_only_reports_until_an_operator_confirms(
    database: Database, listing: Listing, orphan: list[NodeView]
) -> None:
    hold(database)
    reaper = Reaper(database, "local")

    for _ in range(4):
        await reaper.tend(listing, [], orphan, "me")
    reported = (list(listing.terminated), strangers(database), told(database))
    database.write(lambda conn: deployment.confirm(conn, by="ann"))
    await reaper.tend(listing, [], orphan, "me")

    assert reported == ([], ["orphan"], [("reaping.held", None), ("reaping.reported", "orphan")])
    assert listing.terminated == ["orphan"]
    assert told(database)[2:] == [("reaping.confirmed", None), ("reaping.ended", "orphan")]


async def test_the_switch_of_an_operator_reports_whatever_is_confirmed(
    database: Database, listing: Listing, orphan: list[NodeView]
) -> None:
    database.write(deployment.get_or_create)
    reaper = Reaper(database, "local", reaping="report")

    for _ in range(3):
        await reaper.tend(listing, [], orphan, "me")

    assert listing.terminated == []
    assert strangers(database) == ["orphan"]


async def test_a_stranger_that_is_gone_is_reported_no_more(
    database: Database, listing: Listing, orphan: list[NodeView]
) -> None:
    hold(database)
    reaper = Reaper(database, "local")
    for _ in range(2):
        await reaper.tend(listing, [], orphan, "me")

    await reaper.tend(listing, [], [], "me")

    assert strangers(database) == []


async def test_a_restored_database_is_noticed_before_anything_is_ended(
    database: Database, listing: Listing, orphan: list[NodeView], tmp_path: Path
) -> None:
    """As `pg_restore` under running workers: nobody says that it happened."""
    witness = Witness(database, tmp_path / "epoch.json")
    for _ in range(3):
        await witness.advance()
    reaper = Reaper(database, "local", witness=witness)
    await reaper.tend(listing, [], orphan, "me")
    database.write(lambda conn: conn.execute(update(table).values(epoch=1)))

    await reaper.tend(listing, [], orphan, "me")

    assert listing.terminated == []
    assert "older than it was" in (database.read(deployment.find).held_reason or "")  # type: ignore[union-attr]  # it was made above


async def test_a_restore_while_nothing_ran_is_noticed_by_the_file_that_stayed(
    database: Database, tmp_path: Path
) -> None:
    before = Witness(database, tmp_path / "epoch.json")
    for _ in range(3):
        await before.advance()
    database.write(lambda conn: conn.execute(update(table).values(epoch=1)))

    found = await Witness(database, tmp_path / "epoch.json").look()

    assert found.reaping_is_held


@pytest.mark.parametrize("text", ["", "{", "[]", '{"deployment": 1}', '{"deployment": "abcdef", "epoch": "x"}'])
async def test_a_file_that_cannot_be_read_says_nothing_and_is_written_anew(
    database: Database, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "epoch.json"
    file.write_text(text)

    found = await Witness(database, file).look()

    assert not found.reaping_is_held
    assert f'"deployment": "{found.id}"' in file.read_text()


async def test_the_file_of_another_installation_holds_nothing(database: Database, tmp_path: Path) -> None:
    file = tmp_path / "epoch.json"
    file.write_text('{"deployment": "zzzzzz", "epoch": 999}')

    assert not (await Witness(database, file).look()).reaping_is_held


async def test_a_folder_that_cannot_be_written_stops_no_worker(database: Database, tmp_path: Path) -> None:
    witness = Witness(database, tmp_path / "missing" / "epoch.json")

    await witness.advance()

    assert not (await witness.look()).reaping_is_held


async def test_an_instance_that_cannot_be_read_is_written_down_with_the_cause(
    database: Database, listing: Listing
) -> None:
    registry = Registry({"local": Instance("local", "local")}, lambda _: lambda _: cast("Provider", listing))
    scanner = Scanner(database, registry, Accounts(registry), instance="local", deployment="abcdef")

    await scanner.work()
    [good] = database.read(readings.list_all)
    listing.error = ProviderError(Fault.AUTH, "the token was revoked")
    scanner._scan_at = 0.0
    await scanner.work()
    [bad] = database.read(readings.list_all)

    assert (good.failing_since, good.bills) == (None, False)
    assert good.read_at is not None
    assert (bad.read_at, bad.error) == (good.read_at, "auth: the token was revoked")
    assert bad.failing_since is not None
