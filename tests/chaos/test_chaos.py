"""All promises under attack at once: faults of the cloud, kills of every process, cancels; each run from its seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.runs import run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_promise_is_kept(seed: int, tmp_path: Path) -> None:
    report = run(seed, tmp_path)

    assert report.violations == [], report
