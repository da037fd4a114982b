"""Progress in a real notebook kernel, and what becomes of it elsewhere."""

import threading
from datetime import UTC, datetime
from typing import Any

import nbclient
import nbformat
import pytest
from shunter import Client, errors
from shunter.display import PlainDisplay, make_display
from shunter.notebook import html_of, in_notebook, text_of
from shunter.retries import Outage
from shunter_schemas.api import Job, Progress, Waiting
from shunter_schemas.states import Reason
from support.api_process import ApiProcess
from support.documents import tiny_lm

NOW = datetime.now(UTC)


def job(**more: Any) -> Job:
    stated = {"state": "running", **more}
    return Job(id="job_1", name="tiny <b>", created_at=NOW, updated_at=NOW, revision=1, spec={}, **stated)


def run_cell(source: str) -> list[dict[str, Any]]:
    """What one cell of a notebook put out."""
    cell = nbformat.v4.new_code_cell(source)  # type: ignore[no-untyped-call]
    notebook = nbformat.v4.new_notebook(cells=[cell])  # type: ignore[no-untyped-call]
    nbclient.NotebookClient(notebook, kernel_name="python3", timeout=60).execute()
    outputs: list[dict[str, Any]] = notebook.cells[0].outputs
    return outputs


def test_a_cell_shows_the_job_in_one_place_until_it_has_ended(api: ApiProcess, blocking_client: Client) -> None:
    submitted = blocking_client.submit(tiny_lm())
    part = api.worker_part(submitted.id)
    part.run()
    part.report(120, 300, loss=2.25)
    ending = threading.Timer(2.0, lambda: part.end(Reason.DONE))
    ending.start()

    outputs = run_cell(
        "import shunter\n"
        f"with shunter.Client({api.url!r}, {api.key!r}) as client:\n"
        f"    client.wait({submitted.id!r}, progress=True, poll_s=0.1)\n"
        "None"
    )

    ending.join()
    (shown,) = outputs
    assert shown["output_type"] == "display_data"
    assert "succeeded" in shown["data"]["text/html"]
    assert "step 120/300" in shown["data"]["text/html"]
    assert shown["data"]["text/plain"].startswith(f"{submitted.id}  succeeded")


def test_names_are_text_and_no_html() -> None:
    html = html_of(job(progress=Progress(step=3, total_steps=9)), None)

    assert "tiny &lt;b&gt;" in html
    assert '<progress value="3" max="9"' in html


def test_why_it_waits_how_it_ended_and_an_outage_are_shown_too() -> None:
    outage = Outage(NOW, errors.Unreachable("connection refused"))

    assert "waiting: 0 of 4 are free" in html_of(job(waiting=Waiting(reason="x", detail="0 of 4 are free")), None)
    assert "failed" in html_of(job(state="failed", outcome="failed", finished_at=NOW, reason="user_error"), None)
    assert "no answer from the service since" in html_of(job(), outage)
    assert "connection refused" in text_of(None, outage)


def test_outside_of_a_notebook_it_degrades_to_text(capsys: pytest.CaptureFixture[str]) -> None:
    with make_display() as display:
        display.show(job())

    assert not in_notebook()
    assert isinstance(display, PlainDisplay)
    assert capsys.readouterr().out == "job_1  running\n"
