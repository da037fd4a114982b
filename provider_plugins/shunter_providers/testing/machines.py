"""The nodes of a fake cloud: made, seen after a while, booted, taken away, ended. The clock is the machine's own."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from shunter_providers.testing.faults import CloudFault, Strike


class Phase(StrEnum):
    """Where a machine is in its life; a fake puts it into its vendor's words."""

    PENDING = "pending"
    RUNNING = "running"
    PREEMPTED = "preempted"
    ENDING = "ending"
    GONE = "gone"


@dataclass(slots=True)
class Machine:
    """One node. Times are seconds of the monotonic clock."""

    id: str
    name: str
    order: Mapping[str, Any]
    """The request that it was made by."""
    usd_per_hour: float
    made_at: float
    visible_at: float
    up_at: float
    preempted: bool = False
    ended_at: float | None = None
    gone_at: float | None = None
    address: str = "127.0.0.1"
    """The public one."""
    port: int | None = None
    """Of its sshd, where it has one."""
    has_image: bool = True
    """Whether the image that it was ordered with exists; without it never boots, and a fake says why."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Whatever else a fake keeps of it."""

    def phase(self) -> Phase:
        """Now."""
        now = time.monotonic()
        if self.gone_at is not None and now >= self.gone_at:
            return Phase.GONE
        if self.preempted:
            return Phase.PREEMPTED
        if self.ended_at is not None:
            return Phase.ENDING
        return Phase.RUNNING if now >= self.up_at else Phase.PENDING

    def is_visible(self) -> bool:
        """Whether the API shows it yet."""
        return time.monotonic() >= self.visible_at


class Machines:
    """All of one cloud, also those that are gone. Not for several threads at once: the fake holds its lock."""

    def __init__(self, *, boot_s: float, list_lag_s: float, end_s: float) -> None:
        self.boot_s = boot_s
        self.list_lag_s = list_lag_s
        self.end_s = end_s
        self.price_factor = 1.0
        self.on_made: Callable[[Machine], None] = _nothing
        self.on_ended: Callable[[Machine], None] = _nothing
        self._all: dict[str, Machine] = {}

    def make(
        self, name: str, order: Mapping[str, Any], usd_per_hour: float, strike: Strike | None, id_: str
    ) -> Machine:
        """A new machine; the strike on this call may make it late, dear, or never boot."""
        now = time.monotonic()
        fault = strike.fault if strike is not None else None
        late_s = strike.delay_s if strike is not None and fault is CloudFault.LATE else self.list_lag_s
        dearer = 1.5 if fault is CloudFault.DEARER else 1.0
        machine = Machine(
            id=id_,
            name=name,
            order=order,
            usd_per_hour=round(usd_per_hour * self.price_factor * dearer, 6),
            made_at=now,
            visible_at=now + late_s,
            up_at=float("inf") if fault in (CloudFault.NEVER_BOOTS, CloudFault.NO_IMAGE) else now + self.boot_s,
            has_image=fault is not CloudFault.NO_IMAGE,
        )
        self._all[machine.id] = machine
        self.on_made(machine)
        return machine

    def end(self, machine: Machine, strike: Strike | None) -> None:
        """Begin its end; that of one which is ending already goes on as it was."""
        if machine.ended_at is not None:
            return
        now = time.monotonic()
        stuck_s = strike.delay_s if strike is not None and strike.fault is CloudFault.STUCK else self.end_s
        machine.ended_at, machine.gone_at = now, now + stuck_s
        self.on_ended(machine)

    def visible(self) -> Sequence[Machine]:
        """What a listing shows: also what is ending, never what is gone."""
        return [one for one in self._all.values() if one.is_visible() and one.phase() is not Phase.GONE]

    def find(self, id_: str) -> Machine | None:
        """One by its id, if reads show it; also one that is gone."""
        found = self._all.get(id_)
        return found if found is not None and found.is_visible() else None

    def existing(self) -> Sequence[Machine]:
        """The truth: everything that is not gone, shown or not."""
        return [one for one in self._all.values() if one.phase() is not Phase.GONE]

    def named(self, name: str) -> Sequence[Machine]:
        """Everything of this name that is not gone."""
        return [one for one in self.existing() if one.name == name]


def new_hex_id(length: int) -> str:
    """A random id of lower-case hexadecimal digits."""
    return secrets.token_hex((length + 1) // 2)[:length]


def _nothing(machine: Machine) -> None:
    return None
