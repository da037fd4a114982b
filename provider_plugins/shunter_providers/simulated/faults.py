"""The fault script: which call goes wrong, and how.

A script is a list of rules. The first rule that fits a call and is due decides; how often each rule was met and has
struck is counted in the ledger, so that a script plays once however many processes share the cloud.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from shunter_providers import contract
from shunter_providers.contract import ProviderError, Scope

Verb = Literal["whoami", "offers", "create", "get", "list_owned", "terminate"]


class Kind(StrEnum):
    """What goes wrong."""

    LOST_REPLY = "lost_reply"  # the work is done, the answer is lost
    HANG = "hang"  # no answer at all; the work is not done
    SLOW = "slow"  # the answer takes `delay_s`
    RATE_LIMITED = "rate_limited"  # 429, with `retry_after_s` or without
    SERVER_ERROR = "server_error"  # 5xx, nothing done
    AUTH = "auth"  # the credentials are revoked
    PAYMENT = "payment"  # the account is out of money
    NO_CAPACITY = "no_capacity"
    QUOTA = "quota"
    LATE = "late"  # create: listings and reads show the node only after `delay_s`
    TWIN = "twin"  # create: the request is carried out twice
    HALF_MADE = "half_made"  # create: an error, and a disk that bills is left
    NEVER_BOOTS = "never_boots"  # create: the node stays pending
    FAILS_TO_BOOT = "fails_to_boot"  # create: the node fails instead of running
    NO_IMAGE = "no_image"  # create: the same, and the cloud says that the image does not exist
    QUEUED = "queued"  # create: the node waits for capacity for `delay_s`, and bills nothing until then
    PREEMPTED = "preempted"  # create: the node is taken away `delay_s` after it runs
    DEARER = "dearer"  # create: billed at `factor` times the offered price
    STUCK = "stuck"  # terminate: "not yet" for `delay_s`
    LEFT_OVER = "left_over"  # terminate: the node goes, its disk stays until it is terminated too


_ONLY_FOR: Final[dict[Kind, Verb]] = {
    **dict.fromkeys(
        (
            Kind.LATE,
            Kind.TWIN,
            Kind.HALF_MADE,
            Kind.NEVER_BOOTS,
            Kind.FAILS_TO_BOOT,
            Kind.NO_IMAGE,
            Kind.QUEUED,
            Kind.PREEMPTED,
            Kind.DEARER,
            Kind.NO_CAPACITY,
            Kind.QUOTA,
        ),
        "create",
    ),
    Kind.STUCK: "terminate",
    Kind.LEFT_OVER: "terminate",
}


class Rule(BaseModel):
    """One line of a script."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fault: Kind
    verb: Verb | None = None
    """None: every verb that the fault can meet."""
    after: int = Field(default=0, ge=0)
    """Let so many fitting calls pass first."""
    times: int | None = Field(default=1, ge=1)
    """Strike so often; None: for ever."""
    probability: float = Field(default=1.0, gt=0, le=1)
    delay_s: float = Field(default=1.0, ge=0)
    retry_after_s: float | None = Field(default=None, ge=0)
    factor: float = Field(default=1.5, gt=0)
    region: str | None = None
    """Only creates in this region."""

    @model_validator(mode="after")
    def _fits_its_verb(self) -> Rule:
        wanted = _ONLY_FOR.get(self.fault)
        if wanted is not None and self.verb not in (None, wanted):
            raise ValueError(f"{self.fault} happens at {wanted} only, not at {self.verb}")
        if self.region is not None and self.verb != "create":
            raise ValueError("a region is for creates: add verb create")
        return self


class Counts(NamedTuple):
    """What the ledger keeps of a rule."""

    met: int = 0
    struck: int = 0


_RULES: Final = TypeAdapter(tuple[Rule, ...])


def read_script(file: Path, fallback: Sequence[Rule]) -> Sequence[Rule]:
    """The rules in force: those of the file where there is one.

    Raises:
        ProviderError: `INVALID`: the file is no script.
    """
    try:
        return _RULES.validate_json(file.read_bytes())
    except FileNotFoundError:
        return fallback
    except ValidationError as exc:
        raise ProviderError(contract.Fault.INVALID, f"{file}: {exc.errors(include_url=False)[0]['msg']}") from exc


def digest(rules: Sequence[Rule]) -> str:
    """Tells scripts apart: a new one counts from 0."""
    text = json.dumps([rule.model_dump(mode="json") for rule in rules], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def fits(rule: Rule, verb: Verb, region: str | None) -> bool:
    """Whether the rule speaks of this call at all."""
    verbs = (rule.verb or _ONLY_FOR.get(rule.fault) or verb,)
    return verb in verbs and rule.region in (None, region)


def strikes(rule: Rule, counts: Counts, draw: float) -> bool:
    """Whether a call that the rule fits is hit; `draw` is uniform in [0, 1)."""
    if counts.met < rule.after or (rule.times is not None and counts.struck >= rule.times):
        return False
    return draw < rule.probability


def refusal(rule: Rule) -> ProviderError | None:
    """The error of faults that end a call before anything is done."""
    row = _REFUSALS.get(rule.fault)
    if row is None:
        return None
    fault, detail, scope = row
    return ProviderError(fault, detail, scope=scope, retry_after_s=rule.retry_after_s)


_REFUSALS: Final = {
    Kind.RATE_LIMITED: (contract.Fault.RATE_LIMITED, "429 too many requests", Scope.ACCOUNT),
    Kind.SERVER_ERROR: (contract.Fault.TRANSIENT, "503 service unavailable", Scope.PROVIDER),
    Kind.AUTH: (contract.Fault.AUTH, "401 the key was revoked", Scope.ACCOUNT),
    Kind.PAYMENT: (contract.Fault.PAYMENT, "402 the account is out of money", Scope.ACCOUNT),
    Kind.NO_CAPACITY: (contract.Fault.NO_CAPACITY, "no capacity for this type here", Scope.REGION),
    Kind.QUOTA: (contract.Fault.QUOTA, "the quota of this region is spent", Scope.REGION),
}
