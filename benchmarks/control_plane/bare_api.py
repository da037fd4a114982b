"""The ceiling of `POST /v1/jobs`: the same Litestar under the same uvicorn, the same check of the document, one INSERT.

python benchmarks/control_plane/bare_api.py --fd LISTENING_SOCKET --url DATABASE
"""

from __future__ import annotations

import argparse
import socket
from typing import Any

import uvicorn
from litestar import Litestar, Request, Response, get, post
from shunter_schemas.ids import new_id
from shunter_schemas.parse import parse_posted_job
from shunter_store.sql.database import Database
from sqlalchemy import Column, Connection, MetaData, String, Table, Text, insert

TABLE = Table("bare_jobs", MetaData(), Column("id", String(40), primary_key=True), Column("document", Text))


def create_app(database: Database) -> Litestar:
    """One route that does the least with which a job could be accepted."""

    @post("/v1/jobs", status_code=201)
    async def create(request: Request[Any, Any, Any]) -> Response[bytes]:
        body = await request.body()
        parse_posted_job(body)
        job_id = new_id("job")

        def write(conn: Connection) -> None:
            conn.execute(insert(TABLE).values(id=job_id, document=body.decode()))

        await database.awrite(write)
        return Response(f'{{"id":"{job_id}"}}'.encode(), media_type="application/json")

    @get("/readyz")
    async def ready() -> Response[bytes]:
        return Response(b"{}", media_type="application/json")

    return Litestar([create, ready], openapi_config=None, logging_config=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--url", required=True)
    options = parser.parse_args()
    database = Database.connect(options.url)
    database.write(lambda conn: TABLE.create(conn, checkfirst=True))
    config = uvicorn.Config(
        create_app(database),
        http="httptools",
        loop="uvloop",
        ws="none",
        access_log=False,
        server_header=False,
        log_config=None,
        backlog=2048,
    )
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=options.fd)])
    database.close()


if __name__ == "__main__":
    main()
