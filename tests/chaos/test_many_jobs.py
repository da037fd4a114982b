"""Many jobs at once on a cloud where every kind of call goes wrong, while its control plane is killed at random."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos import scripts
from chaos.ground import Size, Surroundings, ground


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("jobs", [16, 200])
def test_every_promise_is_kept_to_many_jobs_under_every_fault(jobs: int, tmp_path: Path) -> None:
    size = Size(jobs=jobs, gangs=jobs // 8, endless=2, lines=3, acts=10)

    with ground(tmp_path, Surroundings("deployed")) as on:
        played = on.play(jobs, size, scripts.everything(jobs // 8))

        assert played.violations == [], played.diary
