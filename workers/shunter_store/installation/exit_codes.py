"""How a role ends that cannot begin."""

from __future__ import annotations

from typing import Final

UNUSABLE: Final = 2
"""The database or the data directory cannot be used as it is now. It may be tried again later."""
WRONG_SETTINGS: Final = 78
"""The settings are wrong (EX_CONFIG of `sysexits.h`): to start it again is no use before they are mended."""
