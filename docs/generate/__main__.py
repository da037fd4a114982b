"""Writes the pages that are made from code: `python docs/generate [--check]`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import api_page
import commands_page
import errors_pages
import job_page
import providers_page
import python_page
import reasons_pages
import settings_page
import states_drawing
import states_page

DOCS = Path(__file__).parents[1]

PAGES: Mapping[str, Callable[[], str]] = {
    "job-document.md": job_page.text,
    "states.md": states_page.text,
    "images/states.svg": states_drawing.text,
    "errors.md": errors_pages.text,
    "command-line.md": commands_page.text,
    "python.md": python_page.text,
    "api.md": api_page.text,
    "operating/settings.md": settings_page.text,
    "providers/README.md": providers_page.text,
}
FOLDERS: Mapping[str, Callable[[], Mapping[str, str]]] = {
    "problems": errors_pages.pages,
    "reasons": reasons_pages.pages,
}
"""Folders that hold generated pages and nothing else."""

_NOTE = "<!-- Made by `python docs/generate` from the code. Change the code, then run it. -->\n\n"


def main(arguments: list[str]) -> int:
    """Write what is stale, or with `--check` only name it (exit code 1)."""
    if arguments not in ([], ["--check"]):
        print("usage: python docs/generate [--check]", file=sys.stderr)
        return 2
    wanted = {name: _NOTE + text for name, text in _all_pages()}
    stale = [name for name, text in wanted.items() if _read(DOCS / name) != text]
    left_over = [name for name in _present() if name not in wanted]
    for name in stale + left_over:
        if arguments:
            print(f"docs/{name} is stale: run python docs/generate", file=sys.stderr)
        elif name in wanted:
            (DOCS / name).parent.mkdir(exist_ok=True)
            (DOCS / name).write_text(wanted[name], encoding="utf-8")
            print(f"wrote docs/{name}")
        else:
            (DOCS / name).unlink()
            print(f"removed docs/{name}")
    return 1 if arguments and stale + left_over else 0


def _all_pages() -> Iterator[tuple[str, str]]:
    for name, page in PAGES.items():
        yield name, page()
    for folder, pages in FOLDERS.items():
        for name, text in pages().items():
            yield f"{folder}/{name}", text


def _present() -> list[str]:
    """Pages that lie in the folders of generated ones."""
    return [f"{folder}/{path.name}" for folder in FOLDERS for path in sorted((DOCS / folder).glob("*.md"))]


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
