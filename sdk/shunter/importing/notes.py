"""What became of each part of an imported file: taken over, taken for granted, left out, or beyond us."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """What became of a part."""

    MAPPED = "mapped"
    """The document says the same."""
    ASSUMED = "assumed"
    """The file does not say it; look whether it is right."""
    DROPPED = "dropped"
    """Left out, because it is not needed or has no counterpart; `why` says which."""
    REFUSED = "refused"
    """The training may need it, and the document cannot say it: something has to be done by hand."""


@dataclass(frozen=True, slots=True)
class Note:
    """One part of the file. `part` is how the file names it; values that may be secret are never repeated."""

    kind: Kind
    part: str
    why: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.part}: {self.why}"


@dataclass(slots=True)
class Imported:
    """A document in the making, and then the finished one."""

    document: dict[str, Any] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    """Files to lay beside the document, by name."""
    on_cpus: bool = False
    """Whether it is known by now that no GPU is asked for."""

    def mapped(self, part: str, path: str, value: Any) -> None:
        """Set a member of the document from a part of the file."""
        self.put(path, value)
        self.note(Kind.MAPPED, part, path)

    def assumed(self, part: str, path: str, value: Any, why: str) -> None:
        """Set a member that the file does not give, unless it is set."""
        if self.get(path) is None:
            self.put(path, value)
            self.note(Kind.ASSUMED, part, f"{path}: {why}")

    def dropped(self, part: str, why: str) -> None:
        """Leave a part out."""
        self.note(Kind.DROPPED, part, why)

    def refused(self, part: str, why: str) -> None:
        """A part that the document cannot say."""
        self.note(Kind.REFUSED, part, why)

    def note(self, kind: Kind, part: str, why: str) -> None:
        """Account for a part."""
        self.notes.append(Note(kind, part, why))

    def get(self, path: str) -> Any:
        """A member of the document by path, or None."""
        value: Any = self.document
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        return value

    def ranks(self, part: str, nodes: int, per_node: int, *, kind: Kind = Kind.MAPPED, why: str = "") -> None:
        """Set how many ranks there are, and how they lie on nodes."""
        if self.on_cpus:
            if nodes > 1 or self.get("resources.nodes"):
                self.put("resources.nodes", nodes)
            self.put("resources.cpu_processes", per_node)
            self.note(kind, part, why or "resources.cpu_processes" + (", resources.nodes" if nodes > 1 else ""))
            return
        self.put("resources.nodes", nodes)
        self.put("resources.gpus_per_node", per_node)
        self.note(kind, part, why or "resources.nodes, resources.gpus_per_node")

    def put(self, path: str, value: Any) -> None:
        """Set a member by path; the objects on the way are made."""
        *way, last = path.split(".")
        place = self.document
        for name in way:
            place = place.setdefault(name, {})
        place[last] = value

    def variable(self, name: str, value: Any) -> None:
        """Set an environment variable of the ranks."""
        self.put("environment.variables", {**(self.get("environment.variables") or {}), name: str(value)})
