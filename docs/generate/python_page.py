"""The Python client, from its signatures and docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

from shunter import errors
from shunter.client import Client
from shunter.fleet_client import FleetClient
from tables import table

_HEAD = """# The Python client

`pip install shunter` brings the client and the command line, and no server. `shunter.Client` blocks;
`shunter.AsyncClient` has the same methods for an event loop. Answers are typed, frozen models (`shunter_schemas.api`).

```python
import shunter

with shunter.Client() as client:
    job = client.submit("job.yaml")
    job = client.wait(job.id, progress=True)
    client.download_artifacts(job.id, "out")
```
"""
_ERRORS = """
## Errors

Every error is a `shunter.ShunterError`; `str(error)` says what is wrong and `error.hint` the way out. Those of the
service are an `ApiError` with `status`, `slug`, `faults` (pointer and detail) and `request_id`.
"""


def text() -> str:
    """The page."""
    parts = [_HEAD, f"## Client\n\n{_signature('Client', Client.__init__)}\n\n{_body(inspect.getdoc(Client) or '')}\n"]
    for name, method in {**vars(Client), **vars(FleetClient)}.items():
        if not name.startswith("_") and callable(method) and name != "close":
            parts.append(f"### {name}\n\n{_signature(name, method)}\n\n{_body(inspect.getdoc(method) or '')}\n")
    return "\n".join([*parts, _ERRORS.lstrip("\n"), *table(("error", "when"), _errors())]) + "\n"


def _signature(name: str, function: Callable[..., Any]) -> str:
    # Written without evaluating annotations, so that it reads as the source does.
    signature = inspect.signature(function)
    parameters = [one for one in signature.parameters.values() if one.name != "self"]
    line = f"{name}{signature.replace(parameters=parameters)}".replace("'", "")
    if name == "Client":
        line = line.removesuffix(" -> None")
    if len(line) > 100:
        inner = re.sub(r", (?=\*?\w+(?::|,|=)|\*,)", ",\n    ", line[line.index("(") + 1 : line.rindex(")")])
        line = f"{name}(\n    {inner},\n){line[line.rindex(')') + 1 :]}"
    return f"```python\n{line}\n```"


def _body(doc: str) -> str:
    """A docstring as Markdown: its lists of arguments and errors become lists."""
    lines, heading = [], ""
    for line in doc.splitlines():
        if line.strip() in ("Args:", "Raises:"):
            heading = line.strip()[:-1]
            lines.append({"Args": "", "Raises": "Raises:\n"}[heading])
        elif heading and (match := re.match(r" {4}(\w+): (.*)", line)):
            lines.append(f"- `{match[1]}`: {match[2]}")
        elif heading and line.startswith("     "):
            lines.append(f"  {line.strip()}")
        else:
            lines.append(line)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _errors() -> Iterator[tuple[str, str]]:
    for name, error in vars(errors).items():
        if isinstance(error, type) and issubclass(error, errors.ShunterError):
            depth = len([base for base in error.__mro__ if issubclass(base, errors.ShunterError)]) - 1
            first = (inspect.getdoc(error) or "").partition("\n")[0]
            yield f"{'&nbsp;&nbsp;' * depth}`{name}`", first
