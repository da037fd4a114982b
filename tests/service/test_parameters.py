"""Query parameters are taken by their word: what is no value of a parameter is refused, however lax the reader."""

import pytest
from support.service_app import App


@pytest.mark.parametrize("word", ["null", "Null", "NULL"])
@pytest.mark.parametrize(
    ("path", "name"),
    [("/v1/jobs/{id}", "after_revision"), ("/v1/jobs/{id}/logs", "tail"), ("/v1/jobs/{id}/logs", "stream")],
)
async def test_the_word_null_is_no_number_and_no_choice(lite: App, path: str, name: str, word: str) -> None:
    job = await lite.submit()

    answer = await lite.http.get(path.replace("{id}", job["id"]), params={name: word})

    assert answer.status_code == 422
    assert [error["pointer"] for error in answer.json()["errors"]] == [f"/{name}"]


async def test_a_text_may_be_the_word_null(lite: App) -> None:
    named = await lite.submit({**(await lite.submit())["spec"], "name": "null"})

    found = (await lite.http.get("/v1/jobs", params={"name": "null"})).json()["items"]

    assert [job["id"] for job in found] == [named["id"]]
