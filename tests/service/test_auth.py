import pytest
from shunter_service.auth import KeyRing
from shunter_store.installation import api_keys
from shunter_store.tables import api_keys as table
from sqlalchemy import Connection, delete, select
from support.service_app import KEY, App


@pytest.mark.parametrize(
    "value",
    [
        "",
        "Bearer",
        "Bearer ",
        "Basic abc",
        f"Basic {KEY}",
        "Bearer shk_unknown",
        f"Bearer {KEY}x",
        KEY,
        "Bearer " + "x" * 9999,
    ],
)
async def test_without_a_known_key_there_is_no_answer_but_401(lite: App, value: str) -> None:
    answer = await lite.http.get("/v1/jobs", headers={"Authorization": value})

    assert answer.status_code == 401
    assert answer.json()["type"] == "/v1/problems/unauthorized"
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


async def test_the_scheme_is_read_in_any_case(lite: App) -> None:
    answer = await lite.http.get("/v1/me", headers={"Authorization": f"bearer {KEY}"})

    assert answer.json()["name"] == "tests"


@pytest.mark.parametrize(
    ("scopes", "read", "write"),
    [(("jobs:read",), 200, 403), (("jobs:write",), 403, 422), (("admin",), 200, 422)],
)
async def test_a_key_allows_what_its_scopes_say(lite: App, scopes: tuple[str, ...], read: int, write: int) -> None:
    headers = lite.add_key(scopes=scopes)

    reading = await lite.http.get("/v1/jobs", headers=headers)
    writing = await lite.http.post("/v1/jobs", json={}, headers=headers)

    assert (reading.status_code, writing.status_code) == (read, write)


async def test_me_names_the_key_its_project_and_its_scopes(app: App) -> None:
    answer = await app.http.get("/v1/me", headers=app.add_key(project="theirs", scopes=("jobs:read",)))

    assert {name: answer.json()[name] for name in ("name", "project", "scopes")} == {
        "name": "another",
        "project": "theirs",
        "scopes": ["jobs:read"],
    }


async def test_a_key_that_was_taken_back_is_out_when_its_memory_ends(lite: App) -> None:
    now = [0.0]
    ring = KeyRing(lite.database, keep_s=10.0, clock=lambda: now[0])
    assert await ring.find(KEY) is not None
    lite.database.write(lambda conn: conn.execute(delete(table)))

    remembered = await ring.find(KEY)
    now[0] = 10.1
    forgotten = await ring.find(KEY)

    assert remembered is not None
    assert forgotten is None


async def test_guessing_keys_does_not_fill_the_memory(lite: App) -> None:
    ring = KeyRing(lite.database, keep_s=10.0)

    for number in range(1100):
        await ring.find(f"shk_{number}")

    assert len(ring._seen) <= 1024


async def test_no_secret_is_kept_in_the_store(lite: App) -> None:
    def everything(conn: Connection) -> str:
        return str(conn.execute(select(table)).all())

    assert lite.database.read(lambda conn: api_keys.find(conn, KEY)) is not None
    assert KEY not in lite.database.read(everything)
