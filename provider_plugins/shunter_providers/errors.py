"""The contract's one error: what went wrong, and how far it reaches."""

from __future__ import annotations

from enum import StrEnum


class Fault(StrEnum):
    """What went wrong, in words that the core knows; beside each, the one thing that the caller does next."""

    NO_CAPACITY = "no_capacity"  # try the next offer
    QUOTA = "quota"  # block the scope, try elsewhere
    AUTH = "auth"  # stop using the instance, tell the operator
    PAYMENT = "payment"  # stop using the instance, tell the operator
    RATE_LIMITED = "rate_limited"  # wait `retry_after_s`
    TRANSIENT = "transient"  # try again with back-off
    INVALID = "invalid"  # fail the job with the field
    NOT_FOUND = "not_found"  # the thing is absent
    CONFLICT = "conflict"  # search by token, then decide
    AMBIGUOUS = "ambiguous"  # something may exist: search by token before anything else


class Scope(StrEnum):
    """How far a fault reaches."""

    OFFER = "offer"
    ZONE = "zone"
    REGION = "region"
    ACCOUNT = "account"
    PROVIDER = "provider"


class ProviderError(Exception):
    """The only error that a plugin raises. `may_have_created` forces a search by token before any retry."""

    def __init__(
        self,
        fault: Fault,
        detail: str,
        *,
        scope: Scope = Scope.PROVIDER,
        retry_after_s: float | None = None,
        may_have_created: bool = False,
    ) -> None:
        super().__init__(f"{fault}: {detail}")
        self.fault = fault
        self.detail = detail
        self.scope = scope
        self.retry_after_s = retry_after_s
        self.may_have_created = may_have_created
