"""Lambda against a fake of its API 1.8: the whole kit, and what is peculiar to it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from shunter_providers.clouds.lambda_cloud import LambdaProvider
from shunter_providers.contract import (
    Availability,
    Fault,
    Instance,
    Intent,
    Launch,
    NodeCondition,
    OfferQuery,
    ProviderError,
    Rate,
)
from shunter_providers.pacing import OwnPacer
from shunter_providers.testing import CloudConformance, Unpaced, WireCloud, make_intent
from shunter_providers.testing.conformance import until_terminated, wait_for
from shunter_schemas.ids import new_deployment_id
from support.clouds.lambda_cloud import LambdaCloud

KEY = CloudConformance.secret


def lambda_(cloud: WireCloud, **settings: Any) -> LambdaProvider:
    chosen = {"api_key": KEY, "base_url": f"{cloud.url}/api/v1", "timeout_s": 5.0, **settings}
    return LambdaProvider(Instance("lambda", "lambda", chosen, pacer=Unpaced()))


@pytest.fixture
def cloud() -> Iterator[LambdaCloud]:
    with LambdaCloud(KEY) as running:
        yield running


async def an_intent(provider: LambdaProvider, **changes: Any) -> Intent:
    offer = (await provider.offers(OfferQuery()))[0]
    return replace(make_intent(new_deployment_id(), offer, Launch(("true",), {})), **changes)


class TestLambda(CloudConformance):
    @pytest.fixture
    def cloud(self) -> Iterator[WireCloud]:
        with LambdaCloud(KEY) as running:
            yield running

    @pytest.fixture
    def provider(self, cloud: WireCloud) -> LambdaProvider:
        return lambda_(cloud, timeout_s=1.0)

    @pytest.fixture
    def unknown_handle(self) -> str:
        return "0123456789abcdef0123456789abcdef"


async def test_offers_say_model_memory_and_place(cloud: LambdaCloud) -> None:
    provider = lambda_(cloud)

    offers = await provider.offers(OfferQuery())

    await provider.close()
    shown = {
        (o.gpu_model, o.gpus, o.gpu_memory_gib, o.region, o.jurisdiction)
        for o in offers
        if o.availability == "available"
    }
    assert shown == {
        ("H100", 1, 80, "us-west-3", "US"),
        ("H100", 1, 80, "europe-central-1", "DE"),
        ("A10", 1, 24, "us-east-1", "US"),
        ("A10", 1, 24, "asia-south-1", "IN"),
        (None, 0, 0, "europe-central-1", "DE"),
    }


async def test_a_type_that_is_free_nowhere_is_offered_as_taken(cloud: LambdaCloud) -> None:
    provider = lambda_(cloud)

    taken = [offer for offer in await provider.offers(OfferQuery()) if offer.gpus == 8]

    await provider.close()
    assert taken
    assert {offer.availability for offer in taken} == {Availability.NONE}


async def test_a_jobs_own_key_is_registered_for_its_node_and_goes_with_it(cloud: LambdaCloud) -> None:
    provider = lambda_(cloud)
    intent = await an_intent(provider, public_key="ssh-ed25519 AAAAjob job", host_key=None)
    handle = await provider.create(intent)
    registered = {key["name"] for key in cloud.keys.values()}

    await _seen(provider, intent)
    await until_terminated(provider, handle)

    await provider.close()
    assert registered == {"owner", intent.token}
    assert {key["name"] for key in cloud.keys.values()} == {"owner"}


async def test_an_account_without_a_key_is_told_what_to_do(cloud: LambdaCloud) -> None:
    cloud.keys.clear()
    provider = lambda_(cloud)
    intent = await an_intent(provider)

    with pytest.raises(ProviderError, match="ssh_key_name") as refused:
        await provider.create(intent)

    await provider.close()
    assert refused.value.fault is Fault.INVALID


async def test_user_data_brings_keys_and_agent_without_a_shell_reading_any_of_it(cloud: LambdaCloud) -> None:
    provider = lambda_(cloud)
    key = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaA==\n-----END OPENSSH PRIVATE KEY-----\n"
    launch = Launch(("{python}", "agent.pyz", "$(reboot)"), {"agent.pyz": b"\x00\xff"}, {"A": "it's"})
    await provider.create(await an_intent(provider, launch=launch, public_key="ssh-ed25519 AAAA job", host_key=key))
    await provider.close()

    body = next(call.json() for call in cloud.calls if call.path.endswith("/launch"))
    first, _, rest = body["user_data"].partition("\n")
    config = json.loads(rest)

    assert first == "#cloud-config"
    assert config["ssh_keys"] == {"ed25519_private": key}
    assert config["ssh_authorized_keys"] == ["ssh-ed25519 AAAA job"]
    assert base64.b64decode(config["write_files"][0]["content"]) == b"\x00\xff"
    assert config["runcmd"] == [["sh", "-c", "cd /opt/shunter && A='it'\"'\"'s' python3 agent.pyz '$(reboot)'"]]


async def test_launches_keep_the_pace_of_the_account(cloud: LambdaCloud) -> None:
    class OnlyLaunches(OwnPacer):
        async def take_turn(self, bucket: str, rate: Rate, at_most_s: float) -> float:
            return await super().take_turn(bucket, rate, at_most_s) if rate.kind == "create" else 0.0

    settings = {"api_key": KEY, "base_url": f"{cloud.url}/api/v1"}
    provider = LambdaProvider(Instance("lambda", "lambda", settings, pacer=OnlyLaunches()))
    offer = (await provider.offers(OfferQuery()))[0]
    intent = make_intent(new_deployment_id(), offer, Launch(("true",), {}))
    await provider.create(intent)

    with pytest.raises(ProviderError) as held:
        await provider.create(make_intent(new_deployment_id(), offer, intent.launch))

    await provider.close()
    assert held.value.fault is Fault.RATE_LIMITED
    assert held.value.retry_after_s is not None
    assert 5 < held.value.retry_after_s <= 12
    assert len(cloud.nodes()) == 1


async def _seen(provider: LambdaProvider, intent: Intent) -> None:
    while not await provider.list_owned(intent.tags["deployment"]):
        pass


async def test_a_node_that_the_service_starts_by_ssh_gets_keys_and_nothing_else_of_ours(cloud: LambdaCloud) -> None:
    provider = lambda_(cloud)
    key = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaA==\n-----END OPENSSH PRIVATE KEY-----\n"
    intent = await an_intent(provider, launch=Launch((), {}), public_key="ssh-ed25519 AAAA job", host_key=key)
    handle = await provider.create(intent)
    view = await wait_for(provider, handle, NodeCondition.RUNNING, 10)
    await provider.close()

    body = next(
        call.json() for call in cloud.calls if call.path.endswith(("/pods", "/launch")) and call.method == "POST"
    )

    assert provider.capabilities.bootstrap == "ssh"
    assert view.ssh is not None
    assert "ssh-ed25519 AAAA job" in str(body["user_data"])
    assert "agent" not in str(body)
