"""Every test that the page of reports names exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "notes" / "reports.md"
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", PAGE.read_text(encoding="utf-8"))))


@pytest.mark.parametrize(("file", "name"), NAMED, ids=lambda part: part)
def test_a_test_that_the_page_of_reports_names_exists(file: str, name: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")

    assert re.search(rf"^(async )?def {name}\(", text, re.MULTILINE)


def test_every_report_has_a_test() -> None:
    rows = re.findall(r"^\| (?!report|-)(.+)\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)

    assert len(rows) >= 40
    assert [row for row in rows if "::test_" not in row] == []
