"""What `scale.py` found: printed as it comes, and at the end as a table or as JSON."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Line:
    """One figure."""

    what: str
    seen: str
    goal: str = ""


@dataclass(slots=True)
class Report:
    """Of one run."""

    title: str
    lines: list[Line] = field(default_factory=list)
    load: float = field(default_factory=lambda: os.getloadavg()[0])

    def say(self, what: str, seen: str, goal: str = "") -> None:
        """A figure."""
        self.lines.append(Line(what, seen, goal))
        print(f"{what:64} {seen:52} {goal}".rstrip(), flush=True)

    def markdown(self) -> str:
        """A table."""
        head = [f"{self.title}, load {self.load:.1f} at the start", "", "| figure | goal | seen |", "|---|---|---|"]
        return "\n".join([*head, *(f"| {line.what} | {line.goal} | {line.seen} |" for line in self.lines)])

    def write(self, file: Path) -> None:
        """The table where the file's name ends with `.md`, else JSON."""
        told = {line.what: {"seen": line.seen, "goal": line.goal} for line in self.lines}
        as_json = json.dumps({"title": self.title, "load": self.load, "figures": told}, indent=2)
        file.write_text((self.markdown() if file.suffix == ".md" else as_json) + "\n")
