"""Checkpoints: found when whole, held by hard links so that pruning cannot tear an upload, uploaded, recorded."""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import time
from functools import partial
from typing import Any, Callable, List, NamedTuple

from shunter_agent.exchange.link import file_body
from shunter_agent.exchange.objects import Objects
from shunter_agent.exchange.uploads import Uploader
from shunter_agent.files import clean, digest, read_json, remove_tree, walk_files
from shunter_agent.shared import Place, Shared
from shunter_agent.trace import trace

TRAINER_PATTERN = "step-[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]"
MANIFEST = "manifest.json"
MOST_WAITING = 2
"""When uploads are slower than checkpoints, only the newest of those that wait are kept."""

Signature = List[int]


class Rule(NamedTuple):
    """Which folders are checkpoints, and when one is whole."""

    pattern: str
    complete_file: str | None
    settle_s: float

    @classmethod
    def of(cls, workload: dict[str, Any], settle_s: float) -> Rule | None:
        """The rule for a workload; None for a script that declares no checkpoints."""
        if workload.get("kind") == "training":
            return cls(TRAINER_PATTERN, None, 0.0)
        declared = workload.get("checkpoint")
        if not declared:
            return None
        return cls(declared.get("pattern", "checkpoint-*"), declared["complete_file"], settle_s)


class Found(NamedTuple):
    """A checkpoint folder that is whole."""

    name: str
    path: str
    step: int


class CheckpointWatch:
    """Looks at the checkpoint folder; each state of a folder is reported once."""

    def __init__(self, folder: str, rule: Rule, known: dict[str, Signature]) -> None:
        """`known`: folders that were there before the generation began, as `signatures` told them."""
        self._folder = folder
        self._rule = rule
        self._known = dict(known)
        self._seen: dict[str, Any] = {}

    def look(self, final: bool) -> list[Found]:
        """Folders that became whole; `final`: nobody writes any more, so nothing has to settle."""
        found = []
        for name in matching(self._folder, self._rule.pattern):
            path = os.path.join(self._folder, name)
            signature = signature_of(path, self._rule)
            if not signature or self._known.get(name) == signature or not self._whole(path, name, signature, final):
                continue
            self._known[name] = signature
            found.append(Found(name, path, step_of(path)))
        return sorted(found, key=lambda one: one.step)

    def _whole(self, path: str, name: str, signature: Signature, final: bool) -> bool:
        complete = self._rule.complete_file
        if complete is not None and not os.path.exists(os.path.join(path, complete)):
            return False
        if final or not self._rule.settle_s:
            return True
        before, since = self._seen.get(name, (None, 0.0))
        if before != signature:
            self._seen[name] = (signature, time.monotonic())
            return False
        return bool(time.monotonic() - since >= self._rule.settle_s)


class CheckpointShipper:
    """Uploads what the watch of one generation finds."""

    def __init__(self, shared: Shared, place: Place, watch: CheckpointWatch) -> None:
        self._shared = shared
        self._place = place
        self._watch = watch
        self._holding = os.path.join(shared.layout.holding, str(place.generation))
        self._earlier = frozenset(shared.state.of(place.generation).checkpoints)
        """Steps that were uploaded before the agent restarted."""
        self._waiting: list[Found] = []
        self._busy = False
        remove_tree(self._holding)

    def step(self, final: bool) -> None:
        """Hold what became whole, and queue the next upload."""
        for found in self._watch.look(final):
            if found.step in self._earlier:
                continue
            try:
                hold(found.path, os.path.join(self._holding, found.name))
            except OSError as error:
                trace(f"checkpoint {found.name} cannot be held: {error}")
                continue
            self._waiting = [one for one in self._waiting if one.name != found.name] + [found]
        for old in self._waiting[:-MOST_WAITING]:
            remove_tree(os.path.join(self._holding, old.name))
        self._waiting = self._waiting[-MOST_WAITING:]
        if self._waiting and not self._busy:
            self._busy = True
            found = self._waiting.pop(0)
            held = os.path.join(self._holding, found.name)
            Transfer(self._shared.file_uploader, self._place, held, partial(self._uploaded, held)).begin(found.step)

    @property
    def idle(self) -> bool:
        return not self._busy and not self._waiting

    def _uploaded(self, held: str, result: Any, error: Any) -> None:
        self._busy = False
        remove_tree(held)
        if error is None:
            self._shared.recorder.record("checkpoint", self._place.generation, result)
        else:
            detail = {"object": os.path.basename(held), "detail": str(error)}
            self._shared.recorder.record("upload_failed", self._place.generation, detail, within_s=0.0)


class _Survey(NamedTuple):
    """What there is of a held checkpoint."""

    step: int
    keys: dict[str, str]
    """Of objects, by the file's path."""
    digests: dict[str, str]
    """As far as the manifest promises them."""
    values: dict[str, float]


class Transfer:
    """One held checkpoint on its way up: its files side by side, then its manifest."""

    def __init__(self, uploader: Uploader, place: Place, held: str, done: Callable[[Any, Any], None]) -> None:
        """`done` gets the data of the record, or what went wrong."""
        self._uploader = uploader
        self._place = place
        self._held = held
        self._done = done
        self._files: dict[str, Any] = {}
        self._under_way = 0
        self._error: Any = None

    def begin(self, step: int) -> None:
        """Returns at once."""
        self._uploader.submit(partial(_survey, self._held, step, self._place), self._surveyed)

    def _surveyed(self, survey: _Survey, error: Any) -> None:
        if error is not None:
            self._done(None, error)
            return
        self._send(survey, [name for name in survey.keys if name != MANIFEST] or list(survey.keys))

    def _send(self, survey: _Survey, names: list[str]) -> None:
        self._under_way = len(names)
        for name in names:
            self._uploader.submit(partial(self._put, survey, name), partial(self._sent, survey, name))
        if not names:
            self._end(survey)

    def _put(self, survey: _Survey, name: str, objects: Objects) -> dict[str, Any] | None:
        """In a thread of the uploader's. None: another file failed, so that this one would be of no use."""
        if self._error is not None:
            return None
        path = os.path.join(self._held, name)
        body = file_body(path, survey.digests.get(name) or digest(path))
        objects.put(survey.keys[name], body)
        return {"path": name, "size": body.size, "sha256": body.sha256, "object": survey.keys[name]}

    def _sent(self, survey: _Survey, name: str, entry: Any, error: Any) -> None:
        self._files[name] = entry
        self._error = self._error or error
        self._under_way -= 1
        if self._under_way:
            return
        if self._error is None and MANIFEST in survey.keys and MANIFEST not in self._files:
            self._send(survey, [MANIFEST])
        else:
            self._end(survey)

    def _end(self, survey: _Survey) -> None:
        if self._error is not None:
            self._done(None, self._error)
            return
        files = [self._files[name] for name in survey.keys]
        node_rank = self._place.node_rank
        self._done({"step": survey.step, "node_rank": node_rank, "files": files, "values": survey.values}, None)


def _survey(held: str, step: int, place: Place, objects: Objects) -> _Survey:
    manifest = read_json(os.path.join(held, MANIFEST)) or {}
    files = [file for file in manifest.get("files", []) if isinstance(file, dict)]
    promised = {str(file.get("path")): str(file.get("sha256") or "") for file in files}
    names = sorted(walk_files(held), key=lambda name: (name == MANIFEST, name))
    keys = {name: _key(place, step, name) for name in names}
    objects.grant("put", keys.values())
    given: dict[str, Any] = manifest.get("values") or {}
    values: dict[str, float] = {key: value for key, value in given.items() if isinstance(value, (int, float))}
    return _Survey(step, keys, promised, values)


def matching(folder: str, pattern: str) -> list[str]:
    """Names of the folders that match, temporary ones excepted."""
    try:
        with os.scandir(folder) as entries:
            return sorted(
                entry.name
                for entry in entries
                if fnmatch.fnmatchcase(entry.name, pattern)
                and not entry.name.startswith(".")
                and entry.is_dir(follow_symlinks=False)
            )
    except OSError:
        return []


def signatures(folder: str, rule: Rule) -> dict[str, Signature]:
    """The folders that match, as they are now."""
    return {name: signature_of(os.path.join(folder, name), rule) for name in matching(folder, rule.pattern)}


def signature_of(path: str, rule: Rule) -> Signature:
    """Changes whenever a file below the folder is added, removed or written; for folders that appear whole, with them.

    Three numbers: files, bytes, newest change.
    """
    try:
        found = os.stat(path)
    except OSError:
        return []  # pruned while we look
    if rule.complete_file is None:
        return [found.st_ino, 0, found.st_mtime_ns]
    files, size, newest = 0, 0, found.st_mtime_ns
    for name in walk_files(path):
        try:
            found = os.stat(os.path.join(path, name))
        except OSError:
            continue  # pruned while we look
        files, size, newest = files + 1, size + found.st_size, max(newest, found.st_mtime_ns)
    return [files, size, newest]


def step_of(path: str) -> int:
    """The step that a checkpoint folder is of: from its manifest or trainer state, else the last number in its name."""
    for file, field in ((MANIFEST, "step"), ("trainer_state.json", "global_step")):
        step = (read_json(os.path.join(path, file)) or {}).get(field)
        if isinstance(step, int) and step >= 0:
            return step
    numbers = re.findall(r"\d+", os.path.basename(path))
    return int(numbers[-1]) if numbers else 0


def hold(path: str, target: str) -> None:
    """A second name for every file of the folder, so that it stays whole whatever happens to the first."""
    remove_tree(target)
    for name in walk_files(path):
        held = os.path.join(target, name)
        os.makedirs(os.path.dirname(held), exist_ok=True)
        try:
            os.link(os.path.join(path, name), held)
        except OSError:
            shutil.copy2(os.path.join(path, name), held)


def _key(place: Place, step: int, name: str) -> str:
    """Nodes other than the first write below a folder of their own, since objects are write-once."""
    own = f".node-{place.node_rank}/" if place.node_rank else ""
    return place.key("checkpoints", f"step-{step:08d}/{own}{clean(name)}")
