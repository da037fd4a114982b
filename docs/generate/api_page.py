"""The operations of the REST API, from its description."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shunter_service.openapi import document
from tables import table

_HEAD = """# The REST API

The whole description is `openapi.json` in the repository (OpenAPI 3.1), served at `/openapi.json`; `/docs` of a running
service shows every operation with its schemas and lets you try it, without the network. What they have in common:

- **Keys.** `Authorization: Bearer shk_…`, except for what is open to all. A key has scopes: `jobs:read`, `jobs:write`,
  `admin`.
- **JSON** in snake_case, times in UTC (RFC 3339), ids with a prefix. `/v1` only gains fields: pass by what you
  do not know.
- **Repeating is safe.** Send an `Idempotency-Key` with a POST, and the same again gets the same answer
  (`Idempotent-Replayed: true`) for a day at least.
- **Changes are conditional.** A job has an `ETag`: `If-None-Match` answers 304, `If-Match` guards a PATCH. `wait_s`
  with `after_revision` holds an answer back until the job changes.
- **HEAD** is answered wherever GET is: the same status and headers (an `ETag`, a length), and no body.
- **Lists** come in pages: give `next_cursor` back as `cursor`. Pages cost the same at any depth, and there is no total.
- **Streams** are server-sent events (`Accept: text/event-stream`). They go on from `Last-Event-ID`, and end with the
  job.
- **Errors** are [problem documents](errors.md) with a pointer to each fault.
"""


def text() -> str:
    """The page."""
    described: dict[str, Any] = document()
    groups: dict[str, list[tuple[str, str, str]]] = {}
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            if isinstance(operation, dict) and "operationId" in operation:
                row = (f"`{method.upper()} {path}`", f"`{operation['operationId']}`", operation["description"])
                groups.setdefault(operation.get("tags", ["other"])[0], []).append(row)
    return "\n".join([_HEAD, *_tables(groups)]) + "\n"


def _tables(groups: dict[str, list[tuple[str, str, str]]]) -> Iterator[str]:
    for name, rows in groups.items():
        yield f"## {name.capitalize()}\n"
        yield from table(("method and path", "operation", "what"), rows)
        yield ""
