"""Whatever is offered and whatever fails, a job that must stay in a jurisdiction is never planned out of it."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from shunter_planner import Candidate, plan
from shunter_planner.values import Block, Facts, History, Plan
from shunter_providers.contract import Availability, Offer, Price, Scope
from shunter_providers.jurisdictions import EEA, EU
from shunter_schemas.parse import parse_job
from shunter_schemas.states import Reason
from support.documents import body

PLACES = ("", "DE", "FR", "RO", "NO", "IS", "GB", "CH", "US", "CA", "JP", "EU", "EEA", "XX")

offers = st.builds(
    lambda name, region, place, usd, free: Offer(
        name, region, place, Price(gpu_usd_per_hour=usd), cpu_slots=2, cpus=2, availability=free
    ),
    st.sampled_from("abc"),
    st.sampled_from(["r1", "r2", "r3"]),
    st.sampled_from(PLACES),
    st.floats(0.01, 100),
    st.sampled_from(list(Availability)),
)
markets = st.lists(st.builds(Candidate, st.sampled_from(["one", "two"]), offers), max_size=12)
reaches = st.lists(st.sampled_from(list(Scope)), max_size=12)


def allowed(wanted: str) -> frozenset[str]:
    return {"EU": EU | {"EU"}, "EEA": EEA | {"EU", "EEA"}}.get(wanted, frozenset({wanted}))


def document(wanted: str) -> dict[str, Any]:
    return {
        "version": "1",
        "name": "stays",
        "workload": {"kind": "script", "launcher": "plain", "command": ["true"]},
        "resources": {"cpu_processes": 1},
        "placement": {"jurisdictions": [wanted]},
    }


@settings(deadline=None)
@given(markets, reaches, st.sampled_from(["EU", "EEA", "US", "DE"]))
def test_no_failover_leads_out_of_the_jurisdiction(market: list[Candidate], reach: list[Scope], wanted: str) -> None:
    job = parse_job(body(document(wanted)))
    blocks: list[Block] = []
    chosen = []
    for scope in [*reach, Scope.PROVIDER]:
        answer = plan(job, market, Facts(instances=("one", "two"), blocks=tuple(blocks)), History())
        if not isinstance(answer, Plan):
            break
        chosen.append(answer.offer.jurisdiction)
        failed = answer.offer
        blocks.append(Block(answer.instance, scope, Reason.NO_CAPACITY, "full", failed.instance_type, failed.region))

    assert set(chosen) <= allowed(wanted)
