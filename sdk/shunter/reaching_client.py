"""The parts of both clients that reach a job's nodes themselves."""

from __future__ import annotations

from collections.abc import Sequence

from shunter_schemas.api import DebugReport, NodeCall

from shunter.async_transport import AsyncTransport
from shunter.flows import reaching
from shunter.transport import Transport


class ReachingClient:
    """What `Client` has of it."""

    _transport: Transport

    def open_shell(self, job_id: str, public_key: str, *, rank: int = 0, duration_s: float = 3600) -> NodeCall:
        """Let a key of yours log in on the node of a rank, and say where; raises where the node refuses or is mute."""
        return self._transport.run(reaching.open_shell(job_id, public_key, rank=rank, duration_s=duration_s))

    def peek(self, job_id: str, *, within_s: float = 10.0) -> Sequence[NodeCall]:
        """The ends of the agents' own files, of nodes that are reached by SSH; those that are late say `waiting`."""
        return self._transport.run(reaching.peek(job_id, within_s=within_s))

    def debug(self, job_id: str) -> DebugReport:
        """Everything that the service knows of a job, without secrets."""
        return self._transport.run(reaching.debug(job_id))


class AsyncReachingClient:
    """What `AsyncClient` has of it."""

    _transport: AsyncTransport

    async def open_shell(self, job_id: str, public_key: str, *, rank: int = 0, duration_s: float = 3600) -> NodeCall:
        """Let a key of yours log in on the node of a rank, and say where; raises where the node refuses or is mute."""
        return await self._transport.run(reaching.open_shell(job_id, public_key, rank=rank, duration_s=duration_s))

    async def peek(self, job_id: str, *, within_s: float = 10.0) -> Sequence[NodeCall]:
        """The ends of the agents' own files, of nodes that are reached by SSH; those that are late say `waiting`."""
        return await self._transport.run(reaching.peek(job_id, within_s=within_s))

    async def debug(self, job_id: str) -> DebugReport:
        """Everything that the service knows of a job, without secrets."""
        return await self._transport.run(reaching.debug(job_id))
