"""A rank of the trainer that writes down which bytes of tensors it holds when it takes its second optimizer step.

By then gradients are there and activations are gone, and the optimizer has made its state in the first step.
`python -m support.state_program`, in the place of `shunter_trainer`; the figure goes into `states-RANK` beside the
document.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from shunter_trainer import run


def main() -> None:
    """Never returns, as the trainer's own."""
    make: Any = vars(run)["strategy_for"]
    steps = 0

    def observed(document: Any) -> Any:
        strategy = make(document)
        step, before = strategy.step, _live_bytes()

        def noted(*arguments: Any, **options: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps == 2:
                folder = Path(os.environ["SHUNTER_DOCUMENT"]).parent
                (folder / f"states-{os.environ['RANK']}").write_text(str(_live_bytes() - before))
            return step(*arguments, **options)

        strategy.step = noted
        return strategy

    with patch.object(run, "strategy_for", observed):
        run.main()


def _live_bytes() -> int:
    """Bytes of all floating-point tensors of this process, each memory once; batches of ids are none."""
    gc.unfreeze()  # the trainer freezes what it has made; frozen objects are not listed
    gc.collect()
    storages: dict[int, int] = {}
    for found in gc.get_objects():
        if type(found) in (torch.Tensor, torch.nn.Parameter) and not found.is_meta and found.is_floating_point():
            storage = found.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


if __name__ == "__main__":
    main()
