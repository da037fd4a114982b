"""A price that rises between the plan and the node, through real steps: what is made was planned at its price."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from shunter_providers.contract import Price
from shunter_providers.instances import make_instances
from shunter_providers.registry import Registry
from shunter_schemas.job import load_job
from shunter_schemas.states import NodeState
from shunter_store.installation.settings import ProviderSettings
from shunter_store.job import events
from shunter_store.node import ledger
from shunter_store.node.ledger import NodeRow
from shunter_store.sql.database import Database
from shunter_workers import offers
from shunter_workers.accounts import Accounts
from shunter_workers.settings import WorkerSettings
from shunter_workers.staff import make_stepper
from shunter_workers.stepping import Stepper
from support.documents import tiny_lm
from support.store_rows import claim_job, new_job, reread

BARE = {"nodes": "bare", "types": [{"name": "cpu-2", "usd_per_hour": 1.0, "cpu_slots": 2}]}


@pytest.fixture
def later_price() -> float:
    """USD an hour from the second look on; at the first, when the job is planned, it is 1."""
    return 1.0


@pytest.fixture
async def stepper(
    tmp_path: Path, database: Database, later_price: float, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Stepper]:
    monkeypatch.setattr(offers, "QUOTED_WITHIN_S", 0.0)
    providers = {"sim": ProviderSettings(plugin="simulated", settings=BARE)}
    registry = Registry(make_instances(providers, tmp_path, deployment="abcdef"))
    provider = registry.get("sim")
    listed, looks = provider.offers, 0

    async def at_the_markets_price(query: Any) -> Any:
        nonlocal looks
        looks += 1
        price = Price(gpu_usd_per_hour=1.0 if looks == 1 else later_price)
        return [replace(one, price=price) for one in await listed(query)]

    provider.offers = at_the_markets_price  # type: ignore[method-assign]
    settings = WorkerSettings(data_dir=tmp_path, providers=providers)
    yield make_stepper(settings, database, registry, Accounts(registry), "abcdef")
    await registry.close()


async def made_node(database: Database, stepper: Stepper, job_id: str) -> NodeRow:
    """Step until there is a node."""
    for _ in range(100):
        await stepper.step(claim_job(database, job_id))
        for node in database.read(lambda conn: ledger.of_job(conn, job_id)):
            if node.handle is not None:
                return node
        await asyncio.sleep(0.1)  # a back-off of a second is by the database's clock
    raise AssertionError("no node was made")


@pytest.mark.parametrize("later_price", [1.5])
async def test_a_dearer_node_is_not_made_until_it_is_planned_at_its_price(database: Database, stepper: Stepper) -> None:
    job = new_job(database, spec=load_job({**tiny_lm(), "limits": {"max_cost_usd": 100.0}}).model_dump(mode="json"))

    node = await made_node(database, stepper, job.id)

    told = [event for event in database.read(lambda conn: events.page(conn, job.id)) if "price_refused" in event.type]
    assert [(event.data["planned_usd_per_hour"], event.data["usd_per_hour"]) for event in told] == [(1.0, 1.5)]
    assert (node.state, node.billed_usd_per_hour) == (NodeState.BOOTING, 1.5)
    assert (reread(database, job.id).plan or {})["usd_per_hour"] == 1.5


@pytest.mark.parametrize("later_price", [1.05])
async def test_a_rise_within_the_tolerance_is_billed_from_the_first_moment(
    database: Database, stepper: Stepper
) -> None:
    job = new_job(database, spec=load_job({**tiny_lm(), "limits": {"max_cost_usd": 100.0}}).model_dump(mode="json"))

    node = await made_node(database, stepper, job.id)

    assert (node.state, node.billed_usd_per_hour) == (NodeState.BOOTING, 1.05)
