"""What a rank tells its agent: JSON lines in `SHUNTER_METRICS_FILE`, and a few lines for people from rank 0."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_LEAST_BETWEEN_LINES_S = 2.0


class Reports:
    """The metrics file of one rank; lines are flushed one by one. Without a file, only people are told."""

    def __init__(self, file: Path | None, is_main: bool) -> None:
        self._file = file.open("a", encoding="utf-8") if file else None
        self._is_main = is_main
        self._said_at = -_LEAST_BETWEEN_LINES_S

    def up(self) -> None:
        """This rank has joined the gang."""
        self._write({"event": "up"})

    def failure(self, reason: str, message: str, rank: int | None = None) -> None:
        """Why this rank is about to end; also in torchrun's error file, where one is asked for.

        Args:
            rank: another one, where the cause is known to lie there.
        """
        blamed = {} if rank is None else {"rank": rank}
        self._write({"event": "failure", "reason": reason, "message": message, **blamed})
        if error_file := os.environ.get("TORCHELASTIC_ERROR_FILE"):
            _write_error_file(Path(error_file), message)

    def warning(self, step: int, message: str) -> None:
        """Something that people should look at, though the training goes on; from rank 0 only."""
        if self._is_main:
            self._write({"event": "warning", "at_step": step, "message": message})
            self.say(f"warning: {message}")

    def micro_batch(self, found: Mapping[str, Any]) -> None:
        """What came of trying the micro-batch; from rank 0 only."""
        if self._is_main:
            self._write({"event": "micro_batch", **found})
            self.say(f"micro-batch: {found['message']}")

    def ending(self, message: str) -> None:
        """How a training ended that has succeeded before its last step; from rank 0 only."""
        if self._is_main:
            self._write({"event": "done", "message": message})
            self.say(message)

    def point(self, step: int, values: Mapping[str, float], total_steps: int, eta_s: float | None) -> None:
        """One metric point, from rank 0 only. Values that are no finite numbers are left out (JSON has none)."""
        if not self._is_main:
            return
        finite = {name: value for name, value in values.items() if math.isfinite(value)}
        line = {"step": step, **finite, "total_steps": total_steps, "at": round(time.time(), 3)}
        if eta_s is not None:
            line["eta_s"] = round(eta_s, 1)
        self._write(line)

    def progress(self, step: int, total_steps: int, values: Mapping[str, float], eta_s: float | None) -> None:
        """The point in words; not all of them, since people read logs."""
        now = time.monotonic()
        notable = step in (1, total_steps) or "val_loss" in values
        if notable or now - self._said_at >= _LEAST_BETWEEN_LINES_S:
            self._said_at = now
            self.say(progress_line(step, total_steps, values, eta_s))

    def say(self, text: str) -> None:
        """A line for people, once for the whole gang."""
        if self._is_main:
            print(text, flush=True)

    def close(self) -> None:
        """No more lines."""
        if self._file is not None:
            self._file.close()

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._file is None:
            return
        try:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()
        except OSError as error:  # a full disk must not end a healthy training
            print(f"a metrics line was lost: {error}", file=sys.stderr, flush=True)


def progress_line(step: int, total_steps: int, values: Mapping[str, float], eta_s: float | None) -> str:
    """One step in words."""
    parts = [f"step {step}/{total_steps}"]
    parts += [f"{label} {values[name]:{form}}" for name, label, form in _SHOWN if name in values]
    if eta_s is not None:
        parts.append(f"eta {eta_s:.0f} s")
    return "  ".join(parts)


_SHOWN = (
    ("loss", "loss", ".4f"),
    ("val_loss", "val_loss", ".4f"),
    ("lr", "lr", ".3g"),
    ("grad_norm", "grad_norm", ".3f"),
    ("tokens_per_s", "tokens/s", ".0f"),
    ("samples_per_s", "samples/s", ".1f"),
)


def _write_error_file(path: Path, message: str) -> None:
    body = {"message": {"message": message, "extraInfo": {"py_callstack": "", "timestamp": str(int(time.time()))}}}
    try:
        path.write_text(json.dumps(body), encoding="utf-8")
    except OSError as error:
        print(f"the error file {path} could not be written: {error}", file=sys.stderr, flush=True)
