"""Writes the JSON Schema files beside this module: `python -m shunter_schemas.generate [--check]`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from shunter_schemas.job import JobSpec

FOLDER: Final = Path(__file__).parent / "json"

SCHEMAS: Final[Mapping[str, tuple[type[BaseModel], str]]] = {
    "job.schema.json": (JobSpec, "Shunter job document, version 1"),
}
"""Model and title by file name."""


def schema_text(name: str) -> str:
    """The text of one generated file."""
    model, title = SCHEMAS[name]
    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"/v1/schemas/{name.replace('.schema', '')}",
        **model.model_json_schema(),
        "title": title,
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def stale() -> list[str]:
    """Names of the files that are not what the models say."""
    return [name for name in SCHEMAS if not _is_current(FOLDER / name)]


def _is_current(path: Path) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == schema_text(path.name)


def main(arguments: Sequence[str]) -> int:
    """Write the files, or with `--check` only say which are stale (exit code 1)."""
    names = stale()
    if arguments == ["--check"]:
        for name in names:
            print(f"{name} is stale: run python -m shunter_schemas.generate", file=sys.stderr)
        return 1 if names else 0
    if arguments:
        print("usage: python -m shunter_schemas.generate [--check]", file=sys.stderr)
        return 2
    FOLDER.mkdir(exist_ok=True)
    for name in names:
        (FOLDER / name).write_text(schema_text(name), encoding="utf-8")
        print(f"wrote {FOLDER / name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
