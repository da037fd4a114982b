"""Shell scripts around a training, read without running them.

A script that does nothing but set constants and start one training is taken apart. Anything else goes along as it is,
as a file that every node runs, with the variables that its old home gave it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final

from shunter.importing.commands import is_launch, take_command
from shunter.importing.notes import Imported, Kind

_HARMLESS: Final = ("set", "echo", "date", "hostname", "nvidia-smi", "ulimit", "env", "pwd", "true", ":")
_ABOUT_THE_MACHINE: Final = ("module", "conda", "mamba", "source", ".", "ml")
_ASSIGNMENT: Final = re.compile(r"^(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)$", re.DOTALL)
_VARIABLE: Final = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
_SHELL_ONLY: Final = re.compile(r"[$`*?~]|^[<>|&;()]+$")
_FOUND_BY_RANKS: Final = re.compile(
    r"^--(node[-_]rank|master[-_]addr|master[-_]port|rdzv[-_]\w+|machine[-_]rank|main[-_]process[-_]\w+)(=|$)"
)
"""Options about who runs where: whatever they say, it is not needed, so their values may be anything."""


@dataclass(slots=True)
class Script:
    """A script taken apart: the training that it starts, and constants that the training may see."""

    launch: list[str]
    exports: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    """Lines about the machine that the script was written for."""


def take_apart(text: str, known: Mapping[str, str]) -> Script | None:
    """The one training that a script starts, or None where the script does more than that.

    Args:
        known: values of variables that its old home sets, such as the number of nodes.
    """
    values, exports, launches, left_out = dict(known), dict[str, str](), list[list[str]](), list[str]()
    for line in logical_lines(text):
        if assigned := _ASSIGNMENT.match(line):
            name, value = assigned[1], _constant(assigned[2], values)
            if value is None:
                values.pop(name, None)  # computed; fine as long as only rendezvous options use it
            else:
                values[name] = value
            if value is not None and line.startswith("export"):
                exports[name] = value
            continue
        words = _words(line)
        if not words:
            return None
        if words[0] in _HARMLESS:
            continue
        if words[0] in _ABOUT_THE_MACHINE or (words[0] == "cd" and words[-1][:1] in "/~$"):
            left_out.append(line)
            continue
        launch = _launch(words, values)
        if launch is None:
            return None
        launches.append(launch)
    return Script(launches[0], exports, left_out) if len(launches) == 1 else None


def take_script(found: Imported, script: Script) -> None:
    """Set workload, resources and variables from a script that was taken apart."""
    for name, value in script.exports.items():
        found.variable(name, value)
        found.note(Kind.MAPPED, f"export {name}", "environment.variables")
    for line in script.left_out:
        found.refused(line, "it is about the old machine; see environment.requirements, environment.setup and source")
    take_command(found, script.launch)


def logical_lines(text: str) -> Iterator[str]:
    """Lines with their continuations, without comments and blanks."""
    joined = re.sub(r"\\\r?\n", " ", text)
    for line in joined.splitlines():
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            yield stripped


def _words(line: str) -> list[str] | None:
    """A simple command's words, or None where the shell would do more than start it."""
    reader = shlex.shlex(line, posix=True, punctuation_chars=True)
    reader.whitespace_split = True
    reader.commenters = "#"
    try:
        words = list(reader)
    except ValueError:
        return None
    return None if any(re.fullmatch(r"[();<>|&]+", word) for word in words) else words


def _launch(words: list[str], values: Mapping[str, str]) -> list[str] | None:
    """The words of a training's command line with their variables filled in, or None where that cannot be done."""
    start = next((place for place in range(len(words)) if is_launch(words[place:])), None)
    if start is None or (start and PurePosixPath(words[0]).name not in ("srun", "exec", "time")):
        return None
    filled: list[str] = []
    free = False
    for word in words[start:]:
        expanded = _expanded(word, values)
        about_rendezvous = bool(_FOUND_BY_RANKS.match(word))
        if not (free or about_rendezvous) and _SHELL_ONLY.search(expanded):
            return None
        filled.append(expanded)
        free = about_rendezvous and "=" not in word
    return filled


def _constant(text: str, values: Mapping[str, str]) -> str | None:
    words = _words(text) if text.strip() else [""]
    if words is None or len(words) != 1:
        return None
    expanded = _expanded(words[0], values)
    return None if _SHELL_ONLY.search(expanded) else expanded


def _expanded(word: str, values: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda match: values.get(match[1] or match[2], match[0]), word)
