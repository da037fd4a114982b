"""Files and functions stay small enough to be read at once."""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

FILE_LINES = 400
FUNCTION_LINES = 50

# Exceptions by name, each with a cap of its own; a file that needs none leaves the table.
LONGER_FILES: dict[str, int] = {}
LONGER_FUNCTIONS: dict[str, int] = {}


def test_no_file_is_longer_than_the_budget_or_its_own_cap() -> None:
    lengths = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in python_files()}

    over = {name: length for name, length in lengths.items() if length > LONGER_FILES.get(name, FILE_LINES)}

    assert over == {}
    assert all(length <= 500 for length in LONGER_FILES.values())


def test_no_function_is_longer_than_the_budget_or_its_own_cap() -> None:
    lengths = {
        f"{name}::{function.name}": function.end_lineno - function.lineno + 1
        for name, path in python_files()
        for function in functions_of(path)
        if function.end_lineno is not None
    }

    over = {name: length for name, length in lengths.items() if length > LONGER_FUNCTIONS.get(name, FUNCTION_LINES)}

    assert over == {}


def test_every_exception_is_still_needed() -> None:
    files = dict(python_files())

    stale = [name for name in LONGER_FILES if len(files[name].read_text().splitlines()) <= FILE_LINES]

    assert stale == []


def python_files() -> Iterator[tuple[str, Path]]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in listed.stdout.split("\0"):
        if name and (ROOT / name).is_file():
            yield name, ROOT / name


def functions_of(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
