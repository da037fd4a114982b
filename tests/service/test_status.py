import pytest
from shunter_store.accounts import providers, refusals
from shunter_store.installation import leases
from shunter_store.job import outbox
from shunter_store.sql.sqltypes import db_now
from shunter_store.tables import outbox as outbox_table
from sqlalchemy import update
from support.service_app import App


async def test_readiness_names_database_migrations_redis_and_workers(app: App) -> None:
    answer = await app.http.get("/readyz", headers={"Authorization": ""})

    found = answer.json()
    assert (answer.status_code, found["status"]) == (200, "ready")
    assert {name: (check["ok"], check["required"]) for name, check in found["checks"].items()} == {
        "database": (True, True),
        "migrations": (True, True),
        "redis": (True, False),
        "workers": (False, False),
    }


async def test_workers_show_by_the_leases_they_hold(app: App) -> None:
    app.database.write(lambda conn: leases.acquire(conn, "relay", "me", 15.0))

    checks = (await app.http.get("/readyz")).json()["checks"]

    assert checks["workers"] == {"ok": True, "required": False, "detail": "hold relay"}


async def test_a_hint_that_waits_shows_that_redis_or_the_relay_is_away_and_never_makes_the_api_unready(
    app: App,
) -> None:
    app.database.write(outbox.put)
    app.database.write(lambda conn: conn.execute(update(outbox_table).values(created_at=db_now() - 60)))

    answer = await app.http.get("/readyz")

    assert answer.status_code == 200
    assert answer.json()["checks"]["redis"]["ok"] is False
    assert "waits for 60" in answer.json()["checks"]["redis"]["detail"]


@pytest.mark.parametrize(
    ("ok", "capabilities", "status"),
    [(True, {"bills": True}, "ok"), (False, {"bills": True}, "error"), (False, {}, "not_loaded")],
)
async def test_providers_show_how_a_worker_last_found_them(
    app: App, ok: bool, capabilities: dict[str, object], status: str
) -> None:
    app.database.write(
        lambda conn: providers.record_health(
            conn, "cloud", "cloud", ok, "the token was refused", account="acme", capabilities=capabilities
        )
    )

    items = {item["name"]: item for item in (await app.http.get("/v1/providers")).json()["items"]}

    assert items["local"]["status"] == "unknown"
    assert (items["cloud"]["status"], items["cloud"]["account"]) == (status, "acme")
    assert items["cloud"]["bills"] is bool(capabilities)


async def test_an_operator_lifts_what_keeps_jobs_from_a_provider_that_wanted_money(app: App) -> None:
    told = {"at": "2026-11-30T12:00:00+00:00", "fault": "payment", "scope": "account", "detail": "402: add money"}
    app.database.write(lambda conn: providers.record_health(conn, "cloud", "cloud", True))
    app.database.write(lambda conn: refusals.note(conn, "cloud", told))
    items = {item["name"]: item for item in (await app.http.get("/v1/providers")).json()["items"]}

    refused = await app.http.post("/v1/providers/cloud/retry")
    admin = app.add_key(scopes=("admin",))
    answers = [await app.http.post("/v1/providers/cloud/retry", headers=admin) for _ in range(2)]

    assert refused.status_code == 403, "it is an operator's to say"
    assert items["cloud"]["refusal"]["detail"] == "402: add money"
    assert items["cloud"]["refusal"]["until"] > items["cloud"]["refusal"]["at"]
    assert [(answer.status_code, answer.json().get("refusal")) for answer in answers] == [(200, None)] * 2
    assert app.database.read(refusals.standing) == {}


async def test_only_a_provider_that_is_configured_can_be_asked_again(app: App) -> None:
    answer = await app.http.post("/v1/providers/mars/retry", headers=app.add_key(scopes=("admin",)))

    assert answer.status_code == 404
    assert "mars" in answer.json()["detail"]


async def test_the_installed_plugins_are_shown_whether_they_are_used_or_not(app: App) -> None:
    plugins = {one["name"]: one["instances"] for one in (await app.http.get("/v1/providers")).json()["plugins"]}

    assert plugins["local"] == ["local"]
    assert plugins["runpod"] == []
