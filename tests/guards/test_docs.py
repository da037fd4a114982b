"""Pages that are made from code say what the code says, and links between pages lead somewhere."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from shunter_schemas.parse import parse_job

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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_document_that_a_page_shows_is_one_that_this_release_takes(page: Path) -> None:
    blocks = re.findall(r"```json\n(.*?)```", page.read_text(), re.DOTALL)

    for block in blocks:
        if '"version"' in block:
            parse_job(block.encode())


def test_the_site_is_built_whole_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    built = build(ROOT, tmp_path / "site")
    pages = list((tmp_path / "site").rglob("*.html"))
    loaded = [load for page in pages for load in loads(page.read_text(encoding="utf-8"))]
    index = json.loads((tmp_path / "site" / "search" / "search_index.json").read_text(encoding="utf-8"))

    assert built.returncode == 0, built.stderr
    assert len(pages) > len(PAGES)  # the page for what is not there, too
    assert [load for load in loaded if load.startswith(("http:", "https:", "//"))] == []
    assert [page.name for page in pages if 'class="mermaid"' in page.read_text(encoding="utf-8")] == []
    assert {"job-document.html", "problems/invalid_document.html"} <= {entry["location"] for entry in index["docs"]}


def test_a_broken_link_fails_the_build(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    for name in ("mkdocs.yml", "CONTRIBUTING.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    with (tmp_path / "docs" / "promises.md").open("a", encoding="utf-8") as page:
        page.write("\n[nowhere](nowhere.md) [no heading](states.md#nowhere)\n")

    built = build(tmp_path, tmp_path / "site")

    assert built.returncode != 0
    assert "'nowhere.md'" in built.stderr
    assert "'states.md#nowhere'" in built.stderr


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(site)]
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False, timeout=100)


def loads(page: str) -> list[str]:
    """What a browser fetches by itself: scripts, styles, images, fonts; not the links that readers may follow."""
    tags = re.findall(r"<(?:script|img|iframe|link|source)\b[^>]*>", page)
    return [address for tag in tags for address in re.findall(r'\b(?:src|href)="?([^"\s>]+)', tag)]


def leads_somewhere(page: Path, path: str, anchor: str) -> bool:
    target = page.parent / path if path else page
    return target.exists() and (not anchor or anchor[1:] in headings(target))


def headings(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
