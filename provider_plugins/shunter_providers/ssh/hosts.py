"""One host of the pool as this process reaches it: a kept connection, and what was found there last."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from shunter_providers.contract import Fault, ProviderError, Scope
from shunter_providers.ssh.calling import CALL_WITHIN_S, CallFailed, HostSide
from shunter_providers.ssh.connecting import NotReached, connect
from shunter_providers.ssh.judging import Found, faults_of, read_host
from shunter_providers.ssh.settings import Host, SshSettings

_FAULTS: Final[Mapping[str, Fault]] = {
    "host_key": Fault.AUTH,
    "login": Fault.AUTH,
    "key": Fault.AUTH,
    "taken": Fault.NO_CAPACITY,
    "foreign": Fault.NO_CAPACITY,
    "python": Fault.NO_CAPACITY,
    "folder": Fault.NO_CAPACITY,
    "invalid": Fault.INVALID,
}
"""By what went wrong with a host; everything else passes."""

UNUSABLE_FOR_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at a host gave: what it is, or why it takes nothing."""

    at: float
    found: Found | None
    faults: str = ""


class PoolHost:
    """Calls to one host, over one connection that is opened when it is needed."""

    def __init__(self, host: Host, settings: SshSettings, deployment: str) -> None:
        """`deployment`: whose leases are our own; empty where nobody said."""
        self.host = host
        self._deployment = deployment
        self._settings = settings
        self._endpoint = settings.endpoint(host)
        self._side: HostSide | None = None
        self._opening = asyncio.Lock()
        self._look: Look | None = None
        self._looking = asyncio.Lock()
        self.answered_at: float | None = None
        """When it answered last, by this process's clock; None: never."""
        self._silent_since: float | None = None

    @property
    def silent_s(self) -> float:
        """For how long it has not answered anybody here; 0: it answers, or was never asked."""
        return 0.0 if self._silent_since is None else time.monotonic() - self._silent_since

    async def call(self, op: str, within_s: float = CALL_WITHIN_S, **request: Any) -> dict[str, Any]:
        """Do `op` there.

        Raises:
            ProviderError: names the host and the cause. `may_have_created` where the call went out and no answer came.
        """
        try:
            side = await self._open()
            answer = await side.call(op, within_s, **request)
        except NotReached as exc:
            self._was_silent(exc.kind == "unreachable")
            raise self._error(exc.kind, str(exc), sent=False) from exc
        except CallFailed as exc:
            self._was_silent(exc.kind in ("lost", "late"))
            raise self._error(exc.kind, str(exc), sent=exc.kind in ("lost", "late")) from exc
        self._was_silent(False)
        return answer

    async def look(self) -> Look:
        """What it is; looked at anew now and then."""
        async with self._looking:
            if self._look is None or time.monotonic() - self._look.at > self._settings.look_every_s:
                self._look = await self._look_anew()
            return self._look

    def avoid(self, reason: str) -> None:
        """Offer it to nobody for a while: it refused a node just now."""
        until = time.monotonic() + UNUSABLE_FOR_S - self._settings.look_every_s
        self._look = Look(until, None, f"{self.host.name}: {reason}")

    async def close(self) -> None:
        """Drop the connection."""
        side, self._side = self._side, None
        if side is not None:
            await side.reached.aclose()

    async def _open(self) -> HostSide:
        async with self._opening:
            if self._side is None or not self._side.reached.is_open:
                reached = await connect(self._endpoint, within_s=self._settings.connect_timeout_s)
                self._side = HostSide(reached, self._endpoint.python, self._endpoint.base)
            return self._side

    async def _look_anew(self) -> Look:
        host, began = self.host, time.time()
        try:
            facts = await self.call("look")
            others = (await self.call("standing"))["deployments"] if self._deployment else []
        except ProviderError as exc:
            return Look(time.monotonic(), None, exc.detail)
        # Half of the call's time is the way there; the program's start is part of it, so only large skews are sure.
        skew_s = float(facts["clock"]) - time.time()
        skew_s = 0.0 if began - 1.0 <= float(facts["clock"]) <= time.time() + 1.0 else skew_s
        faults = faults_of(host, facts, skew_s, self._settings.max_clock_skew_s)
        faults += [f"deployment {other} leases it" for other in others if other != self._deployment]
        if faults:
            return Look(time.monotonic(), None, f"{host.name}: {'; '.join(faults)}")
        return Look(time.monotonic(), read_host(host, facts))

    def _was_silent(self, silent: bool) -> None:
        if silent:
            self._silent_since = self._silent_since or time.monotonic()
            side, self._side = self._side, None
            if side is not None:
                side.reached.close()
        else:
            self._silent_since, self.answered_at = None, time.monotonic()

    def _error(self, kind: str, text: str, *, sent: bool) -> ProviderError:
        fault = Fault.AMBIGUOUS if sent else _FAULTS.get(kind, Fault.TRANSIENT)
        return ProviderError(fault, f"{self.host.name}: {text}", scope=Scope.OFFER, may_have_created=sent)
