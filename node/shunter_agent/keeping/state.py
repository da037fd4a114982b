"""What the agent must still know after its own death: a fold over the journal, saved when that is cut."""

from __future__ import annotations

from typing import Any, Callable, Iterator

from shunter_agent.files import read_json, write_json

ENDS = ("done", "failed", "stopped")


class GenerationState:
    """What the journal says of one generation."""

    def __init__(self, saved: dict[str, Any] | None = None) -> None:
        saved = saved or {}
        self.end: str = saved.get("end", "")
        """`done`, `failed`, `stopped`, or "" while it has not ended."""
        self.drained: bool = saved.get("drained", False)
        self.logs: dict[str, int] = dict(saved.get("logs", {}))
        """Bytes uploaded by `<rank>-<stream>`."""
        self.checkpoints: list[int] = list(saved.get("checkpoints", []))
        """Steps whose checkpoint was uploaded."""
        self.artifacts: list[str] = list(saved.get("artifacts", []))
        """Paths that were uploaded."""
        self.newest_point: int | None = saved.get("newest_point")
        """The step of the metric point that was recorded last."""

    def saved(self) -> dict[str, Any]:
        return dict(self.__dict__)


class State:
    """The fold. Only `apply` changes it."""

    def __init__(self) -> None:
        self.journal_id = ""
        self.seq = 0
        self._generations: dict[int, GenerationState] = {}

    def of(self, generation: int) -> GenerationState:
        return self._generations.setdefault(generation, GenerationState())

    def items(self) -> list[tuple[int, GenerationState]]:
        return sorted(self._generations.items())

    def apply(self, record: dict[str, Any]) -> None:
        """Take one record of the journal into account."""
        self.seq = record["seq"]
        change = _CHANGES.get(record["type"])
        if change is not None:
            change(self.of(record["generation"]), record["data"])

    def forget(self, before: int) -> None:
        """Drop generations below `before` of which nothing is left to do."""
        for generation, found in self.items():
            if generation < before and found.drained:
                del self._generations[generation]

    def save(self, path: str, journal_id: str) -> None:
        """Make the state durable, so that the records it was folded from may be cut off."""
        generations = {str(number): found.saved() for number, found in self.items()}
        write_json(path, {"journal_id": journal_id, "seq": self.seq, "generations": generations})

    @classmethod
    def load(cls, path: str, journal_id: str, records: Iterator[dict[str, Any]]) -> State:
        """The saved state, if any, and every record of the journal that came after it."""
        state = cls()
        saved = read_json(path) or {}
        for number, found in saved.get("generations", {}).items():
            state._generations[int(number)] = GenerationState(found)
        known = saved.get("seq", 0) if saved.get("journal_id") == journal_id else 0
        for record in records:
            if record["seq"] > known:
                state.apply(record)
        return state


def _end(kind: str) -> Callable[[GenerationState, dict[str, Any]], None]:
    def change(state: GenerationState, data: dict[str, Any]) -> None:
        state.end = state.end or kind

    return change


def _drained(state: GenerationState, data: dict[str, Any]) -> None:
    state.drained = True


def _log(state: GenerationState, data: dict[str, Any]) -> None:
    state.logs[f"{data['rank']}-{data['stream']}"] = data["offset"] + data["length"]


def _checkpoint(state: GenerationState, data: dict[str, Any]) -> None:
    if data["step"] not in state.checkpoints:
        state.checkpoints.append(data["step"])


def _artifact(state: GenerationState, data: dict[str, Any]) -> None:
    state.artifacts.append(data["file"]["path"])


def _metrics(state: GenerationState, data: dict[str, Any]) -> None:
    state.newest_point = data["points"][-1]["step"]


_CHANGES: dict[str, Callable[[GenerationState, dict[str, Any]], None]] = {
    **{kind: _end(kind) for kind in ENDS},
    "drained": _drained,
    "log": _log,
    "checkpoint": _checkpoint,
    "artifact": _artifact,
    "metrics": _metrics,
}
