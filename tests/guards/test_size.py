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
LONGER_FUNCTIONS: dict[str, int] = {
    "tests/support/documents.py::everything": 100,  # one document with every field: data, no logic
}


def test_no_file_is_longer_than_the_budget_or_its_own_cap() -> None:
    lengths = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in python_files()}

    over = {name: length for name, length in lengths.items() if length > LONGER_FILES.get(name, FILE_LINES)}

    assert over == {}
    assert all(length <= 500 for length in LONGER_FILES.values())


def test_no_function_is_longer_than_the_budget_or_its_own_cap() -> None:
    over = {
        name: length
        for name, length in function_lengths().items()
        if length > LONGER_FUNCTIONS.get(name, FUNCTION_LINES)
    }

    assert over == {}


def test_every_exception_is_still_needed() -> None:
    files = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in python_files()}
    functions = function_lengths()

    stale = [name for name in LONGER_FILES if files.get(name, 0) <= FILE_LINES]
    stale += [name for name in LONGER_FUNCTIONS if functions.get(name, 0) <= FUNCTION_LINES]

    assert stale == []


def function_lengths() -> dict[str, int]:
    return {
        f"{name}::{function.name}": function.end_lineno - function.lineno + 1
        for name, path in python_files()
        for function in functions_of(path)
        if function.end_lineno is not None
    }


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
