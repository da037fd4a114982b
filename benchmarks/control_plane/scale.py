"""Thousands of jobs that run at once on one `shunter up`, and what happens when everything is killed.

Are all of them observed, how soon does a cancel or an end show, what does each part use, does the worker group grow?

    python benchmarks/control_plane/scale.py --jobs 10000 --seed 100 --minutes 10 --database postgresql --kill
    python benchmarks/control_plane/scale.py --jobs 1000 --minutes 10 --kill        # the embedded default

With `--seed N` only N jobs are submitted: once they run everything is killed, the others are written as such a kill
would have left them (`scale_seed.py`), and it is started again. `--report FILE` keeps the figures (`.md`, else JSON).

Agents are played by one fleet process that speaks real HTTP: it, the API, the workers, the database and this script
share the machine, so the processor time of each is printed apart. Metrics come with the exchanges; logs at a job's end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import scale_figures as figures
import scale_seed
from http_load import request, send_all
from scale_report import Report
from scale_site import PARTS, Site, site
from shunter_store.installation import activity
from shunter_store.sql.database import Database

EXAMPLE = Path(__file__).parents[2] / "examples" / "tiny-lm-ddp.json"
_BURST = 1000
_SAMPLE_S = 10.0


@dataclass(slots=True)
class Minutes:
    """What was seen while the jobs ran."""

    unheard_s: list[float] = field(default_factory=list)
    running: list[int] = field(default_factory=list)
    worker_mb: list[tuple[float, float]] = field(default_factory=list)
    used: dict[str, float] = field(default_factory=dict)
    rates: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


def main() -> None:
    options = _parse()
    told = Report(f"{options.jobs} jobs, {options.database}, {os.cpu_count()} cores")
    home = Path(tempfile.mkdtemp(prefix="shunter-scale-"))
    home.chmod(0o755)  # PostgreSQL has an owner of its own
    try:
        with site(home, options.database, _cloud(options), _settings(options), options.api_processes) as made:
            database = Database.connect(made.database_url, readers=2)
            try:
                measure(made, database, options, told)
            finally:
                database.close()
    finally:
        if options.report is not None:
            told.write(options.report)
        if options.keep:
            print(f"kept: {home}")
        else:
            shutil.rmtree(home, ignore_errors=True)


def measure(made: Site, database: Database, options: argparse.Namespace, told: Report) -> None:
    """All figures, printed as they come."""
    print(f"{told.title}, load {told.load:.1f}", flush=True)
    burst = min(options.seed or _BURST, options.jobs)
    before = made.used_s()
    took_s = run_up(made, database, burst)
    told.say(f"{burst} jobs submitted at once, all running after", f"{took_s:.1f} s", "1,000 in 120 s")
    _say_used(told, made, before, took_s, burst, "job")
    if options.seed and options.jobs > burst:
        seed(made, database, options.jobs - burst, told)
    elif options.jobs > burst:
        took_s = run_up(made, database, options.jobs)
        told.say(f"{options.jobs - burst} more, all running after", f"{took_s:.0f} s")
    if options.minutes:
        since = time.time()
        seen = watch(made, database, options)
        report(database, seen, since, told)
    if options.kill:
        kill_and_restart(made, database, told)


def seed(made: Site, database: Database, count: int, told: Report) -> None:
    """Kill everything, write so many running jobs more, and start again."""
    time.sleep(2.0)  # what the fleet keeps of its agents is written a moment later
    made.kill_everything(and_agents=True)
    made.restart_database()
    began = time.monotonic()
    scale_seed.multiply(database, made.books, made.data_dir / "signing-key", count)
    print(f"{count} running jobs written in {time.monotonic() - began:.0f} s", flush=True)
    start_again(made, database, time.time(), told, f"{count} written")


def run_up(made: Site, database: Database, jobs: int) -> float:
    """Submit until so many run; how long it took."""
    began = time.monotonic()
    have = sum(figures.states(database).values())
    submit(made, jobs - have)
    wait_for(
        lambda: figures.states(database)["running"] >= jobs, 3600, "all run", show=lambda: figures.states(database)
    )
    return time.monotonic() - began


def submit(made: Site, count: int, run_s: float | None = None) -> None:
    """So many jobs as fast as the API takes them."""
    document: dict[str, Any] = json.loads(EXAMPLE.read_text())
    document["limits"] = {"max_duration_s": 86_400}
    if run_s is not None:
        document["environment"] = {"variables": {"SIMULATED_RUN_S": str(run_s)}}
    body = json.dumps(document).encode()
    _send(made, [("POST", "/v1/jobs", body)] * count, 201)


def watch(made: Site, database: Database, options: argparse.Namespace) -> Minutes:
    """Let them run for so long, while some are cancelled, some end, and others come."""
    seen = Minutes()
    used, began = made.used_s(), time.monotonic()
    counted = activity.read(made.data_dir / "run")
    until, next_sample, next_churn = began + 60 * options.minutes, began, began
    while (now := time.monotonic()) < until:
        if now >= next_churn and options.churn:
            next_churn += 1.0
            churn(made, database, options.churn)
        if now >= next_sample:
            next_sample += _SAMPLE_S
            heard = figures.seen(database)
            seen.unheard_s.append(heard.unheard_s)
            seen.running.append(heard.running)
            seen.worker_mb.append((now - began, made.worker_pss_mb()))
        time.sleep(max(0.0, min(next_sample, next_churn if options.churn else next_sample, until) - time.monotonic()))
    seen.seconds = time.monotonic() - began
    seen.used = {part: made.used_s()[part] - used[part] for part in PARTS}
    seen.rates = _rates(counted, activity.read(made.data_dir / "run"))
    time.sleep(15)  # what was cancelled last is released
    return seen


def churn(made: Site, database: Database, count: int) -> None:
    """So many are cancelled, as many come, and as many come that end by themselves."""
    ids = figures.running_ids(database, 500)
    chosen = random.sample(ids, min(count, len(ids)))
    _send(made, [("POST", f"/v1/jobs/{job_id}/cancel", b"") for job_id in chosen], None)
    submit(made, count)
    submit(made, count, run_s=20.0)


def report(database: Database, seen: Minutes, since: float, told: Report) -> None:
    """The table."""
    told.say("running at once, least and most", f"{min(seen.running)} and {max(seen.running)}")
    told.say("not heard of for, at most", f"{max(seen.unheard_s):.1f} s", "< 15 s")
    told.say("cancel -> nodes released", str(figures.cancel_to_released(database, since)), "p99 < 10 s")
    told.say("ranks done -> the job's outcome", str(figures.done_to_outcome(database, since)), "p99 < 5 s")
    told.say("ranks up -> running", str(figures.up_to_running(database, since)), "p99 < 5 s")
    sizes = [size for _, size in seen.worker_mb]
    told.say("worker group PSS, least and most", f"{min(sizes):.0f} and {max(sizes):.0f} MB", "< 400 MB")
    told.say("its slope over the second half", f"{_slope_mb_an_hour(seen.worker_mb):+.1f} MB an hour", "none")
    exchanges = max(1.0, seen.rates["exchanges"] * seen.seconds)
    for name in ("exchanges", "statements", "transactions", "steps", "hints_sent", "scans"):
        told.say(f"{name} a second", f"{seen.rates[name]:.1f}")
    for part in PARTS:
        per_exchange_ms = 1000 * seen.used[part] / exchanges
        told.say(
            f"processor, {part}", f"{seen.used[part] / seen.seconds:.1%} of one, {per_exchange_ms:.2f} ms an exchange"
        )


def kill_and_restart(made: Site, database: Database, told: Report) -> None:
    """SIGKILL to all of it at once, and start again."""
    before, creates = figures.generations(database), _creates(made)
    made.kill_everything()
    killed_at = time.time()
    made.restart_database()
    start_again(made, database, killed_at, told, f"all {len(before)} killed")
    after = figures.generations(database)
    kept = sum(after.get(job_id) == generation for job_id, generation in before.items())
    lost = f"{kept} of {len(before)}, {figures.disturbed(database)} recovered, {_creates(made) - creates} nodes made"
    told.say("still running in the same generation", lost, "all, 0, 0")


def start_again(made: Site, database: Database, killed_at: float, told: Report, what: str) -> None:
    """How long until every node was heard."""
    before = made.used_s()
    ready_s = made.start_up()
    began = time.time() - ready_s
    wait_for(lambda: _all_heard(database, killed_at), 600, "all are heard", show=lambda: figures.seen(database))
    took_s = time.time() - began
    told.say(f"{what}, started again: ready after {ready_s:.1f} s, all heard after", f"{took_s:.1f} s", "< 60 s")
    _say_used(told, made, before, took_s, figures.seen(database).running, "job")


def wait_for(done: Callable[[], bool], within_s: float, what: str, *, show: Callable[[], object]) -> None:
    """Look until it is so; says how it stands every half a minute."""
    until, next_show = time.monotonic() + within_s, time.monotonic() + 30
    while not done():
        if time.monotonic() > until:
            raise RuntimeError(f"{what}: not within {within_s:.0f} s: {show()}")
        if time.monotonic() > next_show:
            next_show += 30
            print(f"    … {show()}", file=sys.stderr, flush=True)
        time.sleep(0.5)


def _all_heard(database: Database, since: float) -> bool:
    return figures.seen(database).all_heard_after > since


def _creates(made: Site) -> int:
    with sqlite3.connect(next(made.data_dir.rglob("sim.sqlite")), timeout=60) as books:
        return int(books.execute("SELECT count(*) FROM entries WHERE kind = 'node'").fetchone()[0])


def _send(made: Site, asked: list[tuple[str, str, bytes]], expect: int | None) -> None:
    headers = {"authorization": f"Bearer {made.api_key}", "content-type": "application/json"}
    statuses: Counter[int] = Counter()
    requests = [request(method, path, headers, body) for method, path, body in asked]
    asyncio.run(send_all(made.url, requests, statuses, concurrency=min(16, max(1, len(requests)))))
    if expect is not None and set(statuses) - {expect}:
        raise RuntimeError(f"answers: {dict(statuses)}")


def _rates(before: list[activity.Activity], after: list[activity.Activity]) -> Counter[str]:
    known = {one.pid: one for one in before}
    found: Counter[str] = Counter()
    for one in after:
        if one.pid in known and one.at > known[one.pid].at:
            passed_s = one.at - known[one.pid].at
            found.update({k: (v - known[one.pid].counts.get(k, 0.0)) / passed_s for k, v in one.counts.items()})
    return found


def _slope_mb_an_hour(sizes: list[tuple[float, float]]) -> float:
    """By least squares."""
    half = sizes[len(sizes) // 2 :]
    at, size = sum(t for t, _ in half) / len(half), sum(s for _, s in half) / len(half)
    spread = sum((t - at) ** 2 for t, _ in half)
    return 3600 * sum((t - at) * (s - size) for t, s in half) / spread if spread else 0.0


def _say_used(told: Report, made: Site, before: dict[str, float], seconds: float, count: int, what: str) -> None:
    used = made.used_s()
    parts = ", ".join(f"{part} {1000 * (used[part] - before[part]) / count:.0f}" for part in PARTS)
    total = sum(used[part] - before[part] for part in PARTS)
    told.say(f"processor ms a {what}", f"{parts}; {total / seconds:.0%} of one in all")


def _cloud(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "nodes": "fleet",
        "boot_s": 5.0,
        "types": [{"name": "cpu-2", "usd_per_hour": 0.1, "cpu_slots": 2, "nodes_per_region": 100_000}],
        "regions": [{"name": "eu-sim", "jurisdiction": "DE"}],
        "fleet": {
            "step_s": options.step_s,
            "log_every_s": options.log_every_s,
            "connections": options.connections,
            "ears": not options.no_ears,
        },
    }


def _settings(options: argparse.Namespace) -> str:
    asked = {"quiet_s": options.quiet_s, "slowest_s": options.slowest_s}
    pace = ", ".join(f"{name} = {value}" for name, value in asked.items() if value is not None)
    return f"pace = {{{pace}}}" if pace else ""


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=2.0, help="0: only the start, and the kill")
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--churn", type=int, default=1, help="cancelled, submitted and ended jobs a second, each")
    parser.add_argument("--kill", action="store_true", help="at the end, kill everything and start it again")
    parser.add_argument("--step-s", type=float, default=5.0, help="of the trainings: each step is a metric point")
    parser.add_argument("--log-every-s", type=float, default=3600.0, help="each log chunk is two requests more")
    parser.add_argument("--connections", type=int, default=128, help="that the agents share")
    parser.add_argument("--no-ears", action="store_true", help="agents hear at their exchanges alone, as older ones do")
    parser.add_argument("--quiet-s", type=float, help="the setting `pace.quiet_s`")
    parser.add_argument("--slowest-s", type=float, help="the setting `pace.slowest_s`")
    parser.add_argument("--api-processes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0, help="submit so many, and write the others")
    parser.add_argument("--report", type=Path, help="keep the figures in this file")
    parser.add_argument("--keep", action="store_true", help="leave the data directory")
    return parser.parse_args()


if __name__ == "__main__":
    main()
