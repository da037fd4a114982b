"""The agent's own log: plain lines on stderr, which is `agent.log` when it runs as a daemon."""

from __future__ import annotations

import sys
import time


def trace(text: str) -> None:
    """Write one line with the time; a full disk is no reason to stop."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    try:
        sys.stderr.write("%s %s\n" % (stamp, text.rstrip()))  # noqa: UP031 - this line runs when all else failed
        sys.stderr.flush()
    except (OSError, ValueError):
        pass


def trace_exception(where: str) -> None:
    """Write the traceback of the exception that is being handled."""
    import traceback

    trace(f"{where}: {traceback.format_exc()}")
