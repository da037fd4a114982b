"""Pages that are made from code say what the code says, and links between pages lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_generated_pages_are_current() -> None:
    check = subprocess.run(
        [sys.executable, "docs/generate", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert check.returncode == 0, check.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_inside_the_repository_lead_to_a_file_and_a_heading(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#]*)(#[^)]*)?\)", page.read_text())

    broken = [path + anchor for path, anchor in links if not leads_somewhere(page, path, anchor)]

    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_exist(page: Path) -> None:
    named = re.findall(r"`((?:tests|examples|docs|schemas|sdk)/[\w./-]+\.\w+)`", page.read_text())

    missing = [name for name in named if not (ROOT / name).exists()]

    assert missing == []


def leads_somewhere(page: Path, path: str, anchor: str) -> bool:
    target = page.parent / path if path else page
    return target.exists() and (not anchor or anchor[1:] in headings(target))


def headings(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
