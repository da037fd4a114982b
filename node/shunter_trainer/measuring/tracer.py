"""`workload.profile`: torch's profiler over a few steps, its trace left among the artifacts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shunter_schemas.oversight import Profile

from shunter_trainer.gang import Gang


class Tracer:
    """Call `before(step)` at the beginning of every step, and `close` at the end of the training."""

    def __init__(self, document: Profile, folder: Path, gang: Gang) -> None:
        """`folder`: of the outputs; traces go into `profile/` there, to be opened with Perfetto or Chrome's tracing."""
        self._document = document
        self._file = folder / "profile" / f"trace-rank{gang.rank}.json.gz"
        self._device = gang.device
        self._chosen = gang.is_main or document.ranks == "all"
        self._profiler: Any = None

    @property
    def over(self) -> bool:
        """Whether nothing is left to trace."""
        return not self._chosen

    def before(self, step: int) -> str | None:
        """Begin or end a trace, if it is time to; what to tell people of it."""
        if self._profiler is not None and step > self._document.last_step:
            return self.close()
        if self._profiler is None and self._chosen and self._document.first_step <= step <= self._document.last_step:
            self._profiler = self._make()
            self._profiler.start()
        return None

    def close(self) -> str | None:
        """Write the trace, if one is under way."""
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            return None
        profiler.stop()
        self._chosen = False
        self._file.parent.mkdir(parents=True, exist_ok=True)
        profiler.export_chrome_trace(str(self._file))
        steps = f"{self._document.first_step} to {self._document.last_step}"
        return f"a trace of the steps {steps} lies among the artifacts: profile/{self._file.name}"

    def _make(self) -> Any:
        from torch.profiler import ProfilerActivity, profile

        activities = [ProfilerActivity.CPU]
        if self._device.type == "cuda":
            activities.append(ProfilerActivity.CUDA)
        return profile(
            activities=activities,
            profile_memory=self._document.memory,
            with_stack=self._document.stacks,
            record_shapes=True,
        )
