"""Names that nobody offers are told before all else, with the nearest that there is."""

from __future__ import annotations

from typing import Any

import pytest
from shunter_planner import Candidate, Facts, History, Refusal, plan
from shunter_providers.contract import Availability, Offer, Price
from shunter_schemas.job import load_job


def offer(model: str, region: str, usd_per_hour: float) -> Candidate:
    return Candidate(
        "alpha",
        Offer(
            instance_type=f"8x{model}-{region}",
            region=region,
            jurisdiction="",
            price=Price(gpu_usd_per_hour=usd_per_hour),
            gpu_model=model,
            gpus=8,
            gpu_memory_gib=80.0,
            cpus=128,
            memory_gib=1024.0,
            disk_gib=2000.0,
            availability=Availability.AVAILABLE,
        ),
    )


OFFERS = (offer("H100", "us-east-1", 32.0), offer("A100", "eu-west-1", 16.0), offer("B200", "", 64.0))


def refused(resources: dict[str, Any], **parts: Any) -> str:
    document = load_job(
        {
            "version": "1",
            "name": "job",
            "source": {"kind": "git", "url": "https://example.org/x.git"},
            "workload": {"kind": "script", "entrypoint": "train.py"},
            "resources": {"gpus": 8, **resources},
            **parts,
        }
    )
    answer = plan(document, OFFERS, Facts(instances=("alpha",)), History())
    assert isinstance(answer, Refusal), answer
    return answer.detail


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (["H1000"], "resources.gpu_models: nobody offers H1000 (did you mean H100?); "),
        (["foo"], "resources.gpu_models: nobody offers foo (there are: A100, B200, H100); "),
    ],
)
def test_a_gpu_model_that_nobody_offers(wanted: list[str], words: str) -> None:
    assert refused({"gpu_models": wanted}).startswith(f"no offer takes this job: {words}")


def test_a_region_that_nobody_offers() -> None:
    detail = refused({}, placement={"regions": ["us-est-1"]})

    assert "placement.regions: nobody offers us-est-1 (did you mean us-east-1?)" in detail


def test_a_name_that_somebody_offers_is_no_miss() -> None:
    detail = refused({"gpu_models": ["h100"]}, placement={"regions": ["eu-west-1"]})

    assert "nobody offers" not in detail


def test_where_all_cost_too_much_the_cheapest_comes_first() -> None:
    detail = refused({}, limits={"max_usd_per_hour": 1.0})

    assert detail.startswith("no offer takes this job: alpha 8xA100-eu-west-1: 16.00 USD an hour, at most 1.00 allowed")
    assert detail.index("8xH100") < detail.index("8xB200")
