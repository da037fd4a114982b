"""What is imported before the first step, since imports are most of a short training's time."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.trainings import document

pytestmark = pytest.mark.trainer

HEAVY = ("torch._dynamo", "torch.distributed.checkpoint", "torch.distributed.fsdp", "safetensors", "sympy", "deepspeed")

PROBE = """
import json, os, sys
from shunter_trainer.reports import Reports
point = Reports.point
def probe(self, *args):
    real = [name for name in {heavy} if type(sys.modules.get(name)).__name__ == "module"]
    print("LOADED", json.dumps(real), flush=True)
    point(self, *args)
Reports.point = probe
from shunter_trainer.run import main
main()
"""

USES_DYNAMO = """
import torch
from shunter_trainer import deferred_dynamo
deferred_dynamo.defer()
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
model(torch.ones(1, 2)).sum().backward()
optimizer.step()
assert type(torch._dynamo).__name__ == "_StandIn"
import torch._dynamo.config
assert type(torch._dynamo).__name__ == "module"
before = model.weight.clone()
optimizer.step()
assert not torch.equal(before, model.weight)
assert torch._dynamo.is_compiling() is False
"""


def test_the_first_step_needs_no_heavy_module(tmp_path: Path) -> None:
    file = tmp_path / "document.json"
    file.write_text(json.dumps(document(duration={"steps": 2})))
    places = {f"SHUNTER_{name}_DIR": str(tmp_path / name.lower()) for name in ("CHECKPOINT", "OUTPUT")}

    run = python(PROBE.format(heavy=HEAVY), tmp_path, SHUNTER_DOCUMENT=str(file), **places)

    first = next(line for line in run.stdout.splitlines() if line.startswith("LOADED"))
    assert run.returncode == 0, run.stderr
    assert first == "LOADED []"


def test_dynamo_is_the_real_one_as_soon_as_something_uses_it(tmp_path: Path) -> None:
    run = python(USES_DYNAMO, tmp_path)

    assert run.returncode == 0, run.stderr


def python(code: str, folder: Path, **variables: Any) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
