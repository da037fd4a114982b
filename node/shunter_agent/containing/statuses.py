"""How an agent's process ends, where another process starts the next one."""

from __future__ import annotations

RELEASED = 0
HANDED_OVER = 10
"""The image is here: the agent inside the container goes on."""
ENDS_MACHINE = 11
"""The lease is over: whoever stands outside the container ends the machine."""
