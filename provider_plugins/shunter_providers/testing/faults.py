"""What goes wrong with clouds, by name; the fakes make it happen, the kit says what a plugin must make of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from shunter_providers.contract import Rate

Verb = Literal["whoami", "offers", "create", "get", "list", "terminate", "other"]
"""What a call of the vendor's API serves; `other`: something beside the contract, such as keys."""


class CloudFault(StrEnum):
    """One kind of trouble."""

    LOST_REPLY = "lost_reply"  # the work is done, the connection breaks before the answer
    FAILED_AFTER = "failed_after"  # the work is done, the answer is 5xx
    TWIN = "twin"  # the request is carried out twice
    LATE = "late"  # listings and reads show the node only after `delay_s`
    RATE_LIMITED = "rate_limited"  # 429 with Retry-After of `delay_s`
    RATE_LIMITED_SILENT = "rate_limited_silent"  # 429 that does not say for how long
    SERVER_ERROR = "server_error"  # 5xx, nothing done
    SLOW = "slow"  # the work is done at once, the answer takes `delay_s`
    JUNK = "junk"  # the work is done, the answer is HTML with status 200
    AUTH = "auth"  # the credentials were revoked
    PAYMENT = "payment"  # the account is out of money
    NO_CAPACITY = "no_capacity"
    QUOTA = "quota"
    NEVER_BOOTS = "never_boots"  # the node stays pending
    NO_IMAGE = "no_image"  # the node's image does not exist, and its state says so
    DEARER = "dearer"  # the node bills more than was offered
    STUCK = "stuck"  # the end is accepted, and takes `delay_s`


_FOR: Final[Mapping[CloudFault, Verb]] = {
    **dict.fromkeys(
        (
            CloudFault.LOST_REPLY,
            CloudFault.FAILED_AFTER,
            CloudFault.TWIN,
            CloudFault.LATE,
            CloudFault.PAYMENT,
            CloudFault.NO_CAPACITY,
            CloudFault.QUOTA,
            CloudFault.NEVER_BOOTS,
            CloudFault.NO_IMAGE,
            CloudFault.DEARER,
        ),
        "create",
    ),
    CloudFault.STUCK: "terminate",
}


@dataclass(slots=True)
class Strike:
    """A fault that waits for its call."""

    fault: CloudFault
    on: Verb | None
    """None: any call."""
    times: int
    delay_s: float

    def fits(self, verb: Verb) -> bool:
        """Whether it strikes this call."""
        return self.times > 0 and self.on in (None, verb)


def strike(fault: CloudFault, on: Verb | None, times: int, delay_s: float) -> Strike:
    """One that is complete: faults of one verb know theirs."""
    return Strike(fault, on or _FOR.get(fault), times, delay_s)


class Unpaced:
    """A pacer for tests of other things: nobody waits for a turn."""

    async def take_turn(self, bucket: str, rate: Rate, at_most_s: float) -> float:
        """Now."""
        return 0.0

    async def hold_off(self, bucket: str, rate: Rate, for_s: float) -> None:
        """Nobody is held."""
