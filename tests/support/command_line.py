"""The command line within the test's process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shunter.cli.main import app
from support.documents import tiny_lm
from typer.testing import CliRunner, Result


def shunter(*arguments: str | Path, stdin: str | None = None) -> Result:
    """One command and what it said."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)


def written(folder: Path, document: Any = None, name: str = "job.json") -> Path:
    """A document as a file."""
    path = folder / name
    path.write_text(json.dumps(tiny_lm() if document is None else document))
    return path
