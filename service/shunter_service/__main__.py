"""`python -m shunter_service up | api | prepare | keys | activity`: the roles of this package.

Each imports what it needs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

_COMMANDS = {
    "up": "shunter_service.up.command",
    "api": "shunter_service.server",
    "prepare": "shunter_service.prepare",
    "keys": "shunter_service.keys",
    "backup": "shunter_service.backups.backup",
    "restore": "shunter_service.backups.restore",
    "migrate": "shunter_service.backups.migrate",
    "activity": "shunter_service.activity",
}


def main(arguments: Sequence[str]) -> int:
    """Run one command; the exit code."""
    command, *rest = arguments or ("",)
    if command not in _COMMANDS:
        print(f"usage: python -m shunter_service {{{','.join(_COMMANDS)}}} [OPTIONS]", file=sys.stderr)
        return 2
    code: int = import_module(_COMMANDS[command]).run(rest)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
