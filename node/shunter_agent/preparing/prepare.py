"""The set-up of a generation: source, inputs, environment, set-up commands, checkpoint to resume from.

What a node already has from an earlier generation is kept: each part leaves a mark that says what it was made from.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import closing
from typing import Any, Callable, Dict, NamedTuple

from shunter_agent.exchange.objects import Cancelled, Objects, Ref, Refused
from shunter_agent.files import clean, cut, read_json, take_write_permission, write_json
from shunter_agent.keeping.layout import Layout
from shunter_agent.launching.ranks import Crew, Ready, locate, node_environment
from shunter_agent.preparing.shell import SetupFailed, Shell
from shunter_agent.preparing.substitution import UnknownName
from shunter_agent.trace import trace_exception

Tell = Callable[[str, str, str, Dict[str, Any]], None]
"""part, status, message, facts"""


class Outcome(NamedTuple):
    """How the set-up ended: with `ready`, with a `failure` to show the user, or with neither when it was cancelled."""

    ready: Ready | None
    failure: str = ""


class Preparation(threading.Thread):
    """One generation's set-up. `tell` and `done` are called from this thread."""

    def __init__(
        self, layout: Layout, assignment: dict[str, Any], connect: Callable[[threading.Event], Objects], tell: Tell
    ) -> None:
        """`connect` makes the way to the objects, given the event that says that nobody waits any more."""
        super().__init__(name="prepare", daemon=True)
        self._layout = layout
        self._assignment = assignment
        self._cancelled = threading.Event()
        self._connect = connect
        self._tell = tell
        self.done: Callable[[Outcome], None] = lambda outcome: None
        self._shell = Shell(layout.setup_log(int(assignment["generation"])), self._cancelled)
        self._ready = Ready(sys.executable, _folder(layout, assignment))
        self._facts: dict[str, Any] = {}

    @property
    def parts(self) -> list[str]:
        """What this generation needs; nothing: `at_once` is enough."""
        return [part for part, needed, _ in _PARTS if needed(self._assignment)]

    def at_once(self) -> Ready:
        """The result for a generation that needs nothing."""
        os.makedirs(self._ready.cwd, exist_ok=True)
        return self._ready

    def cancel(self) -> None:
        """End it soon; `done` is called all the same."""
        self._cancelled.set()
        self._shell.cancel()

    def run(self) -> None:
        self.done(self._outcome())

    def _outcome(self) -> Outcome:
        part = ""
        try:
            os.makedirs(self._ready.cwd, exist_ok=True)
            os.makedirs(os.path.dirname(self._shell.log), exist_ok=True)
            self._objects = self._connect(self._cancelled)
            with closing(self._objects):
                for part in self.parts:
                    self._do(part)
            return Outcome(self._ready)
        except Cancelled:
            return Outcome(None)
        except (SetupFailed, Refused, UnknownName, OSError) as error:
            failure = str(error)
        except Exception as error:
            trace_exception(f"set-up: {part}")
            failure = f"{type(error).__name__}: {error}"
        failure = cut(f"{part}: {failure}")
        self._tell(part, "failed", failure, {})
        return Outcome(None, failure)

    def _do(self, part: str) -> None:
        self._tell(part, "started", "", {})
        self._facts = {}
        act = next(act for name, _, act in _PARTS if name == part)
        act(self)
        if self._cancelled.is_set():
            raise Cancelled(part)
        self._tell(part, "done", "", self._facts)

    @property
    def _document(self) -> dict[str, Any]:
        found: dict[str, Any] = self._assignment["document"]
        return found

    @property
    def _crew(self) -> Crew:
        return Crew(self._assignment, self._layout, self._ready, int(self._assignment["ranks"]["master_port"]))

    def _environment(self) -> dict[str, str]:
        from shunter_agent.launching.launchers import substitutions

        return node_environment(self._crew, substitutions(self._crew))

    def _is_made(self, name: str, of: Any) -> bool:
        return bool((read_json(self._layout.mark(name)) or {}).get("of") == clean(of))

    def _made(self, name: str, of: Any) -> None:
        os.makedirs(self._layout.marks, exist_ok=True)
        write_json(self._layout.mark(name), {"of": of})

    def _source(self) -> None:
        from shunter_agent.preparing import source

        wanted = self._document.get("source") or {}
        if wanted.get("kind") == "git":
            commit = self._assignment.get("source_commit")
            kept = read_json(self._layout.mark("source")) or {}
            if commit and kept.get("of") == [wanted["url"], commit]:
                self._facts = {"commit": commit}
                return
            os.makedirs(self._layout.source, exist_ok=True)
            found = source.clone(self._shell, wanted, commit, self._layout.source, self._environment())
            self._made("source", [wanted["url"], found])
            self._facts = {"commit": found}
            return
        ref = Ref.of(self._assignment["source"])
        if not self._is_made("source", ref.sha256):
            source.fetch_bundle(self._objects, ref, self._layout.source)
            self._made("source", ref.sha256)

    def _inputs(self) -> None:
        from shunter_agent.preparing import source

        declared = self._document.get("inputs") or {}
        for name, found in sorted(self._assignment["inputs"].items()):
            ref, target = Ref.of(found), os.path.join(self._layout.inputs, name)
            if self._is_made(f"input-{name}", ref.sha256):
                continue
            os.makedirs(self._layout.inputs, exist_ok=True)
            if str((declared.get(name) or {}).get("from", "bundle:")).startswith("bundle:"):
                source.fetch_bundle(self._objects, ref, target)
            else:
                self._objects.get(ref, os.path.join(target, os.path.basename(ref.path)))
            # A later start on this node reads them again. Root may write all the same, which only a mount would hinder.
            take_write_permission(target)
            self._made(f"input-{name}", ref.sha256)

    def _requirements(self) -> None:
        from shunter_agent.preparing import environment

        wanted, folder = self._document["environment"], self._layout.env
        requirements, file = wanted.get("requirements") or (), wanted.get("requirements_file")
        file = locate(self._crew, file) if file else None
        of = environment.fingerprint(requirements, file, sys.executable)
        inner = os.path.join(folder, "bin", "python")
        if not self._is_made("requirements", of):
            inner = environment.make_venv(sys.executable, folder, self._environment())
            self._ready = self._ready._replace(python=inner, virtual_env=folder)
            environment.install(self._shell, inner, requirements, file, self._environment())
            self._made("requirements", of)
        self._ready = self._ready._replace(python=inner, virtual_env=folder)

    def _setup(self) -> None:
        commands = self._document["environment"]["setup"]
        source = (read_json(self._layout.mark("source")) or {}).get("of")
        of = [commands, source, self._ready.python]
        if self._is_made("setup", of):
            return
        for command in commands:
            argv = ("bash", "-eo", "pipefail", "-c", command)
            self._shell.run(argv, self._ready.cwd, self._environment(), command)
        self._made("setup", of)

    def _deepspeed(self) -> None:
        from shunter_agent.preparing.deepspeed_file import check_deepspeed_file

        check_deepspeed_file(self._shell, self._crew, self._environment())

    def _resume(self) -> None:
        from shunter_agent.preparing.resume import make_resume_folder

        os.makedirs(self._layout.resume, exist_ok=True)
        resume = self._assignment["resume"]
        folder = make_resume_folder(self._objects, resume, self._layout.resume, self._layout.checkpoints)
        self._ready = self._ready._replace(resume=folder)


def _folder(layout: Layout, assignment: dict[str, Any]) -> str:
    return layout.source if _has_source(assignment) else layout.work


def _has_source(assignment: dict[str, Any]) -> bool:
    source = assignment["document"].get("source") or {}
    return bool(assignment.get("source")) or source.get("kind") == "git"


def _wants_packages(assignment: dict[str, Any]) -> bool:
    environment = assignment["document"].get("environment") or {}
    return bool(environment.get("requirements") or environment.get("requirements_file"))


def _strategy(assignment: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = assignment["document"].get("strategy") or {}
    return found


_PARTS: tuple[tuple[str, Callable[[dict[str, Any]], bool], Callable[[Preparation], None]], ...] = (
    ("source", _has_source, Preparation._source),
    ("inputs", lambda assignment: bool(assignment.get("inputs")), Preparation._inputs),
    ("requirements", _wants_packages, Preparation._requirements),
    (
        "setup",
        lambda assignment: bool((assignment["document"].get("environment") or {}).get("setup")),
        Preparation._setup,
    ),
    ("deepspeed", lambda assignment: bool(_strategy(assignment).get("deepspeed_file")), Preparation._deepspeed),
    ("resume", lambda assignment: bool(assignment.get("resume")), Preparation._resume),
)
"""In this order: name, whether a generation needs it, how it is made."""
