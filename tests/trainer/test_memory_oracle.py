"""Predicted memory against what torch would allocate, counted on tensors without memory."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from support.published import FOLDER

pytestmark = [pytest.mark.slow, pytest.mark.trainer, pytest.mark.timeout(400)]


def test_ten_shapes_are_predicted_to_a_tenth_of_what_torch_would_allocate() -> None:
    counted = subprocess.run(
        [sys.executable, str(FOLDER / "oracle.py"), "--json"], capture_output=True, text=True, check=False, timeout=380
    )
    assert counted.returncode == 0, counted.stderr

    shapes = json.loads(counted.stdout.splitlines()[-1])
    errors = {one["name"]: one["predicted_gib"] / one["counted_gib"] - 1 for one in shapes}

    assert len(errors) == 10
    assert {name: round(error, 3) for name, error in errors.items() if abs(error) > 0.1} == {}
