"""`agent.pyz start --dir DIR` becomes a daemon; `agent.pyz run --dir DIR` stays in the foreground."""

from __future__ import annotations

import os
import sys

USAGE = "usage: agent.pyz start|run --dir DIR"


def main(argv: list[str]) -> int:
    """Run the command and return the exit status: 0 done, 1 refused or failed, 2 wrong usage."""
    if len(argv) != 3 or argv[0] not in ("start", "run") or argv[1] != "--dir":
        sys.stderr.write(USAGE + "\n")
        return 2
    from shunter_agent import daemon

    root = os.path.abspath(argv[2])
    return daemon.start(root) if argv[0] == "start" else daemon.run(root)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
