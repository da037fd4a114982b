"""`move`, `billing`, `costs`, `receipt` and `reaping` against a real API process."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from shunter import Client
from shunter_schemas.states import NodeState
from shunter_store.accounts import readings
from shunter_store.tables import nodes
from sqlalchemy import update
from support.api_process import ApiProcess
from support.command_line import shunter, written
from support.store_rows import intend, new_node


@pytest.fixture
def job_id(cli_environment: ApiProcess, tmp_path: Path) -> str:
    return shunter("submit", written(tmp_path)).stdout.strip()


@pytest.fixture
def bill(cli_environment: ApiProcess, job_id: str) -> str:
    """A node of the job that has billed 2 USD."""
    database, since = cli_environment.database, datetime.now(UTC) - timedelta(hours=1)
    [row] = intend(database, job_id, new_node(instance="cloud", billed_usd_per_hour=2.0))
    values = {"state": NodeState.READY, "handle": row.id, "intended_at": since, "created_at": since}
    values |= {"accrued_at": since, "create_deadline_at": since}
    database.write(lambda conn: conn.execute(update(nodes).where(nodes.c.id == row.id).values(**values)))
    return row.token


def test_a_move_is_asked_for_by_settings(job_id: str) -> None:
    moved = shunter("move", job_id, "--set", "strategy.kind=fsdp", "--set", "resources.cpu_processes=4", "--json")

    job = json.loads(moved.stdout)
    assert (moved.exit_code, job["move"]["strategy"]["kind"]) == (0, "fsdp")
    assert job["move"]["resources"]["cpu_processes"] == 4


def test_a_knob_of_a_strategy_alone_is_the_jobs_own_strategys(job_id: str) -> None:
    moved = shunter("move", job_id, "--set", "strategy.bucket_mb=50", "--json")

    strategy = json.loads(moved.stdout)["move"]["strategy"]
    assert (strategy["kind"], strategy["bucket_mb"]) == ("ddp", 50)


@pytest.mark.parametrize("settings", [(), ("--set", "workload.batch.global_size=8"), ("--set", "strategy")])
def test_a_move_without_anything_that_may_change_is_a_usage_error(job_id: str, settings: tuple[str, ...]) -> None:
    assert shunter("move", job_id, *settings).exit_code == 2


def test_a_move_that_cannot_work_names_the_field(job_id: str) -> None:
    refused = shunter("move", job_id, "--set", "resources.cpu_processes=3")

    assert refused.exit_code == 2
    assert "global_size" in refused.stderr


def test_the_client_moves_a_job_and_shows_its_documents(blocking_client: Client, job_id: str) -> None:
    revision = blocking_client.get(job_id).revision

    job = blocking_client.move(job_id, strategy={"kind": "fsdp"}, revision=revision)

    assert job.move is not None
    assert (job.move["strategy"]["kind"], job.document) == ("fsdp", 1)
    assert [one.version for one in blocking_client.documents(job_id)] == [1]


def test_billing_lists_what_bills_and_never_claims_more_than_was_read(cli_environment: ApiProcess, bill: str) -> None:
    told = shunter("billing")
    data = json.loads(shunter("billing", "--json").stdout)

    assert told.exit_code == 1, "nobody has read the provider"
    assert bill in told.stdout
    assert re.search(r"\d nodes? bills? \d+\.00 USD an hour", told.stdout), "with those of other tests"
    assert (data["confirmed"], bill in {node["token"] for node in data["items"]}) == (False, True)


def test_nothing_is_billing_is_said_with_the_age_of_every_reading(cli_environment: ApiProcess) -> None:
    at = datetime.now(UTC)
    database = cli_environment.database
    database.write(lambda conn: conn.execute(nodes.delete()))
    database.write(
        lambda conn: readings.record(conn, "local", account="me", bills=False, stale_after_s=60.0, at=at, strangers=[])
    )

    told = shunter("billing")

    assert told.exit_code == 0
    assert told.stdout.startswith("nothing is billing: local read ")


def test_costs_are_shown_by_what_is_asked_for(bill: str) -> None:
    by_provider = shunter("costs")
    data = json.loads(shunter("costs", "--by", "job", "--by", "day", "--since", "2h", "--json").stdout)

    assert by_provider.exit_code == 0
    assert "cloud" in by_provider.stdout
    assert data["group_by"] == ["job", "day"]
    assert data["total_usd"] == pytest.approx(sum(group["usd"] for group in data["groups"]))


def test_a_group_that_does_not_exist_is_named(bill: str) -> None:
    refused = shunter("costs", "--by", "cloud")

    assert (refused.exit_code, "label.KEY" in refused.stderr) == (2, True)


def test_reaping_is_held_and_confirmed_by_command(cli_environment: ApiProcess) -> None:
    held = shunter("reaping", "--hold", "restored by hand")
    shown = shunter("billing")
    confirmed = json.loads(shunter("reaping", "--confirm", "--json").stdout)

    assert "only reported: restored by hand" in held.stdout
    assert "shunter reaping --confirm" in shown.stdout
    assert confirmed["mode"] == "ends"
    assert shunter("reaping", "--confirm", "--hold", "x").exit_code == 2


def test_a_receipt_names_every_cause_and_node_and_adds_up(job_id: str, bill: str) -> None:
    shown = shunter("receipt", job_id)
    told = json.loads(shunter("receipt", job_id, "--json").stdout)

    lines = [line.split() for line in shown.stdout.splitlines()]
    causes = {words[0]: float(words[1]) for words in lines[1:7]}
    assert list(causes) == ["start_up", "training", "repeated", "saving", "idle", "total"]
    assert round(sum(causes.values()) - causes["total"], 6) == causes["total"] == pytest.approx(2.0, abs=0.1)
    assert [words[0] for words in lines if words and words[0] == bill] == [bill]
    assert "not final: it counts up to" in shown.stderr
    assert told["usd"] == pytest.approx(causes["total"], abs=0.1)


def test_both_clients_give_a_receipt(client: Client, job_id: str, bill: str) -> None:
    found = client.receipt(job_id)

    assert [node.token for node in found.nodes] == [bill]
    assert round(sum(one.usd for one in found.causes), 6) == found.usd > 0
