"""The description and the page to try it: open to all, whole without a network, and bound to this service."""

import json
import re

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from shunter_service import openapi
from support.documents import tiny_lm
from support.service_app import App

OPEN = {"Authorization": ""}


async def test_the_description_is_served_to_everybody_as_it_was_committed(lite: App) -> None:
    answer = await lite.http.get("/openapi.json", headers=OPEN)

    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json() == json.loads(openapi.FILE.read_text(encoding="utf-8"))


async def test_the_page_and_everything_it_loads_come_from_this_service_without_a_key(lite: App) -> None:
    page = await lite.http.get("/docs", headers=OPEN)

    loaded = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    answers = {path: await lite.http.get(path, headers=OPEN) for path in loaded if not path.startswith("data:")}
    assert page.headers["content-type"].startswith("text/html")
    assert {path: answer.status_code for path, answer in answers.items()} == {
        "/docs/swagger-ui.css": 200,
        "/docs/swagger-ui-bundle.js": 200,
        "/docs/start.js": 200,
        "/openapi.json": 200,
    }
    assert "text/css" in answers["/docs/swagger-ui.css"].headers["content-type"]
    assert "text/javascript" in answers["/docs/swagger-ui-bundle.js"].headers["content-type"]
    assert len(answers["/docs/swagger-ui-bundle.js"].content) > 1_000_000


async def test_the_page_keeps_to_its_policy(lite: App) -> None:
    page = await lite.http.get("/docs", headers=OPEN)

    policy = dict(part.split(" ", 1) for part in page.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == "'self'"
    assert policy["connect-src"] == "'self'"
    assert not re.search(r"<script(?![^>]*\bsrc=)|\son[a-z]+=|javascript:|https?://", page.text)
    assert page.headers["x-content-type-options"] == "nosniff"


async def test_the_user_interface_that_is_installed_reads_openapi_3_1(lite: App) -> None:
    script = (await lite.http.get("/docs/swagger-ui-bundle.js", headers=OPEN)).text

    (version,) = set(re.findall(r'PACKAGE_VERSION:"(\d+)\.', script)) or {"none"}
    assert int(version) >= 5


@pytest.mark.parametrize("path", ["/docs", "/docs/swagger-ui-bundle.js", "/openapi.json"])
async def test_a_browser_that_holds_the_file_is_not_sent_it_again(lite: App, path: str) -> None:
    first = await lite.http.get(path, headers=OPEN)

    again = await lite.http.get(path, headers={**OPEN, "If-None-Match": first.headers["ETag"]})

    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("name", ["nope.js", "..%2f..%2fapp.py", "%2fetc%2fpasswd", "swagger-ui.css%00"])
async def test_no_other_file_is_served(lite: App, name: str) -> None:
    answer = await lite.http.get(f"/docs/{name}", headers=OPEN)

    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


async def test_a_document_that_names_the_served_schema_is_checked_by_editors_and_taken_by_the_api(lite: App) -> None:
    schema = (await lite.http.get("/v1/schemas/job.json", headers=OPEN)).json()
    document = {"$schema": "http://127.0.0.1:8080/v1/schemas/job.json", **tiny_lm()}

    answer = await lite.http.post("/v1/jobs", json=document)

    editor = Draft202012Validator(schema)
    misspelt = document | {"strategi": {"kind": "ddp"}}
    assert answer.status_code == 201
    assert "$schema" not in answer.json()["spec"]
    assert schema["$schema"] == Draft202012Validator.META_SCHEMA["$id"]
    assert list(editor.iter_errors(document)) == []
    assert ["strategi" in fault.message for fault in editor.iter_errors(misspelt)] == [True]
    assert all("description" in member for member in schema["properties"].values())
