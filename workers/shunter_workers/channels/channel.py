"""One node that is reached by SSH: the connection to it, for as long as the node exists.

waiting      the machine is not up, or does not answer yet
probing      is it what was offered?
uploading    the agent, the trainer, archives
started      the agent lives, and pushes to the service or through the relay
refused      the machine is no good: the job gets another one
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol

import asyncssh
from shunter_providers.contract import NodeCondition, ProviderError, SshEndpoint
from shunter_providers.ssh.calling import CallFailed, HostSide
from shunter_providers.ssh.connecting import JobKeys as InjectedKeys
from shunter_providers.ssh.connecting import NotReached, Reached, connect
from shunter_store.node.ledger import NodeRow
from shunter_store.node.node_calls import PEEK, SHELL, NodeCallRow

from shunter_workers.channels import bootstrap
from shunter_workers.channels.bootstrap import Needs, NodeRefused
from shunter_workers.channels.relay import Relay
from shunter_workers.channels.seeding import Seat, Seeder

FIRST_WAIT_S: Final = 0.5
LONGEST_WAIT_S: Final = 10.0
REACH_WITHIN_S: Final = 5.0
SILENT_S: Final = 20.0
"""An agent that pushes and was not heard for so long gets the relay too."""
LOOK_EVERY_S: Final = 5.0
SETTLES_WITHIN_S: Final = 180.0
"""Where a machine's first script brings the keys, its sshd shows the image's own and lets nobody in until then."""
_FINAL: Final = frozenset({"host_key", "login", "key"})
_SETTLING: Final = frozenset({"host_key", "login"})
_HOPELESS: Final = frozenset({"python", "folder", "start", "invalid", "forward"})

_log = logging.getLogger(__name__)


class Desk(Protocol):
    """What a channel needs of the rest of the process."""

    relay: Relay
    seeder: Seeder
    public_url: str

    async def endpoint(self, node: NodeRow) -> tuple[NodeCondition, SshEndpoint | None, Mapping[str, str]]: ...

    async def keys(self, job_id: str) -> InjectedKeys | None: ...

    async def needs(self, node: NodeRow) -> Needs: ...

    async def console(self, node: NodeRow) -> str | None: ...

    async def note(
        self, node: NodeRow, phase: str, detail: str, refused: str | None, facts: Mapping[str, Any]
    ) -> None: ...

    async def answer(self, call: NodeCallRow, answer: Mapping[str, Any] | None, error: str | None) -> None: ...


@dataclass(slots=True)
class Watched:
    """What the duty saw of the node last."""

    silent_s: float = 0.0
    leaving: bool = False


class NodeChannel:
    """Run it as a task; cancel it when the node is gone."""

    def __init__(self, desk: Desk, node: NodeRow, *, was_started: bool) -> None:
        self.node = node
        self.watched = Watched()
        self._desk = desk
        self._started = was_started
        self._facts: dict[str, Any] = {}
        self._side: HostSide | None = None
        self._endpoint: SshEndpoint | None = None
        self._strange_since: float | None = None
        self._told: tuple[str, str] = ("", "")

    async def run(self) -> None:
        """For ever."""
        wait_s = FIRST_WAIT_S
        while True:
            detail, final = "", False
            try:
                if await self._once():
                    wait_s = FIRST_WAIT_S
            except NodeRefused as exc:
                await self._refuse(str(exc))
            except NotReached as exc:
                detail, final = str(exc), exc.kind in _FINAL and not self._may_settle(exc.kind)
            except CallFailed as exc:
                detail, final = str(exc), exc.kind in _HOPELESS
            except (ProviderError, OSError, asyncssh.Error) as exc:
                detail = str(exc)
            except Exception as exc:
                _log.exception("the channel to node %s broke", self.node.token)
                detail = f"{type(exc).__name__}: {exc}"
            if detail:
                await self._failed(detail, final)
            await self._keep_console()
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    async def answer_call(self, call: NodeCallRow) -> None:
        """Do what the service asks; while there is no connection the call waits until it is void."""
        side, endpoint = self._side, self._endpoint
        if side is None or endpoint is None or not side.reached.is_open:
            return
        try:
            answer = await _CALLS[call.kind](self, side, endpoint, call.argument)
        except CallFailed as exc:
            if exc.kind not in ("lost", "late"):
                await self._desk.answer(call, None, str(exc))
            return
        await self._desk.answer(call, answer, None)

    async def _open_shell(self, side: HostSide, endpoint: SshEndpoint, argument: Mapping[str, Any]) -> dict[str, Any]:
        allowed = await side.call(
            "allow",
            token=self.node.token,
            public_key=argument["public_key"],
            expires_at=argument["expires_at"],
            authorized_keys=endpoint.authorized_keys,
        )
        return {**_shown(endpoint, await self._desk.keys(self.node.job_id)), "folder": allowed["folder"]}

    async def _peek(self, side: HostSide, endpoint: SshEndpoint, argument: Mapping[str, Any]) -> dict[str, Any]:
        return await side.call("peek", token=self.node.token)

    async def _once(self) -> bool:
        """One connection, to its end. True: it was one."""
        condition, endpoint, addresses = await self._desk.endpoint(self.node)
        if endpoint is None or condition in (NodeCondition.GONE, NodeCondition.FAILED, NodeCondition.STOPPED):
            await self._note("waiting", f"the provider says that it is {condition}")
            return False
        self._endpoint = endpoint
        reached = await connect(endpoint, await self._desk.keys(self.node.job_id))
        try:
            self._side = HostSide(reached, endpoint.python, endpoint.base)
            await self._serve(self._side, addresses)
        finally:
            self._side = None
            self._desk.seeder.leave(self.node.id)
            await reached.aclose()
        return True

    async def _serve(self, side: HostSide, addresses: Mapping[str, str]) -> None:
        needs = await self._desk.needs(self.node)
        if not self._started and not self.watched.leaving:
            await self._note("probing")
            self._facts = await bootstrap.probe(side, needs)
            await self._note("uploading")
            seat = Seat(self.node.id, side, addresses.get("private"))
            await bootstrap.bring(side, self._desk.seeder, seat, needs)
        url = await self._direct_url(side)
        self._facts["way"] = "push" if url else "relay"
        async with _Forward(side.reached, self._desk.relay) as forward:
            address = url or await forward.open()
            await self._point(side, needs, address)
            await self._hold(side, forward, pushes=bool(url))

    async def _direct_url(self, side: HostSide) -> str | None:
        """The service's address, where the node reaches it by itself."""
        if not self._desk.public_url:
            return None
        url = self._desk.public_url.rstrip("/")
        found = await side.call("reach", url=f"{url}/healthz", timeout_s=REACH_WITHIN_S)
        self._facts["reach"] = found["detail"] or "ok"
        return url if found["reached"] else None

    async def _point(self, side: HostSide, needs: Needs, url: str) -> None:
        """Have the agent live and know where the service is."""
        if self._started:
            lives = (await side.call("point", token=self.node.token, url=url))["agent_lives"]
            if not lives and needs.own_machine and not self.watched.leaving:
                raise NodeRefused("its agent has ended")
            return
        if self.watched.leaving:
            return
        await self._note("starting")
        await bootstrap.start(side, needs, url)
        self._started = True
        await self._note("started")

    async def _hold(self, side: HostSide, forward: _Forward, *, pushes: bool) -> None:
        """Until the connection is lost."""
        lost = asyncio.create_task(side.reached.wait_closed())
        try:
            while not lost.done():
                await asyncio.wait([lost], timeout=LOOK_EVERY_S)
                if pushes and self.watched.silent_s > SILENT_S and not lost.done():
                    await side.call("point", token=self.node.token, url=await forward.open())
                    pushes = False
        finally:
            lost.cancel()

    def _may_settle(self, kind: str) -> bool:
        """Whether the machine may yet become the one that it has to be: where its keys are injected. It is told nothing
        before."""
        endpoint = self._endpoint
        if endpoint is None or kind not in _SETTLING:
            return False
        if endpoint.host_keys if kind == "host_key" else endpoint.identity_file:
            return False  # nothing is injected: what it is now it is for ever
        if self._strange_since is None:
            self._strange_since = time.monotonic()
        return time.monotonic() - self._strange_since < SETTLES_WITHIN_S

    async def _failed(self, detail: str, final: bool) -> None:
        if final and not self._started:
            await self._refuse(detail)
        elif not self._started:
            await self._note("waiting", detail)
        else:
            _log.info("node %s: %s", self.node.token, detail)

    async def _keep_console(self) -> None:
        """Once, of a node that will soon be given up: nobody can read it when the node is gone."""
        phase, detail = self._told
        if self._started or self.watched.leaving or phase == "refused" or "console" in self._facts:
            return
        with suppress(ProviderError):
            told = await self._desk.console(self.node)
            if told:
                self._facts["console"] = told
                await self._desk.note(self.node, phase or "waiting", detail, None, self._facts)

    async def _refuse(self, detail: str) -> None:
        if not self.watched.leaving and self._told != ("refused", detail):
            self._told = ("refused", detail)
            await self._desk.note(self.node, "refused", detail, detail, self._facts)

    async def _note(self, phase: str, detail: str = "") -> None:
        if (phase, detail) != self._told:
            self._told = (phase, detail)
            await self._desk.note(self.node, phase, detail, None, self._facts)


_CALLS: Final = {SHELL: NodeChannel._open_shell, PEEK: NodeChannel._peek}


class _Forward:
    """A port on the node's loopback that leads to the relay; opened when it is needed."""

    def __init__(self, reached: Reached, relay: Relay) -> None:
        self._reached = reached
        self._relay = relay
        self._listener: asyncssh.SSHListener | None = None

    async def __aenter__(self) -> _Forward:
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._listener is not None:
            with suppress(asyncssh.Error, OSError):
                self._listener.close()

    async def open(self) -> str:
        """The address that the node's agent is given.

        Raises:
            CallFailed: `forward`: the host's sshd does not allow it.
        """
        if self._listener is None:
            try:
                self._listener = await self._reached.connection.start_server(
                    lambda host, port: self._relay.serve, "127.0.0.1", 0
                )
            except asyncssh.ChannelListenError as exc:
                told = "it does not reach the service, and its sshd forwards no ports (AllowTcpForwarding)"
                raise CallFailed("forward", told) from exc
        return f"http://127.0.0.1:{self._listener.get_port()}"


def _shown(endpoint: SshEndpoint, keys: InjectedKeys | None) -> dict[str, Any]:
    """The endpoint for a client that brings a key of its own: no path of ours, no private key."""
    shown = asdict(endpoint)
    known = list(endpoint.host_keys) or ([keys.host_public_key] if keys is not None else [])
    via = _shown(endpoint.via, None) if endpoint.via is not None else None
    return {**{name: shown[name] for name in ("host", "port", "user")}, "host_keys": known, "via": via}
