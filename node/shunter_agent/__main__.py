"""`agent.pyz start --dir DIR` becomes a daemon; `agent.pyz run --dir DIR` stays in the foreground; `contained` is for
keepers, which start it in a container."""

from __future__ import annotations

import os
import sys

USAGE = "usage: agent.pyz start|run|contained --dir DIR"


def main(argv: list[str]) -> int:
    """Run the command and return the exit status: 0 done, 1 refused or failed, 2 wrong usage."""
    if len(argv) != 3 or argv[0] not in ("start", "run", "contained") or argv[1] != "--dir":
        sys.stderr.write(USAGE + "\n")
        return 2
    from shunter_agent import daemon

    root = os.path.abspath(argv[2])
    commands = {"start": daemon.start, "run": daemon.run, "contained": daemon.run_contained}
    return commands[argv[0]](root)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
