"""`SHUNTER_DEBUG` among the document's variables: one switch for the debug output of NCCL, gloo and torch.distributed.

`1` tells how the ranks find each other and keeps the newest collectives for a dump when one of them times out; `2` also
checks every collective against the others' (slow), and lets NCCL tell everything.
"""

from __future__ import annotations

import os
from typing import Mapping

SWITCH = "SHUNTER_DEBUG"

_FIRST: Mapping[str, str] = {
    "NCCL_DEBUG": "INFO",
    "TORCH_CPP_LOG_LEVEL": "INFO",
    "TORCH_DISTRIBUTED_DEBUG": "INFO",
    "TORCH_SHOW_CPP_STACKTRACES": "1",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
    # The flight recorder under its new and its old names.
    "TORCH_FR_BUFFER_SIZE": "2000",
    "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
}
_SECOND: Mapping[str, str] = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL", "NCCL_DEBUG_SUBSYS": "ALL"}
_OFF = frozenset({"", "0", "false", "off"})


def debug_environment(level: str, dumps: str) -> dict[str, str]:
    """The variables of a level; `dumps` is the folder for dumps of the flight recorder, made where it is needed."""
    if level.strip().lower() in _OFF:
        return {}
    os.makedirs(dumps, exist_ok=True)
    prefix = os.path.join(dumps, "rank_")
    found = {**_FIRST, "TORCH_FR_DUMP_TEMP_FILE": prefix, "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": prefix}
    return {**found, **_SECOND} if level.strip() == "2" else found
