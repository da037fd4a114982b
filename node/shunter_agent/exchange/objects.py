"""Objects by granted URLs: ask the service for a URL, use it, and try again for as long as that may help."""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import Any, Callable, Dict, Iterable, NamedTuple, TypeVar

from shunter_agent.exchange.link import Body, Link, LinkError
from shunter_agent.files import digest, to_json
from shunter_agent.keeping.tuning import Tuning
from shunter_agent.trace import trace

GRANTS_PER_REQUEST = 200
PATIENCE = 8
_T = TypeVar("_T")
_REFUSED = (400, 405, 409, 411, 413, 415, 422)


CACHE_VARIABLE = "SHUNTER_OBJECT_CACHE"
"""A folder of files by their SHA-256 that whoever started the agent filled: what lies there is not fetched."""


class Refused(Exception):
    """This object will never be taken or given; `status` is the HTTP status that said so."""

    def __init__(self, key: str, status: int, detail: str) -> None:
        super().__init__(f"{key}: {detail}")
        self.key = key
        self.status = status


class Cancelled(Exception):
    """The agent gave up waiting (it ends, or the generation was stopped)."""


class Ref(NamedTuple):
    """A stored object and where it goes, relative to its folder."""

    path: str
    size: int
    sha256: str
    object: str

    @classmethod
    def of(cls, found: dict[str, Any]) -> Ref:
        return cls(found["path"], int(found["size"]), found["sha256"], found["object"])


Grants = Dict[str, Dict[str, str]]
"""URLs by kind and key; threads may share them."""


def no_grants() -> Grants:
    """None yet."""
    return {"put": {}, "get": {}}


class Objects:
    """Uploads and downloads of one thread, retried with back-off until they succeed, are refused, or are cancelled."""

    def __init__(self, link: Link, cancelled: threading.Event, tuning: Tuning, granted: Grants | None = None) -> None:
        """`granted`: URLs that other threads use too."""
        self._link = link
        self._cancelled = cancelled
        self._tuning = tuning
        self._granted = no_grants() if granted is None else granted

    def grant(self, kind: str, keys: Iterable[str]) -> None:
        """Ask for the URLs of many keys at once; keys asked for one by one cost a request each."""
        wanted = [key for key in keys if key not in self._granted[kind]]
        for start in range(0, len(wanted), GRANTS_PER_REQUEST):
            part = wanted[start : start + GRANTS_PER_REQUEST]
            self._granted[kind].update(self._persist(part[0], partial(self._ask, kind, part)))

    def close(self) -> None:
        """Drop the kept connections."""
        self._link.close()

    def put(self, key: str, body: Body) -> None:
        """Store an object.

        Raises:
            Refused: e.g. with status 409, when other bytes are stored under the key.
            Cancelled: the agent ends.
        """
        self._persist(key, lambda: self._link.put(self._url("put", key), body))
        self._granted["put"].pop(key, None)

    def get(self, ref: Ref, target: str) -> None:
        """Fetch an object into the file `target`, which appears only when its size and digest are right.

        Raises:
            Refused: it cannot be had, or what is stored is something else.
            Cancelled: the generation was stopped.
        """
        os.makedirs(os.path.dirname(target), exist_ok=True)
        incoming = target + ".part"
        if _take_from_cache(ref, incoming):
            os.replace(incoming, target)
            return
        try:
            self._persist(ref.object, partial(self._get_once, ref, incoming), patience=PATIENCE)
            os.replace(incoming, target)
        finally:
            if os.path.exists(incoming):
                os.unlink(incoming)

    def _get_once(self, ref: Ref, incoming: str) -> None:
        with open(incoming, "wb") as file:

            def write(block: bytes) -> None:
                if self._cancelled.is_set():
                    raise Cancelled(ref.object)
                file.write(block)

            self._link.fetch(self._url("get", ref.object), write)
        found = os.path.getsize(incoming)
        if found != ref.size or digest(incoming) != ref.sha256:
            raise LinkError(200, f"the {found} bytes that came are not the {ref.size} that were expected")

    def _url(self, kind: str, key: str) -> str:
        url = self._granted[kind].get(key)
        if url is None:
            found = self._ask(kind, [key])
            self._granted[kind].update(found)
            url = found[key]
        return url

    def _ask(self, kind: str, keys: list[str]) -> dict[str, str]:
        answer = self._link.call("/v1/node/grants", to_json({kind: keys}))
        found = answer.get(kind) or {}
        for key in keys:
            if key not in found:
                raise Refused(key, 403, "the service grants no URL")
        return {key: found[key] for key in keys}

    def _persist(self, key: str, act: Callable[[], _T], patience: int | None = None) -> _T:
        """Do `act` until it succeeds; with `patience`, at most so many times of those that something answered."""
        wait_s = self._tuning.retry_first_s
        answered = 0
        while True:
            try:
                return act()
            except LinkError as error:
                answered += 1 if error.status else 0
                if error.status in _REFUSED or (patience is not None and answered >= patience):
                    raise Refused(key, error.status, str(error)) from error
                trace(f"{key}: {error}; trying again in {wait_s:.1f} s")
            for granted in self._granted.values():
                granted.pop(key, None)  # a URL that failed may have run out
            if self._cancelled.wait(wait_s):
                raise Cancelled(key)
            wait_s = min(2 * wait_s, self._tuning.retry_most_s)


def _take_from_cache(ref: Ref, incoming: str) -> bool:
    """Copy the file from the cache beside the agent; False: it is not there, or is not what it was."""
    folder = os.environ.get(CACHE_VARIABLE)
    if not folder or len(ref.sha256) != 64 or not ref.sha256.isalnum():
        return False
    import shutil

    try:
        shutil.copyfile(os.path.join(folder, ref.sha256), incoming)
        if os.path.getsize(incoming) == ref.size and digest(incoming) == ref.sha256:
            return True
        os.unlink(incoming)
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            trace(f"{ref.object}: not taken from the cache: {error}")
    return False
