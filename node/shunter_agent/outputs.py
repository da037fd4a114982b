"""Artifacts: everything that lies in the output folder when the gang has ended, one upload and one record a file."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from shunter_agent.files import clean, digest
from shunter_agent.link import file_body
from shunter_agent.objects import Objects
from shunter_agent.shared import Place, Shared


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
            self._waiting = [name for name in output_files(self._folder) if clean(name) not in done]
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


def output_files(folder: str) -> list[str]:
    """Regular files below the folder, and links to such files of the same node's job folder."""
    home = os.path.realpath(os.path.dirname(os.path.dirname(folder)))
    found = []
    for where, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(where, name)
            if os.path.isfile(path) and os.path.realpath(path).startswith(home + os.sep):
                found.append(os.path.relpath(path, folder))
    return found


def _grant(keys: list[str], objects: Objects) -> None:
    objects.grant("put", keys)


def _upload(path: str, name: str, key: str, objects: Objects) -> dict[str, Any]:
    body = file_body(path, digest(path))
    objects.put(key, body)
    return {"path": name, "size": body.size, "sha256": body.sha256, "object": key}
