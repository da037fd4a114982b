"""Pages of the manual that the service itself shows, as HTML that loads nothing."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from shunter_schemas.reasons import MEANINGS
from shunter_schemas.states import Reason, State
from shunter_store.job.lifecycle import OUTCOME

from shunter_service.web.problem_pages import PAGES, example
from shunter_service.web.problems import PROBLEMS

HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept",
    "X-Content-Type-Options": "nosniff",
}
_STYLE: Final = """
      :root { color-scheme: light dark; }
      body { font: 1rem/1.55 system-ui, sans-serif; max-width: 46rem; margin: 3rem auto; padding: 0 1rem; }
      h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; } nav { margin-top: 3rem; font-size: .9rem; }
      code, pre { font-family: ui-monospace, monospace; font-size: .9em; }
      pre { padding: 1rem; border: 1px solid #8884; border-radius: .5rem; overflow-x: auto; }
    """


class Part(NamedTuple):
    """A heading, and the text below it (code in backticks) or an example as it is."""

    heading: str
    text: str
    is_example: bool = False


def wants_page(accept: str) -> bool:
    """Whether the client is a browser that shows a page, and not a program."""
    return any(part.partition(";")[0].strip().lower() == "text/html" for part in accept.split(","))


def problem_page(slug: str) -> str:
    """What `type` means, for people."""
    kind, page = PROBLEMS[slug], PAGES[slug]
    shown = json.dumps(example(slug), indent=2, ensure_ascii=False)
    parts = [
        Part("When", page.meaning),
        Part("The way out", page.way_out),
        Part(f"An answer of this kind (HTTP {kind.status})", shown, is_example=True),
    ]
    return _page(kind.title, f"`{slug}`, HTTP {kind.status}", parts)


def reason_page(reason: Reason) -> str:
    """What a job's `reason` means, for people."""
    meaning, end = MEANINGS[reason], OUTCOME[reason]
    parts = [Part("Why", _sentence(meaning.meaning))]
    if meaning.way_out:
        parts.append(Part("The way out", _sentence(meaning.way_out)))
    if end is State.FAILED:
        parts.append(
            Part("Where to look", "`shunter why ID` says it for one job, with the last words of the rank that failed.")
        )
    return _page(f"Jobs that end with {reason}", f"such a job has {end}", parts)


def _page(title: str, subtitle: str, parts: Sequence[Part]) -> str:
    return f"""<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>{html.escape(title)} - Shunter</title>
    <style>{_STYLE}</style>
  </head>
  <body>
    <h1>{html.escape(title)}</h1>
    <p>{_marked(subtitle)}</p>
{"".join(map(_section, parts))}
    <nav>Shunter: <a href="/docs">the API, to try</a>, <a href="/openapi.json">its description</a></nav>
  </body>
</html>
"""


def _section(part: Part) -> str:
    shown = f"<pre>{html.escape(part.text)}</pre>" if part.is_example else f"<p>{_marked(part.text)}</p>"
    return f"    <h2>{html.escape(part.heading)}</h2>\n    {shown}\n"


def _marked(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
