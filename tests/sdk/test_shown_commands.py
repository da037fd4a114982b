"""Every `shunter …` line that a page shows is one that the command line takes."""

import re
import shlex
from pathlib import Path

import pytest
from shunter.cli import roles
from shunter.cli.main import app
from support.documents import REPOSITORY
from typer.main import get_command

PAGES = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
ROLES = set(roles.ROLES)
"""Their options are their own program's."""


def shown_on(page: Path) -> list[str]:
    """Command lines in blocks, and in backticks in the text."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    lines = [line.partition(" #")[0] for block in blocks for line in block.splitlines()]
    inline = re.findall(r"`(shunter [^`]+)`", text)
    found = [part for line in [*lines, *inline] for part in re.split(r"&&|\|\||[|;]", line)]
    return sorted({part.strip() for part in found if part.strip().startswith("shunter ")})


CASES = [pytest.param(line, id=f"{page.relative_to(REPOSITORY)}: {line}") for page in PAGES for line in shown_on(page)]


@pytest.mark.parametrize("line", CASES)
def test_a_command_that_a_page_shows_is_taken(line: str) -> None:
    _, name, *arguments = shlex.split(line.replace("…", "x"))
    commands = get_command(app).commands  # type: ignore[attr-defined]  # a group

    assert name in commands or name in ("--help", "--version")
    if name in commands.keys() - ROLES and arguments:
        commands[name].make_context(name, arguments)
