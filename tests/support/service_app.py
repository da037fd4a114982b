"""The API in this process over a real store, so that tests reach both its door and its rows."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from shunter_schemas.ids import new_id
from shunter_service.app import create_app
from shunter_service.context import Service, open_service
from shunter_service.node.node_door import NodeDoor
from shunter_service.server import make_server
from shunter_service.settings import ServiceSettings
from shunter_store.installation import api_keys
from shunter_store.installation.settings import DataSettings, ProviderSettings
from shunter_store.sql.database import Database
from support.documents import tiny_lm
from support.worker_part import WorkerPart

KEY = "shk_the-key-of-the-tests"
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class App:
    """A client with a key, and what lies behind the door."""

    http: httpx.AsyncClient
    service: Service

    @property
    def database(self) -> Database:
        return self.service.db

    def worker_part(self, job_id: str) -> WorkerPart:
        """The hand that moves a job, in place of a worker and a node."""
        return WorkerPart(self.service.db, self.service.objects, job_id)

    async def submit(
        self, document: dict[str, Any] | None = None, headers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """The job that the API answers to a document."""
        answer = await self.http.post("/v1/jobs", json=document or tiny_lm(), headers=headers)
        assert answer.status_code == 201, answer.text
        body: dict[str, Any] = answer.json()
        return body

    def add_key(
        self, *, project: str = "default", scopes: tuple[str, ...] = ("jobs:read", "jobs:write")
    ) -> dict[str, str]:
        """Headers with another key."""
        secret = f"shk_{new_id('key')}"
        self.database.write(lambda conn: api_keys.add(conn, secret, "another", scopes, project))
        return {"Authorization": f"Bearer {secret}"}


@asynccontextmanager
async def running_app(data_dir: Path, database_url: str, **settings: Any) -> AsyncIterator[App]:
    """The application over a migrated database, from start to shutdown."""
    providers = {"local": ProviderSettings(plugin="local"), "cloud": ProviderSettings(plugin="cloud")}
    data = DataSettings(data_dir=data_dir, database_url=database_url, providers=providers)
    service = open_service(data, ServiceSettings(**{"tail_every_s": 0.02, **settings}))
    service.db.write(lambda conn: api_keys.add(conn, KEY, "tests", ["jobs:read", "jobs:write"]))
    application = NodeDoor(create_app(service), service)
    transport = httpx.ASGITransport(application, raise_app_exceptions=False)  # type: ignore[arg-type]  # two spellings of ASGI
    headers = {"Authorization": f"Bearer {KEY}"}
    # Not the application's own life span: its cancel scope may not be left in another task, as fixtures are.
    service.tailer.start()
    service.listeners.start()
    try:
        async with httpx.AsyncClient(
            transport=transport, base_url="http://shunter", headers=headers, timeout=30
        ) as http:
            yield App(http, service)
    finally:
        await service.close()


@asynccontextmanager
async def served_app(data_dir: Path, database_url: str, **settings: Any) -> AsyncIterator[App]:
    """The application behind a real HTTP server on loopback, in this event loop: for streams and lost clients."""
    providers = {"local": ProviderSettings(plugin="local")}
    data = DataSettings(data_dir=data_dir, database_url=database_url, providers=providers)
    service = open_service(data, ServiceSettings(**{"tail_every_s": 0.02, **settings}))
    service.db.write(lambda conn: api_keys.add(conn, KEY, "tests", ["jobs:read", "jobs:write"]))
    server = make_server(service)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve([listener]))
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{listener.getsockname()[1]}",
            headers={"Authorization": f"Bearer {KEY}"},
            timeout=30,
            trust_env=False,
        ) as http:
            try:
                yield App(http, service)
            finally:
                server.should_exit = True
                await asyncio.wait_for(serving, 10)
