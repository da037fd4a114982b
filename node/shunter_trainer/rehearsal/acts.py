"""What is played: train to the end, be killed in the middle, go on, leave a model. Each act proves something."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shunter_trainer.checkpoint.manifest import verify
from shunter_trainer.failures import CheckpointFault
from shunter_trainer.rehearsal.cutting import FIRST_STEPS, RANKS, with_steps
from shunter_trainer.rehearsal.gang import Gang

_AFTER_CHECKPOINT_S = 3.0
"""The second act trains about so long, so that the kill comes in its middle."""
_STEPS = range(12, 3001)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was proven, or that went wrong."""

    name: str
    ok: bool
    detail: str


class Play:
    """A rehearsal of one document that was cut."""

    def __init__(self, document: Mapping[str, Any], places: Mapping[str, Path], folder: Path, act_s: float) -> None:
        """`places`: `source` and `inputs`; `folder`: for all that the acts leave. An act may take `act_s` seconds."""
        self._document = document
        self._places = places
        self._folder = folder
        self._act_s = act_s

    def findings(self) -> Iterator[Finding]:
        """The acts, one after the other; the first that fails is the last."""
        found: list[Finding] = []
        for act in (self._train, self._kill_and_go_on):
            for finding in act():
                yield finding
                found.append(finding)
            if not all(finding.ok for finding in found):
                return

    def _train(self) -> Iterator[Finding]:
        with self._start("train", self._document) as gang:
            if not gang.end(self._act_s):
                yield Finding("trains", False, gang.why())
                return
            losses = gang.values("loss")
        told = learned(losses)
        yield told
        if not told.ok:
            return
        evaluated = {name: value for line in gang.lines() for name, value in line.items() if name.startswith("val_")}
        if evaluated:
            yield Finding("evaluates", True, "  ".join(f"{name} {value:.4f}" for name, value in evaluated.items()))
        yield _exported(gang.output)
        self._step_s = sum(gang.values("step_time_s").values()) / len(losses)

    def _kill_and_go_on(self) -> Iterator[Finding]:
        steps = min(max(math.ceil(_AFTER_CHECKPOINT_S / max(self._step_s, 1e-4)), _STEPS.start), _STEPS.stop)
        longer = with_steps(self._document, steps)
        with self._start("killed", longer) as killed:
            checkpoint = killed.await_checkpoint(self._act_s)
            if checkpoint is None:
                yield Finding("saves", False, killed.why())
                return
            in_the_middle = killed.alive
            killed.kill()
        yield _whole(checkpoint)
        when = f"with SIGKILL after step {max(killed.values('loss'), default=0)} of {steps}"
        yield Finding("is killed", in_the_middle, when if in_the_middle else "it ended before it could be killed")
        resume = {"SHUNTER_RESUME_DIR": str(checkpoint)}
        with self._start("resumed", longer, **resume) as resumed:
            if not resumed.end(self._act_s):
                yield Finding("resumes", False, resumed.why())
                return
        yield goes_on(killed.values("loss"), resumed.values("loss"))
        yield _exported(resumed.output)

    def _start(self, act: str, document: Mapping[str, Any], **variables: str) -> Gang:
        return Gang(self._folder / act, document, self._places, RANKS, **variables)


def learned(losses: Mapping[int, float]) -> Finding:
    """Of the first act, by step. A step tells its loss unless that is no finite number."""
    bad = [str(step) for step in range(1, FIRST_STEPS + 1) if not math.isfinite(losses.get(step, math.nan))]
    if bad:
        detail = f"the loss is not finite at step {', '.join(bad)} of {FIRST_STEPS}"
        return Finding("trains", False, f"{detail}: look at the data, the precision and workload.optimizer.lr")
    first, last = losses[1], losses[FIRST_STEPS]
    return Finding("trains", True, f"loss {first:.4f} -> {last:.4f} in {FIRST_STEPS} steps on {RANKS} processes")


def _whole(checkpoint: Path) -> Finding:
    try:
        verify(checkpoint)
    except CheckpointFault as fault:
        return Finding("saves", False, str(fault))
    size = sum(file.stat().st_size for file in checkpoint.iterdir())
    return Finding("saves", True, f"a checkpoint of {_bytes(size)} is whole ({checkpoint.name})")


def goes_on(before: Mapping[int, float], after: Mapping[int, float]) -> Finding:
    """Both trained some of the same steps: the one before it was killed, the other after it took up."""
    common = sorted(before.keys() & after.keys())
    if not after:
        return Finding("resumes", False, "no step after the checkpoint had a finite loss")
    if not common:
        return Finding("resumes", True, f"took up at step {min(after)} and trained to step {max(after)}")
    worst = max(abs(before[step] - after[step]) for step in common)
    same = worst <= 1e-5 * max(1.0, max(abs(before[step]) for step in common))
    said = "the same losses as before" if same else f"other losses than before (they differ by up to {worst:.2g})"
    return Finding("resumes", same, f"took up at step {common[0]}, with {said} up to step {common[-1]}")


def _exported(folder: Path) -> Finding:
    """The exported files, read again."""
    from safetensors import safe_open

    files = sorted(folder.rglob("*.safetensors"))
    if not files:
        return Finding("exports", False, "no .safetensors file was left among the artifacts")
    count = 0
    for file in files:
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118  # not a mapping
                count += 1
                if not opened.get_tensor(name).isfinite().all():
                    return Finding("exports", False, f"{file.name}: {name} holds values that are not finite")
    size = sum(file.stat().st_size for file in files)
    names = ", ".join(file.name for file in files[:3])
    return Finding("exports", True, f"{names}: {count} tensors, {_bytes(size)}")


def _bytes(size: int) -> str:
    return f"{size / 2**20:.1f} MiB" if size >= 1 << 20 else f"{size / 2**10:.1f} KiB"
