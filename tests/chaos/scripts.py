"""Fault scripts for the simulated cloud, drawn from a seed."""

from __future__ import annotations

from random import Random
from typing import Any, Final

# Faults that a job survives; how long the slow ones take is bounded so that a run ends.
_DRAWN: Final[tuple[dict[str, Any], ...]] = (
    {"fault": "lost_reply", "verb": "create"},
    {"fault": "lost_reply", "verb": "terminate"},
    {"fault": "lost_reply", "verb": "list_owned"},
    {"fault": "slow", "verb": "create", "delay_s": 2.0},
    {"fault": "slow", "verb": "list_owned", "delay_s": 2.0},
    {"fault": "hang", "verb": "terminate"},
    {"fault": "rate_limited", "verb": "create", "retry_after_s": 1.0},
    {"fault": "rate_limited", "verb": "list_owned"},
    {"fault": "rate_limited", "verb": "terminate"},
    {"fault": "server_error", "verb": "create"},
    {"fault": "server_error", "verb": "get"},
    {"fault": "server_error", "verb": "list_owned"},
    {"fault": "server_error", "verb": "terminate"},
    {"fault": "auth", "verb": "get"},
    {"fault": "auth", "verb": "list_owned"},
    {"fault": "auth", "verb": "terminate"},
    {"fault": "no_capacity"},
    {"fault": "quota"},
    {"fault": "late", "delay_s": 1.5},
    {"fault": "twin"},
    {"fault": "half_made"},
    {"fault": "fails_to_boot"},
    {"fault": "preempted", "delay_s": 1.0},
    {"fault": "dearer", "factor": 2.0},
    {"fault": "stuck", "delay_s": 3.0},
    {"fault": "left_over"},
)
_REFUSES_ALL: Final[tuple[dict[str, Any], ...]] = (
    {"fault": "auth", "verb": "create"},
    {"fault": "payment", "verb": "create"},
)
"""A job that meets one of these goes to the other account, and has nowhere to go when it meets another one there."""


def everything(times: int) -> list[dict[str, Any]]:
    """Each fault that there is, so many times, a few calls apart."""
    return [{**rule, "after": number % 7, "times": max(1, times)} for number, rule in enumerate(_DRAWN)]


def draw(random: Random, rules: int) -> list[dict[str, Any]]:
    """So many rules; each lets a few calls pass and then strikes once or twice. And perhaps the account is refused."""
    chosen = [random.choice(_DRAWN) for _ in range(rules)]
    script = [{**rule, "after": random.randrange(4), "times": random.randrange(1, 3)} for rule in chosen]
    if random.random() < 0.5:
        script.insert(0, {**random.choice(_REFUSES_ALL), "after": random.randrange(8), "times": 1})
    return script
