"""Artifacts: everything that lies in the output folder when the gang has ended, one upload and one record a file."""

from __future__ import annotations

import os
import re
from functools import partial
from typing import Any, NamedTuple

from shunter_agent.exchange.link import file_body
from shunter_agent.exchange.objects import Objects
from shunter_agent.files import clean, digest
from shunter_agent.shared import Place, Shared

_BAD_NAME = re.compile(r"[\x00-\x1f\x7f\\]")
_BAD_NAME_WORDS = "a name with a line end, another control character or a backslash; rename it"
_TOLD = 20
"""Names in the record of what was left out."""


class Outputs(NamedTuple):
    """What lies in the output folder, by paths relative to it."""

    files: list[str]
    left_out: dict[str, str]
    """What is not stored, and why."""


class OutputShipper:
    """Uploads the output folder of one generation, once."""

    def __init__(self, shared: Shared, place: Place) -> None:
        self._shared = shared
        self._place = place
        self._folder = shared.layout.outputs(place.generation)
        self._waiting: list[str] | None = None

    def step(self) -> None:
        """Begin, at the first call after nobody writes any more."""
        if self._waiting is None:
            done = set(self._shared.state.of(self._place.generation).artifacts)
            found = output_files(self._folder)
            self._waiting = [name for name in found.files if clean(name) not in done]
            if found.left_out:
                told = {clean(name): why for name, why in list(found.left_out.items())[:_TOLD]}
                data = {"count": len(found.left_out), "left_out": told}
                self._shared.recorder.record("outputs_left_out", self._place.generation, data)
            keys = {name: self._place.key("artifacts", clean(name)) for name in self._waiting}
            if keys:  # their URLs in few requests; one that is missing then is asked for again
                self._shared.file_uploader.submit(partial(_grant, list(keys.values())), partial(self._send, keys))

    @property
    def idle(self) -> bool:
        return self._waiting is not None and not self._waiting

    def _send(self, keys: dict[str, str], _result: Any, _error: Any) -> None:
        for name, key in keys.items():
            work = partial(_upload, os.path.join(self._folder, name), name, key)
            self._shared.file_uploader.submit(work, partial(self._uploaded, name))

    def _uploaded(self, name: str, result: Any, error: Any) -> None:
        assert self._waiting is not None
        self._waiting.remove(name)
        if error is None:
            self._shared.recorder.record("artifact", self._place.generation, {"file": result})
        else:
            self._shared.recorder.record(
                "upload_failed", self._place.generation, {"object": name, "detail": str(error)}
            )


def output_files(folder: str) -> Outputs:
    """Regular files below the folder, and links to such files of the same node's job folder; what else lies there is
    left out, each with the reason."""
    home = os.path.realpath(os.path.dirname(os.path.dirname(folder)))
    found = Outputs([], {})
    for where, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names) + [one for one in folders if os.path.islink(os.path.join(where, one))]:
            path = os.path.join(where, name)
            why = _BAD_NAME_WORDS if _BAD_NAME.search(name) else _left_out(path, home)
            if why is None:
                found.files.append(os.path.relpath(path, folder))
            else:
                found.left_out[os.path.relpath(path, folder)] = why
    return found


def _left_out(path: str, home: str) -> str | None:
    if not os.path.exists(path):
        return "a broken link"
    if not os.path.realpath(path).startswith(home + os.sep):
        return "a link that leads out of the job's folder; copy the file there"
    if os.path.isdir(path):
        return "a link to a folder; what lies in the output folder is stored by its own name"
    return None if os.path.isfile(path) else "no regular file"


def _grant(keys: list[str], objects: Objects) -> None:
    objects.grant("put", keys)


def _upload(path: str, name: str, key: str, objects: Objects) -> dict[str, Any]:
    body = file_body(path, digest(path))
    objects.put(key, body)
    return {"path": name, "size": body.size, "sha256": body.sha256, "object": key}
