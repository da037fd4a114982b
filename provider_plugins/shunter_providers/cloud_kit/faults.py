"""What a vendor's refusal means in the contract's words: a table of status and words, the first row that fits decides.

A plugin gives its own rows, and `COMMON` follows them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple

from shunter_providers.contract import Fault, ProviderError, Scope


class Row(NamedTuple):
    """`status` (None: any; a pair: from, up to and including) and `words` (a pattern, in code and message) both fit."""

    status: int | tuple[int, int] | None
    words: str
    fault: Fault
    scope: Scope
    makes_nothing: bool = False
    """The vendor promises with it that nothing was made. Needless below 500."""


class Refused(NamedTuple):
    """A reply that is no success."""

    status: int
    code: str
    message: str
    retry_after_s: float | None = None

    @property
    def text(self) -> str:
        """For people: `404 no_such_ask: …`."""
        return " ".join(f"{self.status} {self.code}: {self.message}".split())[:1000].rstrip(": ")


# fmt: off
COMMON: Final[Sequence[Row]] = (
    Row(401,        "", Fault.AUTH,         Scope.ACCOUNT),
    Row(402,        "", Fault.PAYMENT,      Scope.ACCOUNT),
    Row(403,        "", Fault.AUTH,         Scope.ACCOUNT),
    Row(404,        "", Fault.NOT_FOUND,    Scope.OFFER),
    Row(408,        "", Fault.TRANSIENT,    Scope.PROVIDER),
    Row(409,        "", Fault.CONFLICT,     Scope.OFFER),
    Row(410,        "", Fault.NOT_FOUND,    Scope.OFFER),
    Row(425,        "", Fault.TRANSIENT,    Scope.PROVIDER),
    Row(429,        "", Fault.RATE_LIMITED, Scope.ACCOUNT),
    Row((400, 499), "", Fault.INVALID,      Scope.OFFER),
    Row((500, 599), "", Fault.TRANSIENT,    Scope.PROVIDER),
    Row(None,       "", Fault.INVALID,      Scope.PROVIDER),
)
# fmt: on


def classify(refused: Refused, rows: Sequence[Row], *, creates: bool) -> ProviderError:
    """The contract's error. A create that ends with 5xx or 408 may have made a node, unless its row says otherwise."""
    row = next(row for row in (*rows, *COMMON) if _fits(row, refused))
    unsure = creates and (refused.status >= 500 or refused.status == 408) and not row.makes_nothing
    if creates and row.fault is Fault.NOT_FOUND:  # a create finds nothing missing but what it was told to use
        row = row._replace(fault=Fault.INVALID)
    return ProviderError(
        row.fault, refused.text, scope=row.scope, retry_after_s=refused.retry_after_s, may_have_created=unsure
    )


def retry_after_s(header: str | None) -> float | None:
    """`Retry-After` as seconds: a number, or a date of HTTP. None where it says neither; an hour at most."""
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            at = parsedate_to_datetime(header)
        except ValueError:
            return None
        seconds = ((at if at.tzinfo else at.replace(tzinfo=UTC)) - datetime.now(UTC)).total_seconds()
    return None if math.isnan(seconds) else min(max(seconds, 0.0), 3600.0)


def _fits(row: Row, refused: Refused) -> bool:
    if isinstance(row.status, tuple):
        if not row.status[0] <= refused.status <= row.status[1]:
            return False
    elif row.status not in (None, refused.status):
        return False
    return not row.words or re.search(row.words, f"{refused.code} {refused.message}", re.IGNORECASE) is not None
