"""Processes that append events: `python -m support.event_writer URL JOB_ID COUNT PROCESSES` prints their numbers."""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import closing

from shunter_store.job import events
from shunter_store.sql.database import Database


def write_events(database: Database, job_id: str, count: int) -> list[int]:
    """Append events one by one and return their numbers."""
    return [
        database.write(lambda conn, index=index: events.append(conn, job_id, "test.event", {"index": index}))  # type: ignore[misc]
        for index in range(count)
    ]


def main(url: str, job_id: str, count: int, processes: int) -> int:
    """Fork the writers, each with a connection of its own, and return how many failed."""
    children = [_fork(url, job_id, count) for _ in range(processes)]
    return sum(os.waitpid(child, 0)[1] != 0 for child in children)


def _fork(url: str, job_id: str, count: int) -> int:
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        with closing(Database.connect(url, readers=1)) as opened:
            numbers = write_events(opened, job_id, count)
        os.write(1, (" ".join(map(str, numbers)) + "\n").encode())
        status = 0
    except BaseException:
        traceback.print_exc()
    os._exit(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
