"""Puts the import of `torch._dynamo` off until something really uses it.

The first optimizer and the first DDP module import it only to mark functions as "not to be compiled", which costs about
as much as `import torch` itself (1.4 s measured). Until a real use of dynamo, a stand-in module answers these few marks
as what they are without a compiler: no change. Any other attribute loads the real module and takes the stand-in and its
marks away, so that nothing can tell the difference later.
"""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

_NAME = "torch._dynamo"
_MARK = "__dynamo_disable"
"""Where `torch._compile._disable_dynamo` remembers what `disable` returned."""


class _StandIn(types.ModuleType):
    def __init__(self) -> None:
        super().__init__(_NAME)
        self._marked: list[Any] = []
        # What `DistributedDataParallel.__init__` asks for; it compares the answer with "python_reducer" only.
        self.utils = types.SimpleNamespace(get_optimize_ddp_mode=lambda: "ddp_optimizer")

    def disable(self, fn: Callable[..., Any], recursive: bool = True, *, wrapping: bool = True) -> Callable[..., Any]:
        self._marked.append(fn)
        return fn

    def graph_break(self, msg: str = "") -> None:
        """Outside a compiled function the real one does nothing either."""

    def __getattr__(self, name: str) -> Any:
        # `inspect` and `warnings` ask every module for dunders; only `__path__` means an import of something inside.
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)
        withdraw()
        return getattr(importlib.import_module(_NAME), name)


def defer() -> None:
    """Install the stand-in, unless dynamo is there already.

    Call after `init_process_group`, which asks an imported dynamo to clear its caches, and before the first optimizer.
    """
    if _NAME not in sys.modules:
        stand_in = _StandIn()
        sys.modules[_NAME] = stand_in
        torch._dynamo = stand_in


def withdraw() -> None:
    """Take the stand-in and its marks away; a later `import torch._dynamo` is the real one."""
    stand_in = sys.modules.get(_NAME)
    if isinstance(stand_in, _StandIn):
        del sys.modules[_NAME]
        if vars(torch).get("_dynamo") is stand_in:
            del torch._dynamo
        for fn in stand_in._marked:
            vars(fn).pop(_MARK, None)
