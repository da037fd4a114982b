"""Whatever is offered and whatever fails, a job that must stay in a jurisdiction is never planned out of it, and no
plugin sends a create call elsewhere than its offer says. Every plugin of a cloud that is installed is asked."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shunter_planner import Candidate, plan
from shunter_planner.values import Block, Facts, History, Plan
from shunter_providers.contract import Availability, Instance, Launch, Offer, OfferQuery, Price, Provider, Scope
from shunter_providers.jurisdictions import EEA, EU
from shunter_providers.testing import Unpaced, WireCloud, make_intent
from shunter_schemas.ids import new_deployment_id
from shunter_schemas.parse import parse_job
from shunter_schemas.states import Reason
from support.clouds.accounts import FAKES
from support.documents import body

SECRET: Final = "a-secret-of-some-length"
SEVERAL_PLACES: Final[Mapping[str, Mapping[str, Any]]] = {
    "aws": {"regions": ["us-east-1", "eu-central-1"]},
    "azure": {"regions": ["eastus", "westeurope"]},
}
PLACES = ("", "DE", "FR", "RO", "NO", "IS", "GB", "CH", "US", "CA", "JP", "EU", "EEA", "XX")
CLOUDS: Final[Mapping[str, EntryPoint]] = {
    one.name: one
    for one in entry_points(group="shunter.providers")
    if one.value.startswith("shunter_providers.clouds.")
}

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


def document(wanted: str, **resources: int) -> dict[str, Any]:
    return {
        "version": "1",
        "name": "stays",
        "workload": {"kind": "script", "launcher": "plain", "command": ["true"]},
        "resources": resources or {"cpu_processes": 1},
        "placement": {"jurisdictions": [wanted]},
    }


def all_choices(market: Sequence[Candidate], reach: Sequence[Scope], asked: dict[str, Any]) -> list[str]:
    """Where the job is planned to one time after the other, while whatever was chosen fails as far as is drawn."""
    job = parse_job(body(asked))
    instances = tuple({candidate.instance for candidate in market})
    blocks: list[Block] = []
    chosen = []
    for scope in [*reach, Scope.PROVIDER]:
        answer = plan(job, market, Facts(instances=instances, blocks=tuple(blocks)), History())
        if not isinstance(answer, Plan):
            break
        chosen.append(answer.offer.jurisdiction)
        failed = answer.offer
        blocks.append(Block(answer.instance, scope, Reason.NO_CAPACITY, "full", failed.instance_type, failed.region))
    return chosen


@pytest.fixture(scope="module")
def real_market() -> Sequence[Candidate]:
    """What all clouds offer."""
    found = []
    for plugin in CLOUDS:
        with FAKES[plugin].cloud(SECRET) as cloud:
            found += [Candidate(plugin, offer) for offer in asyncio.run(offers_of(plugin, cloud))]
    return found


@settings(deadline=None)
@given(markets, reaches, st.sampled_from(["EU", "EEA", "US", "DE"]))
def test_no_failover_leads_out_of_the_jurisdiction(market: list[Candidate], reach: list[Scope], wanted: str) -> None:
    assert set(all_choices(market, reach, document(wanted))) <= allowed(wanted)


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_no_failover_between_the_clouds_that_there_are_leads_out_of_it_either(
    real_market: Sequence[Candidate], data: st.DataObject
) -> None:
    market = data.draw(st.lists(st.sampled_from(real_market), max_size=30))
    reach = data.draw(reaches)
    wanted = data.draw(st.sampled_from(["EU", "EEA", "US", "DE", "CA", "FR"]))
    resources = data.draw(st.sampled_from([{"cpu_processes": 1}, {"gpus": 1}]))

    chosen = all_choices(market, reach, document(wanted, **resources))

    assert set(chosen) <= allowed(wanted)


def test_every_plugin_of_a_cloud_has_a_fake_that_these_tests_ask() -> None:
    assert set(CLOUDS) - set(FAKES) == set()


@pytest.mark.parametrize("plugin", sorted(CLOUDS))
async def test_a_create_call_names_the_place_of_its_offer_and_no_other(plugin: str) -> None:
    with FAKES[plugin].cloud(SECRET) as cloud:
        provider = on(plugin, cloud)
        offers = await provider.offers(OfferQuery())
        places = {offer.region: offer for offer in offers if offer.jurisdiction and is_to_be_had(offer)}
        silent, strays = [], []
        for offer in places.values():
            cloud.calls.clear()
            await provider.create(make_intent(new_deployment_id(), offer, Launch(("true",), {})))
            others = {one.region for one in offers if one.jurisdiction not in ("", offer.jurisdiction)}
            strays += [(offer.region, other) for other in others if names(sent(cloud, "create"), other)]
            silent += [] if names(sent(cloud, "create", "offers"), offer.region) else [offer.region]
        if len({offer.region for offer in offers}) == 1:
            silent = []  # a cluster lies where it lies
        await provider.close()

    assert places
    assert silent == []
    assert strays == []


async def offers_of(plugin: str, cloud: WireCloud) -> Sequence[Offer]:
    provider = on(plugin, cloud)
    offers = await provider.offers(OfferQuery())
    await provider.close()
    return offers


def on(plugin: str, cloud: WireCloud) -> Provider:
    chosen = {**FAKES[plugin].settings(cloud.url, SECRET), "timeout_s": 5.0, **SEVERAL_PLACES.get(plugin, {})}
    made: Provider = CLOUDS[plugin].load()(Instance(plugin, plugin, chosen, pacer=Unpaced()))
    return made


def sent(cloud: WireCloud, *verbs: str) -> str:
    """Calls of these verbs: where they go, what they say, and what they are signed for."""
    found = [call for call in cloud.calls if (route := cloud._route(call)[0]) is not None and route.verb in verbs]
    headers = ("authorization", "host")
    told = [[call.path, str(call.query), *(call.headers.get(one, "") for one in headers)] for call in found]
    return "\n".join(" ".join([*words, call.body.decode()]) for words, call in zip(told, found, strict=True))


def names(text: str, region: str) -> bool:
    """As a word of its own."""
    return re.search(rf"(?<![A-Za-z0-9]){re.escape(region)}(?![A-Za-z0-9])", text) is not None


def is_to_be_had(offer: Offer) -> bool:
    return offer.availability not in (Availability.NONE, Availability.NO_QUOTA) and offer.capacity == "on_demand"
