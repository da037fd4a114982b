"""`POST /v1/plans`: what would become of a document, over what workers wrote down."""

from __future__ import annotations

import io
import json
import tarfile
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from shunter_providers.contract import Availability, Offer, Price
from shunter_store.accounts import providers
from shunter_store.node import ledger
from support.documents import changed, tiny_lm
from support.service_app import App

H100 = Offer(
    instance_type="8xH100",
    region="eu-1",
    jurisdiction="DE",
    price=Price(gpu_usd_per_hour=24.0),
    gpu_model="H100",
    gpus=8,
    gpu_memory_gib=80.0,
    cpus=128,
    memory_gib=1600.0,
    availability=Availability.AVAILABLE,
    interconnect="rdma",
)
CPUS = Offer(
    instance_type="this-machine",
    region="here",
    jurisdiction="",
    price=Price(billed=False),
    cpus=4,
    memory_gib=16.0,
    cpu_slots=4,
)
CONFIG = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}
HERE = {"providers": ["local"]}
ON_GPUS: dict[str, Any] = {
    "strategy": {"kind": "auto"},
    "resources": {"gpus": 8},
    "limits": {},
    "placement": HERE,
    "workload.model": {"kind": "huggingface", "config": CONFIG},
    "workload.data.sequence_length": 4096,
    "workload.batch": {"global_size": 64},
    "workload.duration": {"steps": 1000},
    "workload.precision": "bf16",
}


def offering(app: App, *offers: Offer, **capabilities: Any) -> None:
    """What a worker wrote down of the instance `local`."""
    stored = [asdict(offer) for offer in offers]
    app.database.write(
        lambda conn: providers.record_health(conn, "local", "local", True, capabilities=capabilities, offers=stored)
    )


async def planned(app: App, changes: dict[str, Any]) -> dict[str, Any]:
    answer = await app.http.post("/v1/plans", json=changed(tiny_lm(), changes))
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_plan_names_strategy_place_memory_time_and_cost(lite: App) -> None:
    offering(lite, H100)

    plan = await planned(lite, ON_GPUS)

    chosen = plan["chosen"]
    assert (chosen["strategy"], chosen["provider"], chosen["instance_type"]) == ({"kind": "fsdp"}, "local", "8xH100")
    assert chosen["memory"]["need_gib"] < chosen["memory"]["available_gib"]
    assert sum(chosen["memory"]["parts_gib"].values()) == pytest.approx(chosen["memory"]["need_gib"], abs=0.01)
    assert chosen["time"]["low_s"] < chosen["time"]["duration_s"] < chosen["time"]["high_s"]
    assert chosen["cost"]["low_usd"] < chosen["cost"]["usd"] < chosen["cost"]["high_usd"]
    assert (plan["offers"], plan["rejected_by"]) == (1, {})


async def test_a_plan_holds_for_some_minutes_or_as_long_as_its_offer(lite: App) -> None:
    offering(lite, H100)
    before = datetime.now(UTC)
    usual = await planned(lite, ON_GPUS)
    until = before + timedelta(minutes=1)
    offering(lite, replace(H100, valid_until=until.timestamp()))

    short = await planned(lite, ON_GPUS)

    assert datetime.fromisoformat(usual["expires_at"]) > before + timedelta(minutes=4)
    assert abs(datetime.fromisoformat(short["expires_at"]) - until) < timedelta(seconds=1)
    assert datetime.fromisoformat(usual["as_of"]) > before - timedelta(minutes=1)


async def test_what_nothing_takes_is_answered_with_the_numbers_and_not_as_an_error(lite: App) -> None:
    offering(lite, H100)

    plan = await planned(lite, {**ON_GPUS, "strategy": {"kind": "ddp"}})

    assert "chosen" not in plan
    assert (plan["refused"]["reason"], plan["refused"]["final"]) == ("does_not_fit", True)
    (rejected,) = plan["rejected"]
    assert rejected["reason"] == "gpu_memory_needed"
    assert "strategy fsdp would need 52.6" in rejected["detail"]


async def test_nothing_is_kept_of_a_plan(lite: App) -> None:
    offering(lite, CPUS, shared_hosts=True)

    await planned(lite, {"strategy": {"kind": "auto"}})

    assert (await lite.http.get("/v1/jobs")).json()["items"] == []


async def test_slots_that_other_jobs_hold_are_not_free(lite: App, monkeypatch: pytest.MonkeyPatch) -> None:
    offering(lite, CPUS, shared_hosts=True)
    monkeypatch.setattr(ledger, "taken_slots", lambda conn, instance, kind: {0, 1, 2})

    plan = await planned(lite, {"placement": HERE})

    assert (plan["refused"]["final"], plan["rejected"][0]["reason"]) == (False, "slots_taken")


async def test_an_instance_that_no_worker_has_read_is_told_as_out_of_reach(lite: App) -> None:
    plan = await planned(lite, {"placement": HERE})

    assert plan["refused"]["final"] is False
    assert "local: no worker has read it yet" in plan["refused"]["detail"]


async def test_a_wrong_document_is_refused_as_it_would_be_when_it_is_submitted(lite: App) -> None:
    answer = await lite.http.post("/v1/plans", json=changed(tiny_lm(), {"workload.batch.global_size": 15}))

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/workload/batch/global_size"


async def test_folders_may_still_lie_on_the_authors_machine(lite: App) -> None:
    offering(lite, CPUS, shared_hosts=True)

    plan = await planned(lite, {"source": {"kind": "folder", "path": "."}, "inputs": {"a": {"from": "./data"}}})

    assert plan["chosen"]["strategy"]["kind"] == "ddp"


async def test_the_configuration_of_uploaded_weights_is_read_from_their_bundle(lite: App) -> None:
    offering(lite, H100)
    made = await lite.http.post(
        "/v1/bundles", content=archive({"config.json": CONFIG}), headers={"Content-Type": "application/gzip"}
    )
    changes = {
        **ON_GPUS,
        "workload.model": {"kind": "huggingface", "weights": "input:base"},
        "inputs": {"base": {"from": f"bundle:{made.json()['id']}"}},
    }

    plan = await planned(lite, changes)

    assert plan["chosen"]["strategy"] == {"kind": "fsdp"}
    assert plan["chosen"]["memory"]["need_gib"] == pytest.approx(52.6, abs=0.1)


async def test_a_job_shows_the_plan_of_its_attempt_with_what_was_predicted(lite: App) -> None:
    from shunter_planner import Candidate, Facts, History, Plan, plan
    from shunter_planner.values import as_json
    from shunter_schemas.job import load_job
    from shunter_store.tables import jobs
    from sqlalchemy import update

    job = await lite.submit(changed(tiny_lm(), ON_GPUS))
    answer = plan(load_job(job["spec"]), [Candidate("local", H100)], Facts(("local",)), History())
    assert isinstance(answer, Plan)
    stored = json.loads(json.dumps(as_json(answer)))
    lite.database.write(lambda conn: conn.execute(update(jobs).where(jobs.c.id == job["id"]).values(plan=stored)))

    shown = (await lite.http.get(f"/v1/jobs/{job['id']}")).json()["plan"]

    assert (shown["strategy"], shown["activation_checkpointing"]) == ("fsdp", "none")
    assert shown["why"].startswith("nothing simpler fits")
    assert shown["memory"]["need_gib"] == pytest.approx(52.6, abs=0.1)
    assert shown["time"]["steps"] == 1000
    assert shown["cost"]["usd"] > 0


def archive(files: dict[str, Any]) -> bytes:
    """A bundle with these files of JSON."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            data = json.dumps(content).encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()
