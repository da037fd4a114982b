"""The checkpoint to go on from: fetched and verified, or taken from this node's own disk where that is the same."""

from __future__ import annotations

import os
import shutil
from typing import Any

from shunter_agent.exchange.objects import Objects, Ref
from shunter_agent.files import digest, remove_tree, walk_files
from shunter_agent.preparing.shell import SetupFailed
from shunter_agent.reporting.checkpoints import Rule, matching, step_of


def make_resume_folder(objects: Objects, resume: dict[str, Any], home: str, local: str) -> str:
    """A folder below `home` that holds exactly the checkpoint's files; `local` is where this node writes its own.

    Raises:
        SetupFailed: a path leads out of the folder.
        Refused: a file cannot be fetched as it was committed.
    """
    refs = [Ref.of(found) for found in resume["files"]]
    folder = os.path.join(home, f"step-{int(resume['step']):08d}")
    for found in os.listdir(home):
        if os.path.join(home, found) != folder:
            remove_tree(os.path.join(home, found))
    by_name = _index(local)
    missing = [ref for ref in refs if not _present(ref, _target(folder, ref), by_name)]
    objects.grant("get", [ref.object for ref in missing])
    for ref in missing:
        objects.get(ref, _target(folder, ref))
    expected = {os.path.normpath(ref.path) for ref in refs}
    for extra in set(walk_files(folder)) - expected:
        os.unlink(os.path.join(folder, extra))
    return folder


def drop_uncommitted(folder: str, rule: Rule | None, resume: dict[str, Any] | None) -> None:
    """Remove the trainer's checkpoints that came after the one to resume from: the service never committed them.

    A script's folders stay, since only the script knows what they mean to it.
    """
    if rule is None or rule.complete_file is not None:
        return
    last = -1 if resume is None else int(resume["step"])
    for name in matching(folder, rule.pattern):
        path = os.path.join(folder, name)
        if step_of(path) > last:
            remove_tree(path)


def _target(folder: str, ref: Ref) -> str:
    path = os.path.normpath(ref.path)
    if os.path.isabs(path) or path.split(os.sep)[0] == "..":
        raise SetupFailed(f"{ref.path!r} leads out of the checkpoint folder")
    return os.path.join(folder, path)


def _index(folder: str) -> dict[tuple[str, int], list[str]]:
    """Files of this node's own checkpoints by name and size."""
    found: dict[tuple[str, int], list[str]] = {}
    for name in walk_files(folder):
        path = os.path.join(folder, name)
        found.setdefault((os.path.basename(name), os.path.getsize(path)), []).append(path)
    return found


def _present(ref: Ref, target: str, local: dict[tuple[str, int], list[str]]) -> bool:
    """Whether the file is there, if need be by a second name for one of this node's own."""
    if os.path.isfile(target):
        if os.path.getsize(target) == ref.size and digest(target) == ref.sha256:
            return True
        os.unlink(target)
    for path in local.get((os.path.basename(ref.path), ref.size), []):
        if digest(path) == ref.sha256:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            try:
                os.link(path, target)
            except OSError:
                shutil.copy2(path, target)
            return True
    return False
