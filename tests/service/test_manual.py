"""Where a problem's `type` and a job's `reason` lead: a page that loads nothing, or JSON."""

from html.parser import HTMLParser

import pytest
from shunter_schemas.api import Problem
from shunter_schemas.reasons import MEANINGS
from shunter_service.web.problem_pages import PAGES, example
from shunter_service.web.problems import PROBLEMS
from shunter_store.job.lifecycle import OUTCOME
from support.service_app import App

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


class Loads(HTMLParser):
    """Collects what a page would fetch by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [f"{tag} {value}" for name, value in attrs if name == "src" or (tag == "link" and name == "href")]


def test_every_kind_of_problem_has_a_page_and_a_valid_example() -> None:
    assert PAGES.keys() == PROBLEMS.keys()
    for slug in PROBLEMS:
        assert Problem.model_validate(example(slug)).type == f"/v1/problems/{slug}"


async def test_a_browser_that_follows_the_type_of_a_problem_sees_a_page(lite: App) -> None:
    for slug, kind in PROBLEMS.items():
        answer = await lite.http.get(example(slug)["type"], headers=BROWSER)

        assert answer.status_code == 200
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        assert f"<h1>{kind.title}</h1>" in answer.text
        assert "The way out" in answer.text
        assert loads(answer.text) == []


async def test_the_reason_of_a_job_can_be_looked_up_as_a_page_and_as_json(lite: App) -> None:
    for reason, meaning in MEANINGS.items():
        page = await lite.http.get(f"/v1/reasons/{reason}", headers=BROWSER)
        plain = await lite.http.get(f"/v1/reasons/{reason}")

        assert f"Jobs that end with {reason}" in page.text
        assert loads(page.text) == []
        assert plain.json() == {
            "reason": reason,
            "ends": OUTCOME[reason],
            "meaning": meaning.meaning,
            "way_out": meaning.way_out,
        }


async def test_text_of_a_page_is_escaped_and_its_policy_lets_nothing_in(lite: App) -> None:
    answer = await lite.http.get("/v1/problems/unsupported_media_type", headers=BROWSER)

    assert "&#x27;Content-Type: application/json&#x27;" in answer.text
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert answer.headers["Vary"] == "Accept"


@pytest.mark.parametrize("path", ["/v1/problems/none", "/v1/reasons/none", "/v1/reasons/%3Cscript%3E"])
async def test_what_nobody_knows_is_a_404_for_browsers_too(lite: App, path: str) -> None:
    answer = await lite.http.get(path, headers=BROWSER)

    assert answer.status_code == 404
    assert answer.headers["Content-Type"] == "application/problem+json"


def loads(page: str) -> list[str]:
    found = Loads()
    found.feed(page)
    return found.found
