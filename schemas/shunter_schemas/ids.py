"""Prefixed ids: `job_` and a UUIDv7 in Crockford base32, so that ids sort by the time they were made."""

from __future__ import annotations

import re
import secrets
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_BASE32 = "abcdefghijklmnopqrstuvwxyz234567"
_BODY = re.compile(r"[0-7][0-9a-hjkmnp-tv-z]{25}")


def new_id(prefix: str) -> str:
    """A new id such as `job_01kb…` (RFC 9562 UUIDv7: 48 bits of milliseconds, 74 random bits)."""
    value = (
        time.time_ns() // 1_000_000 << 80 | 0x7 << 76 | secrets.randbits(12) << 64 | 0b10 << 62 | secrets.randbits(62)
    )
    digits = [_ALPHABET[value >> shift & 31] for shift in range(125, -1, -5)]
    return f"{prefix}_{''.join(digits)}"


def is_id(prefix: str, text: str) -> bool:
    """Whether `text` has the form of an id of this kind (not whether it exists)."""
    head, _, body = text.partition("_")
    return head == prefix and _BODY.fullmatch(body) is not None


def new_node_token(deployment: str) -> str:
    """A name for one node intent, legal on every cloud: `shn-<deployment, 6>-<16 random base32>`."""
    return f"shn-{deployment}-{''.join(secrets.choice(_BASE32) for _ in range(16))}"


def new_deployment_id() -> str:
    """Six letters that mark everything that one installation makes."""
    return "".join(secrets.choice(_BASE32) for _ in range(6))
