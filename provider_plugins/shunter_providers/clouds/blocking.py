"""What plugins over libcloud's connections do alike: read an answer, name what was lost, and say when to ask again."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import requests
from urllib3.exceptions import NewConnectionError

from shunter_providers.clouds.faults import Refused, Row, classify, retry_after_s
from shunter_providers.clouds.reading import Fields
from shunter_providers.contract import Fault, ProviderError

_TRIES: Final = 3
_WAITS_AT_MOST_S: Final = 5.0


class Words(NamedTuple):
    """How a vendor says no."""

    of: Callable[[Any, str], tuple[str, str]]
    """Code and message of an error's body, given as JSON (None: it is none) and as text."""
    faults: Sequence[Row]


def read(answer: Any, where: str, words: Words, *, creates: bool) -> Fields:
    """The JSON object of an answer of libcloud whose `object` is the text as it came; none is an empty one.

    Raises:
        ProviderError: classified by the vendor's table; what is no JSON may have made a node where it `creates`.
    """
    text = answer.object
    try:
        body = json.loads(text) if text else {}
    except ValueError:
        body = None
    if not 200 <= answer.status < 300:
        code, message = words.of(body, text)
        after_s = retry_after_s(answer.headers.get("retry-after"))
        raise classify(Refused(answer.status, code, message, after_s), words.faults, creates=creates)
    if body is None:
        raise ProviderError(
            Fault.AMBIGUOUS if creates else Fault.TRANSIENT,
            f"{where}: the answer is no JSON: {text[:80]!r}",
            may_have_created=creates,
        )
    return Fields(body, where, creates=creates)


def lost(error: requests.RequestException, where: str, *, creates: bool) -> ProviderError:
    """What it means that there is no answer: with a create that was sent, that a node may have been made."""
    sent = creates and _may_have_been_sent(error)
    return ProviderError(
        Fault.AMBIGUOUS if sent else Fault.TRANSIENT, f"{where}: {type(error).__name__}: {error}", may_have_created=sent
    )


def again_in_s(error: ProviderError, attempt: int) -> float | None:
    """When to try a reading call again; None: not at all."""
    if attempt >= _TRIES or error.fault not in (Fault.TRANSIENT, Fault.RATE_LIMITED):
        return None
    if error.retry_after_s is not None:
        return error.retry_after_s if error.retry_after_s <= _WAITS_AT_MOST_S else None
    return random.uniform(0.5, 1.0) * 0.2 * 2.0**attempt


def _may_have_been_sent(error: requests.RequestException) -> bool:
    if isinstance(error, requests.exceptions.ConnectTimeout | requests.exceptions.ProxyError):
        return False
    reason = getattr(error.args[0] if error.args else None, "reason", None)
    return not isinstance(reason, NewConnectionError)
