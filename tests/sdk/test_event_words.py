"""Events as people read them in a terminal."""

from datetime import UTC, datetime
from typing import Any

import pytest
from shunter.cli.event_words import words_of
from shunter_schemas.api import Event


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
        ({"part": "source", "status": "done", "message": ""}, "part=source  status=done"),
        ({"from": "a", "to": "b", "message": "x" * 200}, f"a -> b  {'x' * 100}…"),
    ],
)
def test_an_event_is_one_line_that_begins_with_what_happened(data: dict[str, Any], words: str) -> None:
    assert words_of(Event(seq=1, at=datetime.now(UTC), type="job.state", data=data)) == words
