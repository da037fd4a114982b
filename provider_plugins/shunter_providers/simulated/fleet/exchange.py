"""Carries what a played agent says to the service, with the faults that the settings ask for."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from shunter_providers.simulated.fleet.line import Line, Reply
from shunter_providers.simulated.fleet.played import Birth, Played
from shunter_providers.simulated.settings import FleetSettings

_SYNC: Final = "/v1/node/sync"
_GRANTS: Final = "/v1/node/grants"
_ADDRESS_GOOD_FOR_S: Final = 0.5


class Exchange:
    """Shared by all agents of a fleet."""

    def __init__(self, manner: FleetSettings, now: Callable[[], float]) -> None:
        self._manner = manner
        self._now = now
        self._addresses: dict[str, tuple[float, str]] = {}

    async def sync(self, agent: Played, line: Line) -> None:
        """One exchange."""
        manner, asked_at = self._manner, self._now()
        body, base, headers = agent.message(asked_at), self.base_of(agent.birth), headers_of(agent.birth)
        if manner.late and random.random() < manner.late:
            await asyncio.sleep(manner.late_s)
        if manner.lost and random.random() < manner.lost:
            await line.say(base, _SYNC, headers, body)
            agent.not_heard(0, self._now())
            return
        if manner.duplicated and random.random() < manner.duplicated:
            await line.call(base, "POST", _SYNC, headers, body)
        reply = await line.call(base, "POST", _SYNC, headers, body)
        if reply.status == 200:
            agent.hear(json.loads(reply.body), asked_at, self._now())
        else:
            agent.not_heard(reply.status, self._now())

    async def store(self, agent: Played, line: Line) -> bool:
        """Put up what is at the head of the agent's uploads; whether it is stored, or given up."""
        upload = agent.uploads[0]
        reply = await self._put(agent.birth, line, upload.key, upload.body)
        if 200 <= reply.status < 300:
            agent.uploaded(upload, self._now())
            return True
        agent.not_stored(reply.status, self._now())
        return bool(reply.status) and reply.status < 500

    async def _put(self, birth: Birth, line: Line, key: str, body: bytes) -> Reply:
        base = self.base_of(birth)
        asked: dict[str, Any] = {"put": [key], "get": []}
        reply = await line.call(base, "POST", _GRANTS, headers_of(birth), json.dumps(asked).encode())
        if reply.status != 200:
            return reply
        url = json.loads(reply.body)["put"].get(key)
        if url is None:
            return Reply(403, b"")
        if not url.startswith("/"):
            base, _, url = url.partition("/v1/")
            url = f"/v1/{url}"
        digest = hashlib.sha256(body).hexdigest()
        headers = {"x-shunter-sha256": digest, "content-type": "application/octet-stream"}
        return await line.call(base, "PUT", url, headers, body)

    def base_of(self, birth: Birth) -> str:
        """Where the service is now: read again at each try, as agents do, but for all of them together."""
        file = birth.service_url_file
        if file is None:
            return birth.service_url.rstrip("/")
        known = self._addresses.get(file)
        if known is None or self._now() >= known[0] + _ADDRESS_GOOD_FOR_S:
            try:
                url = Path(file).read_text(encoding="utf-8").strip()
            except OSError:
                url = known[1] if known else ""
            known = self._addresses[file] = (self._now(), (url or birth.service_url).rstrip("/"))
        return known[1]


def headers_of(birth: Birth) -> dict[str, str]:
    """Of every request that an agent makes."""
    return {
        "authorization": f"Bearer {birth.sync_token}",
        "content-type": "application/json",
        "user-agent": "shunter-agent/played",
    }
