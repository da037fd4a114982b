"""A rank of the trainer whose memory has a limit of its own, so that running out of it is an error that can be caught.

`python -m support.limited_program`, in the place of `shunter_trainer`; `LIMIT_MIB` is what it may take beyond what the
process has once torch is there.
"""

from __future__ import annotations

import os
import re
import resource
from pathlib import Path

from shunter_trainer import run


def main() -> None:
    """Never returns, as the trainer's own."""
    found = re.search(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None, "Linux tells it"
    limit = int(found[1]) * 1024 + int(os.environ["LIMIT_MIB"]) * 2**20
    resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.RLIM_INFINITY))
    run.main()


if __name__ == "__main__":
    main()
