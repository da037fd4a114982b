"""`python -m shunter_schemas.deepspeed FILE PROGRAM`: how a node checks the DeepSpeed file of a script.

PROGRAM is the JSON of a `Program`. Prints one fault a line and ends with 1 where there is one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from shunter_schemas.deepspeed.file import MOST_BYTES, Program, file_faults


def main(path: str, program: str) -> int:
    """The exit code."""
    with Path(path).open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    faults = list(file_faults(content, Program(**json.loads(program))))
    for fault in faults:
        print(f"{fault.pointer}: {fault.detail}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
