"""A save that is killed at every moment at which it touches the disk.

    python killed_saves.py FOLDER

For n = 1, 2, ... a child saves two checkpoints, begins a third and is killed (`kill -9`) at the n-th time that it
opens, renames, makes or deletes something; until one comes to its end. Prints, as JSON, what each left: the steps that
are whole, by their manifests' sizes and hashes, and what lies about once the next process has swept.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import torch
from shunter_trainer.checkpoint.manifest import sweep, verify, whole_checkpoints
from shunter_trainer.checkpoint.save import Policy, Position, Saver
from shunter_trainer.gang import Gang, join

_EVENTS = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "shutil.rmtree"}


def outcomes(folder: Path) -> Iterator[dict[str, Any]]:
    """What the death at each moment left; the last is of the child that lived."""
    for moment in count(1):
        root = folder / str(moment)
        child = os.fork()
        if child == 0:
            _save(root, moment)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        whole = whole_checkpoints(root)
        for _, checkpoint in whole:
            verify(checkpoint)
        sweep(root)
        left = sorted(entry.name for entry in root.iterdir())
        yield {"ended": status, "whole": [step for step, _ in whole], "left": left}
        if status != -signal.SIGKILL:
            return


def _save(root: Path, moment: int) -> None:
    """In the child; never returns."""
    try:
        gang = Gang(0, 1, 0, 1, 0, 1, torch.device("cpu"))
        join(gang)
        sweep(root)
        saver = Saver(Policy(root, "1", keep=2, best_by=None), gang)
        for step in (1, 2, 3):
            if step == 3:
                _die_at(moment, root)
            state = {f"model.{name}": torch.full((64, 64), float(step)) for name in "abc"}
            saver.save(state, Position(step, 8 * step, "", 1, "ddp"), {"loss": 1.0})
            saver.wait()
    except BaseException as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def _die_at(moment: int, root: Path) -> None:
    passed = 0

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal passed
        if event in _EVENTS and arguments and str(arguments[0]).startswith(str(root)):
            passed += 1
            if passed == moment:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(look)


def main() -> None:
    """Print all outcomes."""
    torch.set_num_threads(1)
    # Once for all children.
    import_module("torch.distributed.checkpoint.filesystem")
    import_module("torch.distributed.checkpoint.state_dict_saver")
    print(json.dumps(list(outcomes(Path(sys.argv[1])))))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
