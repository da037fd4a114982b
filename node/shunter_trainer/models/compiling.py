"""`torch.compile`, block by block.

Compiled as a whole, a model gives all gradients at once at the end of its backward pass, and no reduction could overlap
with it; and every strategy's hooks (gathering a block's parameters, say) would have to be traced. So each block's
`forward` is compiled inside its hooks. Blocks of one kind share one compilation.
"""

from __future__ import annotations

import os
import shutil

import torch
from torch import nn

from shunter_trainer.failures import UserFault
from shunter_trainer.models.recompute import blocks

_COMPILERS = ("g++", "c++", "clang++")


def compile_blocks(model: nn.Module) -> None:
    """Have every block compiled at its first use; a model without blocks, as a whole. After `recompute_blocks`.

    Raises: UserFault when the node has no compiler.
    """
    require_compiler()
    for module in blocks(model) or [model]:
        module.forward = torch.compile(module.forward)


def require_compiler() -> None:
    """Raises: UserFault when what `torch.compile` generates could not be built on this node."""
    wanted = os.environ.get("CXX")
    if wanted and shutil.which(wanted) is None:
        raise UserFault("/workload/compile", f"needs the compiler {wanted} (variable CXX), which is not on this node")
    if not wanted and not any(shutil.which(name) for name in _COMPILERS):
        raise UserFault(
            "/workload/compile",
            f"needs a C++ compiler on the node, and there is none of {', '.join(_COMPILERS)}; install one by "
            'environment.setup (["apt-get install -y g++"]), or set compile to false',
        )
