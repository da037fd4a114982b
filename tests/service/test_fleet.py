"""`/v1/nodes`, `/v1/costs`, `/v1/reaping`: what bills now, what things cost, what may be ended, and who may see it."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from shunter_schemas.states import NodeState
from shunter_store.accounts import readings
from shunter_store.installation import deployment
from shunter_store.tables import nodes
from sqlalchemy import update
from support.service_app import App
from support.store_rows import intend, new_job, new_node

NOW = datetime.now(UTC)
ADMIN = ("admin", "jobs:read", "jobs:write")


def bill(app: App, job_id: str, rate: float = 2.0, hours: float = 1.0, instance: str = "cloud", **values: Any) -> str:
    """A node that has billed for so long, and does."""
    [row] = intend(app.database, job_id, new_node(instance=instance, billed_usd_per_hour=rate))
    since = datetime.now(UTC) - timedelta(hours=hours)
    columns = {"state": NodeState.READY, "handle": f"h-{row.id}", "intended_at": since, "created_at": since}
    columns |= {"accrued_at": since, "create_deadline_at": since, **values}
    app.database.write(lambda conn: conn.execute(update(nodes).where(nodes.c.id == row.id).values(**columns)))
    return row.token


def read(
    app: App, instance: str, *, bills: bool, ago_s: float = 5.0, strangers: list[dict[str, Any]] | None = None
) -> None:
    at = datetime.now(UTC) - timedelta(seconds=ago_s)
    app.database.write(
        lambda conn: readings.record(
            conn, instance, account="acme", bills=bills, stale_after_s=60.0, at=at, strangers=strangers or []
        )
    )


def fail(app: App, instance: str) -> None:
    app.database.write(
        lambda conn: readings.record_failure(conn, instance, bills=True, stale_after_s=60.0, error="auth: refused")
    )


async def listed(app: App, headers: dict[str, str] | None = None, **params: Any) -> dict[str, Any]:
    answer = await app.http.get("/v1/nodes", params=params, headers=headers)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def reading(page: dict[str, Any], provider: str) -> dict[str, Any]:
    return next(one for one in page["providers"] if one["provider"] == provider)


async def test_what_bills_now_is_listed_with_its_age_rate_and_cost(app: App) -> None:
    job = await app.submit()
    token = bill(app, job["id"], rate=6.0, hours=0.5)
    bill(app, job["id"], rate=0.0, instance="local")
    read(app, "cloud", bills=True)
    read(app, "local", bills=False)

    page = await listed(app, billing="true")

    [node] = page["items"]
    assert (node["token"], node["provider"], node["job"], node["project"]) == (token, "cloud", job["id"], "default")
    assert node["age_s"] == pytest.approx(1800, abs=20)
    assert (node["usd_per_hour"], node["cost_usd"]) == (6.0, pytest.approx(3.0, abs=0.05))
    assert page["usd_per_hour"] == 6.0
    assert page["confirmed"] is True
    assert reading(page, "cloud")["age_s"] == pytest.approx(5, abs=5)


async def test_nothing_is_claimed_of_a_provider_that_was_never_read_is_stale_or_fails(app: App) -> None:
    read(app, "local", bills=False)
    never = await listed(app, billing="true")
    read(app, "cloud", bills=True, ago_s=61.0)
    stale = await listed(app, billing="true")
    read(app, "cloud", bills=True)
    good = await listed(app, billing="true")
    fail(app, "cloud")
    failing = await listed(app, billing="true")

    assert [(page["confirmed"], reading(page, "cloud")["status"]) for page in (never, stale, good, failing)] == [
        (False, "never_read"),
        (False, "stale"),
        (True, "good"),
        (False, "failing"),
    ]
    assert reading(failing, "cloud")["error"] == "auth: refused"
    assert reading(failing, "cloud")["failing_since"]
    assert reading(failing, "cloud")["read_at"] == reading(good, "cloud")["read_at"]


async def test_a_provider_that_costs_nothing_casts_no_doubt(lite: App) -> None:
    read(lite, "local", bills=False, ago_s=9999)
    read(lite, "cloud", bills=True)

    assert (await listed(lite))["confirmed"] is True


async def test_rows_of_a_provider_that_is_not_configured_any_more_keep_accruing_and_are_told(lite: App) -> None:
    job = await lite.submit()
    bill(lite, job["id"], rate=2.0, instance="removed")
    for instance in ("cloud", "local"):
        read(lite, instance, bills=instance == "cloud")

    page = await listed(lite, billing="true")

    assert page["confirmed"] is False
    gone = reading(page, "removed")
    assert (gone["status"], gone["billing_nodes"], gone["usd_per_hour"]) == ("not_configured", 1, 2.0)


async def test_a_stranger_is_shown_and_nothing_is_claimed_while_there_is_one(lite: App) -> None:
    read(lite, "local", bills=False)
    read(lite, "cloud", bills=True, strangers=[{"handle": "i-1", "token": None, "condition": "running"}])

    mine = await listed(lite)
    all_ = await listed(lite, lite.add_key(scopes=ADMIN))

    assert (mine["confirmed"], reading(mine, "cloud")["strangers"]) == (False, [])
    assert [one["handle"] for one in reading(all_, "cloud")["strangers"]] == ["i-1"]


async def test_pages_of_nodes_meet(lite: App) -> None:
    job = await lite.submit()
    made = {bill(lite, job["id"], hours=number) for number in range(1, 6)}
    found: list[str] = []
    cursor: dict[str, Any] = {}

    while True:
        page = await listed(lite, limit=2, **cursor)
        found += [node["token"] for node in page["items"]]
        if "next_cursor" not in page:
            break
        cursor = {"cursor": page["next_cursor"]}

    assert (len(found), set(found)) == (5, made)


async def test_keys_see_their_own_projects_money_and_admins_everybodys(app: App) -> None:
    mine, other = await app.submit(), new_job(app.database, project="lab")
    bill(app, mine["id"], rate=2.0)
    bill(app, other.id, rate=3.0)
    admin = app.add_key(scopes=ADMIN)

    pages = [await listed(app, headers) for headers in (None, admin)]
    costs = [(await app.http.get("/v1/costs", headers=headers)).json()["total_usd"] for headers in (None, admin)]

    assert [page["usd_per_hour"] for page in pages] == [2.0, 5.0]
    assert costs == [pytest.approx(2.0, abs=0.02), pytest.approx(5.0, abs=0.02)]


async def test_costs_are_grouped_and_the_groups_and_the_rest_add_up_to_the_total(app: App) -> None:
    for number in range(5):
        job = new_job(app.database, labels={"team": f"t{number}"})
        gone = datetime.now(UTC)
        since = gone - timedelta(hours=1)
        usd: dict[str, Any] = {
            "accrued_usd": 1.0 + number / 3,
            "accrued_at": None,
            "gone_at": gone,
            "state": NodeState.GONE,
        }
        bill(app, job.id, rate=1.0 + number / 3, intended_at=since, **usd)

    whole = (await app.http.get("/v1/costs", params={"group_by": "label.team,provider"})).json()
    cut = (await app.http.get("/v1/costs", params={"group_by": "label.team", "limit": 2})).json()

    assert [group["by"]["label.team"] for group in whole["groups"]] == ["t4", "t3", "t2", "t1", "t0"]
    assert round(sum(group["usd"] for group in whole["groups"]), 6) == whole["total_usd"]
    assert len(cut["groups"]) == 2
    assert round(sum(group["usd"] for group in cut["groups"]) + cut["others"]["usd"], 6) == cut["total_usd"]
    assert cut["total_usd"] == whole["total_usd"]


async def test_costs_as_csv_hold_no_formula(lite: App) -> None:
    job = new_job(lite.database, labels={"team": "=HYPERLINK(1)"})
    bill(lite, job.id)

    answer = await lite.http.get("/v1/costs", params={"group_by": "label.team,day"}, headers={"Accept": "text/csv"})

    heading, *lines = csv.reader(io.StringIO(answer.text))
    assert answer.headers["content-type"].startswith("text/csv")
    assert heading == ["label.team", "day", "usd", "unconfirmed_usd", "node_hours"]
    assert {line[0] for line in lines} == {"'=HYPERLINK(1)"}


@pytest.mark.parametrize(
    ("params", "name"),
    [
        ({"group_by": "cloud"}, "group_by"),
        ({"group_by": "label."}, "group_by"),
        ({"group_by": "provider,job,project,created_by,day,label.a"}, "group_by"),
        ({"from": "yesterday"}, "from"),
        ({"to": "2026-11-30"}, "to"),
        ({"from": "2026-11-30T00:00:00Z", "to": "2026-11-29T00:00:00Z"}, "to"),
        ({"limit": "0"}, "limit"),
        ({"until": "now"}, "until"),
    ],
)
async def test_parameters_of_costs_are_refused_by_name(lite: App, params: dict[str, str], name: str) -> None:
    answer = await lite.http.get("/v1/costs", params=params)

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == f"/{name}"


async def test_costs_within_a_span_leave_out_the_rest(lite: App) -> None:
    job = await lite.submit()
    bill(lite, job["id"], rate=4.0, hours=2.0)
    hour_ago = (datetime.now(UTC) - timedelta(hours=1)).isoformat().replace("+00:00", "Z")

    late = (await lite.http.get("/v1/costs", params={"from": hour_ago})).json()
    early = (await lite.http.get("/v1/costs", params={"to": hour_ago})).json()

    assert late["total_usd"] == pytest.approx(4.0, abs=0.05)
    assert early["total_usd"] == pytest.approx(4.0, abs=0.05)


async def test_reaping_is_held_shown_and_confirmed_by_admins_only(app: App) -> None:
    app.database.write(deployment.get_or_create)
    admin = app.add_key(scopes=ADMIN)

    refused = await app.http.post("/v1/reaping/confirm")
    held = await app.http.post("/v1/reaping/hold", json={"reason": "restored from a dump"}, headers=admin)
    shown = await listed(app)
    confirmed = await app.http.post("/v1/reaping/confirm", headers=admin)

    assert (refused.status_code, refused.json()["type"]) == (403, "/v1/problems/forbidden")
    assert (held.json()["mode"], held.json()["reason"]) == ("reports", "restored from a dump")
    assert shown["reaping"] == "reports"
    assert (confirmed.json()["mode"], confirmed.json()["confirmed_by"]) == ("ends", "another")
    assert [notice["type"] for notice in confirmed.json()["notices"]] == ["reaping.confirmed", "reaping.held"]
