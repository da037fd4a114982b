"""Processor time of an exchange of a running node, in process and of the database, by what it brings.

    python benchmarks/control_plane/exchange_cost.py [--nodes 640] [--rounds 8] [--points 1,16,200]

The jobs' metric chunks hold so many points before (`--points`), since a chunk is written anew with each point that
comes. Batches of 64, as a busy service takes them; no HTTP. SQLite always, PostgreSQL where SHUNTER_TEST_POSTGRES_URL
names a server: its own time is that of its processes. Each figure is the least of the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from api_load import DOCUMENT, database
from shunter_schemas.ids import new_id, new_node_token
from shunter_schemas.job import load_job
from shunter_schemas.node_sync import MetricPoint, Phase
from shunter_schemas.states import NodeState, State
from shunter_service.node.exchanges import LARGEST, take_all
from shunter_store import migrate
from shunter_store.installation.settings import Pace
from shunter_store.installation.signing import token_hash
from shunter_store.job import due, jobs
from shunter_store.node import ledger
from shunter_store.node.beats import Exchange
from shunter_store.node.ledger import NewNode
from shunter_store.node.sync_reading import read_request
from shunter_store.report import metrics
from shunter_store.sql.database import Database
from shunter_store.tables import job_due
from shunter_store.tables import jobs as jobs_table
from shunter_store.tables import nodes as nodes_table
from sqlalchemy import Connection, update

_TICKS: Final = os.sysconf("SC_CLK_TCK")
PACE: Final = Pace()


class Agents:
    """What the agents of so many nodes say, turn by turn."""

    def __init__(self, tokens: list[str], first_step: int) -> None:
        self._tokens = tokens
        self._turn = 0
        self._seq = 0
        self._step = first_step

    def bodies(self, *, new: bool) -> list[tuple[str, bytes]]:
        """One request of each, with a point and progress where they have something new."""
        self._turn += 1
        records = ""
        if new:
            self._seq += 2
            self._step += 1
            values = '{"loss":2.345,"lr":0.001,"tokens_per_s":1000.0}'
            at = 1_790_000_000.5 + self._turn
            points = f'{{"points":[{{"step":{self._step},"at":{at},"values":{values}}}]}}'
            progress = f'{{"step":{self._step},"values":{values}}}'
            records = (
                f'{{"seq":{self._seq - 1},"at":{at},"type":"metrics","generation":1,"data":{points}}},'
                f'{{"seq":{self._seq},"at":{at},"type":"progress","generation":1,"data":{progress}}}'
            )
        status = f'{{"phase":"running","generation":1,"ranks_running":2,"uptime_s":{self._turn}.5,"dropped":0}}'
        head = '{{"protocol":1,"node":"{}","journal_id":"j","handle":"h","status":{},"records":[{}]}}'
        return [(f"token:{token}", head.format(token, status, records).encode()) for token in self._tokens]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=640)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--points", default="1,16,200", help="that the chunks hold before")
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start; µs of processor time an exchange")
    for kind in ("sqlite", "postgresql"):
        with tempfile.TemporaryDirectory(prefix="shunter-bench-") as folder, ExitStack() as stack:
            url = stack.enter_context(database(kind, Path(folder)))
            if url is not None:
                for points in map(int, options.points.split(",")):
                    report(kind, url, options.nodes, points, options.rounds)


def report(kind: str, url: str, nodes: int, points: int, rounds: int) -> None:
    """Measure, and print a line a kind of exchange."""
    migrate.upgrade(url)
    store = Database.connect(url)
    try:
        agents = Agents(store.write(lambda conn: make_nodes(conn, nodes, points)), points)
        for new in (False, True):
            turn(store, agents, new=new)  # warm
            before = store.statements
            costs = [turn(store, agents, new=new) for _ in range(rounds)]
            mine, its = min(one for one, _ in costs), min(other for _, other in costs)
            statements = (store.statements - before) / rounds / nodes
            what = f"a point behind {points}" if new else "nothing new"
            print(f"{kind:11s} {what:20s} service {mine:6.0f}  database {its:6.0f}  statements {statements:.2f}")
    finally:
        store.close()


def turn(store: Database, agents: Agents, *, new: bool) -> tuple[float, float]:
    """One exchange of each node; µs of this process and of the database's, an exchange."""
    bodies = agents.bodies(new=new)
    database_s, began = server_s(store), time.process_time()
    for first in range(0, len(bodies), LARGEST):
        asked = [Exchange(token, read_request(body)) for token, body in bodies[first : first + LARGEST]]
        for answer in take_all(store, asked, PACE):
            if isinstance(answer, Exception):
                raise answer
            answer.model_dump_json()
    used_s = time.process_time() - began
    return 1e6 * used_s / len(bodies), 1e6 * (server_s(store) - database_s) / len(bodies)


def make_nodes(conn: Connection, count: int, points: int) -> list[str]:
    """Running jobs of one node each, with so many points; the nodes' tokens."""
    document = load_job(json.loads(DOCUMENT)).model_dump(mode="json")
    tokens = []
    for _ in range(count):
        job_id, token = new_id("job"), new_node_token("abcdef")
        jobs.insert(
            conn,
            job_id=job_id,
            project="default",
            created_by="a benchmark",
            spec=document,
            spec_text=DOCUMENT.decode(),
            name="tiny",
            labels={},
            priority=2,
        )
        tokens.append(token)
        node = NewNode(
            0, token, token_hash(f"token:{token}"), "sim", "me", {"instance_type": "cpu-2", "more": "x" * 400}
        )
        [claim] = due.claim(conn, owner="a benchmark", limit=1)
        [row] = ledger.intend(conn, claim, job_id=job_id, generation=1, nodes=[node])
        task = {"job_id": job_id, "generation": 1, "document": document, "ranks": {"world_size": 2}}
        ledger.want(conn, [row.id], phase=Phase.RUN, generation=1, assignment=task)
        given = [
            MetricPoint(step=n, at=1.79e9 + n, values={"loss": 2.5, "lr": 0.001, "tokens_per_s": 1e3})
            for n in range(points)
        ]
        metrics.add_points(conn, job_id, 1, given)
    conn.execute(update(job_due).values(next_at=None, lease_owner=None, lease_until=None))
    conn.execute(update(jobs_table).values(state=State.RUNNING))
    conn.execute(update(nodes_table).values(state=NodeState.READY, journal_id="j", handle="h"))
    return tokens


def server_s(store: Database) -> float:
    """Processor time of PostgreSQL's processes for this database; 0 on SQLite, whose time is this process's own."""
    if store.dialect == "sqlite":
        return 0.0
    asked = "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
    pids = store.read(lambda conn: list(conn.exec_driver_sql(asked).scalars()))
    return sum(_used_s(pid) for pid in pids)


def _used_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


if __name__ == "__main__":
    main()
