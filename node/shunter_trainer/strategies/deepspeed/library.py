"""DeepSpeed itself: quiet, on this rank's device, in torch's process group, and without a compiler."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Mapping
from types import ModuleType
from typing import Any, NoReturn

import torch
from torch import nn

from shunter_trainer.failures import UserFault
from shunter_trainer.gang import Gang

_COMPILED_ON_REQUEST = (
    ("zero_force_ds_cpu_optimizer",),
    ("zero_optimization", "zero_quantized_weights"),
    ("zero_optimization", "zero_quantized_nontrainable_weights"),
    ("zero_optimization", "zero_quantized_gradients"),
)
"""Keys of a DeepSpeed document by which its author asks for operators that may have to be compiled on the node."""


def load_deepspeed(gang: Gang, raw: Mapping[str, Any]) -> ModuleType:
    """Import DeepSpeed and hand it torch's process group. `raw` is the author's own DeepSpeed document.

    Raises: UserFault when it is not installed.
    """
    os.environ["DS_ACCELERATOR"] = gang.device.type
    os.environ.setdefault("LOCAL_RANK", str(gang.local_rank))
    # Its loggers take their level when they are made, by an import.
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    try:
        import deepspeed
    except ImportError as error:
        raise UserFault(
            "/strategy/kind", f"deepspeed cannot be imported on this node ({error}); add it to environment.requirements"
        ) from error
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    # It calls torch's collectives by their older names.
    warnings.filterwarnings("ignore", category=FutureWarning, message=r"`torch\.distributed\.")
    # Asking which operators could be compiled starts compilers; the one that is asked for (all-reduce through shared
    # memory for inference) would then be compiled for a minute, and is never used in a training.
    setattr(deepspeed.ops, "__compatible_ops__", {"deepspeed_shm_comm": False})  # noqa: B010
    if gang.device.type == "cpu":
        # DeepSpeed asks for processors that are fast in fp16; torch computes in it on all of them.
        vars(deepspeed.get_accelerator())["is_fp16_supported"] = lambda: True
    if not any(_is_on(raw, path) for path in _COMPILED_ON_REQUEST):
        _refuse_to_compile()
    deepspeed.init_distributed(dist_backend=_backend(gang), verbose=False)
    module: ModuleType = deepspeed
    return module


def make_engine(
    deepspeed: ModuleType, module: nn.Module, optimizer: torch.optim.Optimizer, config: Mapping[str, Any]
) -> Any:
    """DeepSpeed's engine around the module.

    Raises: UserFault when DeepSpeed refuses its document.
    """
    from deepspeed.runtime.config import DeepSpeedConfigError

    try:
        engine, *_ = deepspeed.initialize(
            model=module, optimizer=optimizer, config=dict(config), dist_init_required=False
        )
    except (DeepSpeedConfigError, ValueError, TypeError, AssertionError) as error:
        raise UserFault("/strategy/config", f"DeepSpeed refuses it: {error}") from error
    return engine


def has_compiled_adam() -> bool:
    """Whether DeepSpeed was installed with its Adam for CPUs already compiled."""
    from deepspeed.git_version_info import installed_ops

    return bool(installed_ops.get("cpu_adam"))


def _backend(gang: Gang) -> str:
    return "nccl" if gang.device.type == "cuda" else "gloo"


def _is_on(raw: Mapping[str, Any], path: tuple[str, ...]) -> bool:
    value: Any = raw
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else None
    return bool(value)


def _refuse_to_compile() -> None:
    from deepspeed.ops.op_builder.builder import OpBuilder

    def refuse(self: OpBuilder, verbose: bool = True) -> NoReturn:
        keys = ", ".join(".".join(path) for path in _COMPILED_ON_REQUEST)
        raise UserFault(
            "/strategy/config",
            f"DeepSpeed would have to compile its operator {self.name!r} on the node, which takes minutes; "
            f"install DeepSpeed with it, or ask for compiled operators by one of {keys}",
        )

    OpBuilder.jit_load = refuse
