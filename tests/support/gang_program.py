"""A rank that runs many trainings one after the other: the trainer's own parts, in a gang that meets only once.

    python gang_program.py PLAN        (torchrun's variables say which rank)

`PLAN` is JSON, see `support.gangs`. A training that fails ends the program with its traceback.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch.distributed as dist
from shunter_trainer import run
from shunter_trainer.gang import Gang, join, leave
from shunter_trainer.guards.hang import HangWatchdog
from shunter_trainer.places import Places
from shunter_trainer.reports import Reports


def main(plan: list[dict[str, Any]]) -> None:
    """Run the trainings of a plan, in its order."""
    faulthandler.enable()
    gang = Gang.from_environment()
    join(gang)
    _meet_only_once()
    for training in plan:
        folder = Path(training["folder"])
        places = Places.from_environment(
            {
                **os.environ,
                "SHUNTER_DOCUMENT": str(folder / "document.json"),
                "SHUNTER_CHECKPOINT_DIR": str(folder / "checkpoints"),
                "SHUNTER_OUTPUT_DIR": str(folder / "output"),
                "SHUNTER_METRICS_FILE": str(folder / f"metrics-{gang.rank}.jsonl"),
                "SHUNTER_RESUME_DIR": training["resume"] or "",
            }
        )
        reports = Reports(places.metrics, gang.is_main)
        if training["probe"]:
            from support.memory_probe import MemoryProbe

            probe = MemoryProbe()
            probe.train(run.train, gang, places, reports)
            probe.write(folder / f"memory-{gang.rank}.json")
        else:
            run.train(gang, places, reports)
        reports.close()
        gc.unfreeze()
        gc.collect()
    leave(gang)
    os._exit(0)


def _meet_only_once() -> None:
    def wait_for_all(gang: Gang) -> None:
        dist.barrier()

    patch.multiple(run, join=lambda gang: None, leave=wait_for_all).start()
    # It watches one training for the life of a process.
    HangWatchdog.start = lambda self: None  # type: ignore[method-assign]


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])
    main(json.loads(Path(sys.argv[1]).read_bytes()))
