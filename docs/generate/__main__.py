"""Writes the pages that are made from code: `python docs/generate [--check]`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import errors_page
import job_page
import states_page

DOCS = Path(__file__).parents[1]

PAGES: Mapping[str, Callable[[], str]] = {
    "job-document.md": job_page.text,
    "states.md": states_page.text,
    "errors.md": errors_page.text,
}

_NOTE = "<!-- Made by `python docs/generate` from the code. Change the code, then run it. -->\n\n"


def main(arguments: list[str]) -> int:
    """Write what is stale, or with `--check` only name it (exit code 1)."""
    if arguments not in ([], ["--check"]):
        print("usage: python docs/generate [--check]", file=sys.stderr)
        return 2
    stale = [name for name, page in PAGES.items() if _read(DOCS / name) != _NOTE + page()]
    for name in stale:
        if arguments:
            print(f"docs/{name} is stale: run python docs/generate", file=sys.stderr)
        else:
            (DOCS / name).write_text(_NOTE + PAGES[name](), encoding="utf-8")
            print(f"wrote docs/{name}")
    return 1 if arguments and stale else 0


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
