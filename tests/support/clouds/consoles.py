"""What a node of a fake cloud wrote to its console while it booted."""

from __future__ import annotations

from typing import Final

CONSOLE: Final = "[    1.000000] Kernel panic - not syncing: no root device"
