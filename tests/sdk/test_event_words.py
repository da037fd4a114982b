"""Events as people read them in a terminal."""

from datetime import UTC, datetime
from typing import Any

import pytest
from shunter.cli.event_words import words_of
from shunter_schemas.api import Event

STOOD = "No step ended. It stood in f."
DUMP = (
    "No step ended. Where every thread stands:\nThread 0x00007f (most recent call first):\n"
    '  File "threading.py", line 982 in run\n\nCurrent thread 0x00007e [main] (most recent call first):\n'
    '  File "<frozen runpy>", line 198 in _run_module_as_main\n'
)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({}, ""),
        (
            {"from": "running", "to": "stopping", "trigger": "stop", "reason": "done", "message": None},
            "running -> stopping  done",
        ),
        ({"provider": "local", "instance_type": "cpu", "node_at": 1.5}, "provider=local  instance_type=cpu"),
        (
            {"rank": 1, "exit_code": 1, "signal": None, "tail": "Traceback\n  x\nValueError: bad\n", "facts": {}},
            "rank=1  exit_code=1  tail=ValueError: bad",
        ),
        ({"reason": "hang", "message": f"rank 1 exited\n{STOOD}\n{DUMP}"}, f"hang  {STOOD}"),
        ({"rank": 1, "tail": DUMP}, "rank=1  tail=No step ended. Where every thread stands:"),
        ({"rank": 1, "tail": DUMP.partition("\n")[2]}, "rank=1"),
        ({"part": "source", "status": "done", "message": ""}, "part=source  status=done"),
        ({"from": "a", "to": "b", "message": "x" * 200}, f"a -> b  {'x' * 100}…"),
    ],
)
def test_an_event_is_one_line_that_begins_with_what_happened(data: dict[str, Any], words: str) -> None:
    assert words_of(Event(seq=1, at=datetime.now(UTC), type="job.state", data=data)) == words
