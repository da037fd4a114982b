"""Keeps secrets out of everything that is written down: details of faults, logs, what the API shows."""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from shunter_providers.contract import Instance, ProviderError

SHOWN: Final = "[redacted]"
_SECRET_NAME: Final = re.compile(r"key|token|secret|passw|credential|auth", re.IGNORECASE)
_NOT_SECRET: Final = re.compile(r"(_url|_file|_path|_dir)$|^SSH_AUTH_SOCK$", re.IGNORECASE)
_SHORTEST: Final = 8
"""Shorter values are words that a message may hold by chance."""


def secrets_of(instance: Instance) -> frozenset[str]:
    """Values of an instance's settings and of its variables that bear a secret's name, as they might be shown."""
    found = {*_secret_values(instance.settings), *_secret_values(instance.environment)}
    encoded = {base64.b64encode(value.encode()).decode() for value in found}
    return frozenset(found | encoded)


def redact(text: str, secrets: Collection[str]) -> str:
    """The text without any of the secrets; the longest first, since one may hold another."""
    for secret in sorted(secrets, key=len, reverse=True):
        if secret and secret in text:
            text = text.replace(secret, SHOWN)
    return text


def redacted(error: ProviderError, secrets: Collection[str]) -> ProviderError:
    """The same fault; its text, and those of what it came from, without secrets."""
    detail = redact(error.detail, secrets)
    if detail == error.detail:
        return error
    return ProviderError(
        error.fault,
        detail,
        scope=error.scope,
        retry_after_s=error.retry_after_s,
        may_have_created=error.may_have_created,
    )


def _secret_values(mapping: Mapping[str, Any], *, within: bool = False) -> Iterator[str]:
    for name, value in mapping.items():
        secret = within or (_SECRET_NAME.search(name) is not None and _NOT_SECRET.search(name) is None)
        if isinstance(value, Mapping):
            yield from _secret_values(value, within=secret)
        elif secret:
            shown = value.get_secret_value() if hasattr(value, "get_secret_value") else value
            if isinstance(shown, str) and len(shown) >= _SHORTEST:
                yield shown
