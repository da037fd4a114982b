"""Which of an account's things are ours: the token is the name, the only mark that every vendor keeps.

A token is `shn-<deployment>-<random>`: it tells the deployment, so that a listing needs no other mark.
"""

from __future__ import annotations

import re
from typing import Final

_TOKEN: Final = re.compile(r"shn-(?P<deployment>[a-z0-9]+)-[a-z0-9]+")


def token_of(name: str | None, deployment: str | None = None) -> str | None:
    """The token that a thing's name is, of this deployment (None: of any); None: it is not ours."""
    found = _TOKEN.fullmatch(name or "")
    if found is None or deployment not in (None, found["deployment"]):
        return None
    return found[0]


def looks_like(handle: str, pattern: str) -> bool:
    """Whether a handle has the vendor's form. What has not was never given out, and must not get into a URL."""
    return re.fullmatch(pattern, handle) is not None
