"""Takes secrets out of what is handed on for others to read, such as the bundle of `shunter debug`.

By name (`HF_TOKEN`, `password`, `api_key` …), by form (our own keys and tokens, those of clouds and hubs, private keys,
bearer headers, signed URLs), and by value: what was found under a secret's name is taken out wherever else it occurs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

REMOVED: Final = "[removed]"
SHORTEST: Final = 6
"""A shorter value under a secret's name is removed there, and not looked for elsewhere: it would be a common word."""

_NAME: Final = re.compile(
    r"(secret|token|passw|passphrase|credential|api_?key|access_?key|private_?key|signing_?key|auth(?!or)|cookie|sas\b)",
    re.IGNORECASE,
)
_NO_SECRET: Final = re.compile(
    r"^(tokens?_(per|seen|total|count).*|.*_tokens|tokenizer.*|num_tokens.*|token|account|.*_(file|path|url|dir|hash))$",
    re.IGNORECASE,
)
_FORMS: Final[Sequence[tuple[re.Pattern[str], str]]] = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), REMOVED),
    (re.compile(r"\bsh[knb]_[0-9A-Za-z_]{16,}"), REMOVED),
    (re.compile(r"\bsns_[0-9a-f]{16,}"), REMOVED),
    (re.compile(r"\b(AKIA|ASIA)[0-9A-Z]{16}\b"), REMOVED),
    (re.compile(r"\b(hf|ghp|gho|ghs|ghu|github_pat|glpat|xox[abp]|sk|rpa|dop_v1)[-_][0-9A-Za-z_-]{16,}"), REMOVED),
    (re.compile(r"\beyJ[0-9A-Za-z_-]{10,}\.[0-9A-Za-z_-]{10,}\.[0-9A-Za-z_-]*"), REMOVED),
    (re.compile(r"(?i)\b(bearer|basic)\s+[0-9A-Za-z._~+/=-]{8,}"), rf"\1 {REMOVED}"),
    (re.compile(r"(?<=://)[^/\s:@]*:[^/\s@]+(?=@)"), REMOVED),
    (
        re.compile(r"(?i)([?&](?:[a-z-]*signature|sig|x-amz-[a-z-]*|x-goog-[a-z-]*|[a-z_]*token|key)=)[^&\s\"']+"),
        rf"\1{REMOVED}",
    ),
)
_ASSIGNED: Final = re.compile(
    r"""(?P<name>[\w.-]+)(?P<middle>["']?\s*[=:]\s*)(?P<value>"[^"]*"|'[^']*'|[^\s,;"'})\]]+)"""
)


def scrub(value: Any, known: Collection[str] = ()) -> Any:
    """The same JSON without secrets.

    Args:
        known: values that are secret for certain.
    """
    secrets = {*known, *secret_values(value)}
    return _scrub(value, sorted((text for text in secrets if len(text) >= SHORTEST), key=len, reverse=True))


def scrub_text(text: str, known: Sequence[str] = ()) -> str:
    """The same text without secrets."""
    for secret in known:
        text = text.replace(secret, REMOVED)
    for form, instead in _FORMS:
        text = form.sub(instead, text)
    return _ASSIGNED.sub(_without_value, text)


def secret_values(value: Any) -> set[str]:
    """Texts that stand under a secret's name."""
    found: set[str] = set()
    if isinstance(value, Mapping):
        for name, entry in value.items():
            if is_secret_name(str(name)):
                found |= _texts(entry)
            else:
                found |= secret_values(entry)
    elif isinstance(value, list | tuple):
        for entry in value:
            found |= secret_values(entry)
    return found


def is_secret_name(name: str) -> bool:
    """Whether what bears this name is hidden. `token` alone is a node's name with us; sync tokens are known by form."""
    return _NAME.search(name) is not None and _NO_SECRET.match(name) is None


def _without_value(found: re.Match[str]) -> str:
    return f"{found['name']}{found['middle']}{REMOVED}" if is_secret_name(found["name"]) else found[0]


def _scrub(value: Any, secrets: Sequence[str]) -> Any:
    if isinstance(value, str):
        return scrub_text(value, secrets)
    if isinstance(value, Mapping):
        return {
            name: REMOVED if is_secret_name(str(name)) and entry not in (None, "", [], {}) else _scrub(entry, secrets)
            for name, entry in value.items()
        }
    if isinstance(value, list | tuple):
        return [_scrub(entry, secrets) for entry in value]
    return value


def _texts(value: Any) -> set[str]:
    if isinstance(value, str):
        return {value}
    if isinstance(value, Mapping):
        return {text for entry in value.values() for text in _texts(entry)}
    if isinstance(value, list | tuple):
        return {text for entry in value for text in _texts(entry)}
    return set()
