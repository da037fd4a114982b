"""A cloud that is as bad as clouds are: late, forgetful, sometimes double, sometimes silent. Its machines are the truth
that promises are held against."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from shunter_providers.contract import (
    Availability,
    Capabilities,
    Fault,
    Identity,
    Instance,
    Intent,
    NodeCondition,
    NodeView,
    Offer,
    OfferQuery,
    Price,
    ProviderError,
    Scope,
    SelfStop,
)

from model.clock import Clock
from model.processes import gate

SIM: Final = Capabilities(
    idempotency="search_only",
    self_stop=SelfStop.ENDS_BILLING,
    visibility_delay_s=9.0,
    readiness_deadline_s=60.0,
    scan_interval_s=5.0,
    create_timeout_s=10.0,
    lease_s=300.0,
)
BOX: Final = Capabilities(
    idempotency="unique_name",
    readiness_deadline_s=60.0,
    scan_interval_s=5.0,
    create_timeout_s=10.0,
    bills=False,
    shared_hosts=True,
    lease_s=None,
)
CAPABILITIES: Final = {"sim": SIM, "box": BOX}
BOX_SLOTS: Final = 2
USD_PER_HOUR: Final = 6.0
BOOT_S: Final = 3.0
TERMINATE_S: Final = 6.0
NEVER: Final = float("inf")


@dataclass
class Machine:
    """One node as it really is. Times by the model's clock."""

    handle: str
    intent: Intent
    instance: str
    account: str
    created_at: float
    visible_at: float
    boots_at: float
    ends_at: float = NEVER
    """Its end was asked for, and this is when it comes."""
    lost_at: float = NEVER
    """It was taken away, or broke."""
    asked: bool = False
    hidden: bool = False
    """Listings show it no more, though it is still being ended and bills."""
    twin: bool = False
    partitioned: bool = False

    @property
    def token(self) -> str:
        return self.intent.token

    @property
    def launch(self) -> dict[str, Any]:
        """What the agent knows at birth."""
        read: dict[str, Any] = json.loads(self.intent.launch.files["launch.json"])
        return read

    @property
    def over_at(self) -> float:
        """When it stops to exist, and to bill."""
        return min(self.ends_at, self.lost_at)

    def exists(self, now: float) -> bool:
        return now < self.over_at

    def cost_usd(self, now: float) -> float:
        """What it has cost, if it bills."""
        bills = CAPABILITIES[self.instance].bills
        return max(0.0, min(now, self.over_at) - self.created_at) / 3600 * USD_PER_HOUR * bills


@dataclass
class Cloud:
    """Both instances: `sim` rents out machines, `box` is one host whose slots are shared."""

    clock: Clock
    on_create: Callable[[Intent, str], None]
    """Called at the moment at which a machine comes to be."""
    on_terminate: Callable[[Machine], None]
    account: str = "ours"
    machines: dict[str, Machine] = field(default_factory=dict)
    faults: dict[str, deque[str]] = field(default_factory=lambda: defaultdict(deque))
    """By verb: what happens to its next calls."""
    sent: list[tuple[float, Intent, str]] = field(default_factory=list)
    """Create requests that were sent and not carried out: when, what, and where."""
    glitch: str = ""
    """The next listing misses this machine, once."""

    def living(self) -> list[Machine]:
        """All that exists, of whatever account."""
        return [machine for machine in self.machines.values() if machine.exists(self.clock.now)]

    def of_token(self, token: str) -> list[Machine]:
        return [machine for machine in self.machines.values() if machine.token == token]

    def next_fault(self, verb: str) -> str:
        """What is to happen to this call; empty: nothing."""
        return self.faults[verb].popleft() if self.faults[verb] else ""

    def missed_by(self, instance: str) -> str:
        """The machine that this listing of the instance misses; only this one does."""
        machine = self.machines.get(self.glitch)
        if machine is None or machine.instance != instance:
            return ""
        self.glitch = ""
        return machine.handle

    def make(self, intent: Intent, instance: str, *, twin: bool = False, late: bool = False) -> Machine:
        """A machine comes to be."""
        now = self.clock.now
        self.on_create(intent, instance)
        delay_s = CAPABILITIES[instance].visibility_delay_s - 1.0 if late else 0.0
        machine = Machine(
            handle=f"{instance}-{len(self.machines)}",
            intent=intent,
            instance=instance,
            account=self.account,
            created_at=now,
            visible_at=now + max(0.0, delay_s),
            boots_at=now + BOOT_S,
            twin=twin,
        )
        self.machines[machine.handle] = machine
        return machine

    def carry_out_late(self) -> None:
        """A request whose sender died is carried out all the same, as long as it is not too old."""
        if not self.sent:
            return
        at, intent, instance = self.sent.pop(0)
        if self.clock.now < at + CAPABILITIES[instance].create_timeout_s:
            self.make(intent, instance)


class ModelProvider:
    """The plugin of one instance. It keeps the account that its credentials had when it was made."""

    capabilities: ClassVar[Capabilities]

    def __init__(self, cloud: Cloud, instance: Instance) -> None:
        self._cloud = cloud
        self._name = instance.name
        self._account = cloud.account

    async def whoami(self) -> Identity:
        return Identity(self._account)

    async def offers(self, query: OfferQuery) -> Sequence[Offer]:
        return [_OFFERS[self._name]]

    async def create(self, intent: Intent) -> str:
        sending = (self._cloud.clock.now, intent, self._name)
        self._cloud.sent.append(sending)
        await gate("before create")
        fault = self._cloud.next_fault("create")
        if sending in self._cloud.sent:
            self._cloud.sent.remove(sending)
        if fault in _REFUSALS:
            raise ProviderError(_REFUSALS[fault], f"the cloud says {fault}", scope=Scope.REGION)
        machine = self._made(intent, fault)
        await gate("after create")
        if fault == "lost_reply":
            raise ProviderError(Fault.AMBIGUOUS, "the connection was reset", may_have_created=True)
        return machine.handle

    def _made(self, intent: Intent, fault: str) -> Machine:
        known = [one for one in self._cloud.of_token(intent.token) if one.exists(self._cloud.clock.now)]
        if known and self.capabilities.idempotency == "unique_name":
            return known[0]
        machine = self._cloud.make(intent, self._name, late=fault == "late")
        if fault == "twin" and self._name == "sim":
            self._cloud.make(intent, self._name, twin=True)
        if fault == "never_boots":
            machine.boots_at = NEVER
        if fault == "boots_late":
            machine.boots_at += self.capabilities.readiness_deadline_s + 30.0
        return machine

    async def get(self, handle: str) -> NodeView:
        await gate("before get")
        if self._cloud.next_fault("get") == "server_error":
            raise ProviderError(Fault.TRANSIENT, "500")
        machine = self._cloud.machines.get(handle)
        view = NodeView(handle, None, NodeCondition.GONE)
        if machine is not None and machine.account == self._account:
            view = self._view(machine)
        await gate("after get")
        return view

    async def list_owned(self, deployment: str) -> Sequence[NodeView]:
        await gate("before list_owned")
        if self._cloud.next_fault("list_owned") == "server_error":
            raise ProviderError(Fault.TRANSIENT, "500")
        missed = self._cloud.missed_by(self._name)
        now = self._cloud.clock.now
        views = [
            self._view(machine)
            for machine in self._cloud.living()
            if machine.instance == self._name
            and machine.account == self._account
            and machine.visible_at <= now
            and machine.handle != missed
            and not machine.hidden
        ]
        await gate("after list_owned")
        return views

    async def terminate(self, handle: str) -> bool:
        await gate("before terminate")
        fault = self._cloud.next_fault("terminate")
        if fault in _TERMINATE_REFUSALS:
            raise ProviderError(_TERMINATE_REFUSALS[fault], fault, retry_after_s=2.0)
        machine = self._cloud.machines.get(handle)
        if machine is not None and machine.account == self._account:
            self._end(machine, fault)
        await gate("after terminate")
        if fault == "lost_reply":
            raise ProviderError(Fault.AMBIGUOUS, "the connection was reset")
        # As some clouds do: the answer is that of the request, not that of the end.
        return True

    def _end(self, machine: Machine, fault: str) -> None:
        now = self._cloud.clock.now
        if not machine.exists(now):
            return
        if not machine.asked:
            self._cloud.on_terminate(machine)
        machine.asked = True
        machine.hidden = fault == "hidden"
        machine.ends_at = min(machine.ends_at, now + (40.0 if fault in ("stuck", "hidden") else TERMINATE_S))

    def _view(self, machine: Machine) -> NodeView:
        now = self._cloud.clock.now
        if not machine.exists(now) or now < machine.visible_at:
            return NodeView(machine.handle, None, NodeCondition.GONE)
        condition = NodeCondition.PENDING if now < machine.boots_at else NodeCondition.RUNNING
        rate = USD_PER_HOUR if self.capabilities.bills else None
        return NodeView(machine.handle, machine.token, condition, addresses={}, billed_usd_per_hour=rate)

    async def close(self) -> None:
        """Nothing is held open."""


class SimProvider(ModelProvider):
    """Rents out machines."""

    capabilities: ClassVar[Capabilities] = SIM


class BoxProvider(ModelProvider):
    """One host whose slots are shared."""

    capabilities: ClassVar[Capabilities] = BOX


PLUGINS: Final[Mapping[str, type[ModelProvider]]] = {"sim": SimProvider, "box": BoxProvider}
_OFFERS: Final = {
    "sim": Offer(
        instance_type="gpu-1",
        region="eu-1",
        jurisdiction="DE",
        price=Price(gpu_usd_per_hour=USD_PER_HOUR),
        gpu_model="H100",
        gpus=1,
        gpu_memory_gib=80.0,
        cpus=8,
        memory_gib=64.0,
        availability=Availability.AVAILABLE,
    ),
    "box": Offer(
        instance_type="box",
        region="here",
        jurisdiction="",
        price=Price(billed=False),
        cpus=8,
        memory_gib=64.0,
        cpu_slots=BOX_SLOTS,
        availability=Availability.AVAILABLE,
    ),
}
_REFUSALS: Final = {
    "no_capacity": Fault.NO_CAPACITY,
    "rate_limited": Fault.RATE_LIMITED,
    "server_error": Fault.TRANSIENT,
}
_TERMINATE_REFUSALS: Final = {
    "rate_limited": Fault.RATE_LIMITED,
    "server_error": Fault.TRANSIENT,
    "unauthorized": Fault.AUTH,
}
