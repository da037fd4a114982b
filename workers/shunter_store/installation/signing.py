"""Signed object URLs, and the tokens that nodes show: all derived from the one secret of the installation."""

from __future__ import annotations

import hashlib
import hmac
from urllib.parse import quote, urlencode


def sign(secret: bytes, method: str, key: str, expires_at: float) -> str:
    """A path that allows one method on one object until `expires_at` (seconds since the epoch)."""
    expires = int(expires_at)
    query = urlencode({"expires": expires, "signature": _signature(secret, method, key, expires)})
    return f"/v1/objects/{quote(key)}?{query}"


def verify(secret: bytes, method: str, key: str, *, expires: str, signature: str, now: float) -> bool:
    """Whether the query of a signed path was made by us for this method and key, and is still good."""
    if not (expires.isascii() and expires.isdigit() and len(expires) <= 12):
        return False
    expected = _signature(secret, method, key, int(expires))
    return hmac.compare_digest(expected.encode(), signature.encode("utf-8", "replace")) and now < int(expires)


def node_sync_token(secret: bytes, node_token: str) -> str:
    """The bearer token of one node. Derived, so that a create that is tried again gives the same."""
    return "sns_" + hmac.new(secret, f"node-sync\n{node_token}".encode(), hashlib.sha256).hexdigest()


def token_hash(token: str) -> str:
    """What the ledger keeps of a sync token."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def _signature(secret: bytes, method: str, key: str, expires: int) -> str:
    return hmac.new(secret, f"object\n{method.upper()}\n{expires}\n{key}".encode(), hashlib.sha256).hexdigest()
