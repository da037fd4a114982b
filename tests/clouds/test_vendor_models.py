"""What we send, and what our fakes answer, held against the vendors' own descriptions of their APIs.

These need the extra `vendors`: botocore and moto for EC2, google-api-python-client for Compute Engine.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from shunter_providers.clouds.aws.provider import AwsProvider
from shunter_providers.clouds.google_cloud.provider import GoogleCloudProvider
from shunter_providers.contract import Instance, Intent, Launch, NodeCondition, Offer, OfferQuery, Provider
from shunter_providers.testing import Reply, Request, Unpaced, WireCloud, make_intent
from shunter_providers.testing.conformance import until_terminated, wait_for
from shunter_schemas.ids import new_deployment_id
from support.clouds.accounts import FAKES
from support.clouds.aws import AwsCloud
from support.clouds.google_cloud import GoogleCloud

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(300)]

SECRET = "a-secret-of-some-length"
HOST_KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaA==\n-----END OPENSSH PRIVATE KEY-----\n"
RESERVED = {
    "capacityReservationId": "cr-0123456789abcdef0",
    "instanceType": "p5.48xlarge",
    "availabilityZone": "us-east-1c",
    "availableInstanceCount": 1,
    "reservationType": "capacity-block",
    "state": "active",
}


class Said(NamedTuple):
    """A call and its answer."""

    call: Request
    reply: Reply


def listen(cloud: WireCloud, monkeypatch: pytest.MonkeyPatch) -> list[Said]:
    """Everything that is asked and answered from here on."""
    heard: list[Said] = []
    answer = cloud.answer

    def answered(request: Request) -> Reply | None:
        reply = answer(request)
        assert reply is not None
        heard.append(Said(request, reply))
        return reply

    monkeypatch.setattr(cloud, "answer", answered)
    return heard


def settings_of(plugin: str, cloud: WireCloud, **more: Any) -> Instance:
    chosen = {**FAKES[plugin].settings(cloud.url, SECRET), "timeout_s": 5.0, **more}
    return Instance(plugin, plugin, chosen, pacer=Unpaced())


@asynccontextmanager
async def closing(provider: Provider) -> AsyncIterator[Provider]:
    yield provider
    await provider.close()


def intent_for(offer: Offer, **changes: Any) -> Intent:
    made = make_intent(new_deployment_id(), offer, Launch(("true",), {}))
    return replace(made, **{"public_key": "ssh-ed25519 AAAA job", "host_key": HOST_KEY, **changes})


async def live(provider: Provider, intent: Intent) -> None:
    """A node's whole life."""
    handle = await provider.create(intent)
    await wait_for(provider, handle, NodeCondition.RUNNING, 20)
    await provider.list_owned(intent.tags["deployment"])
    if provider.capabilities.console:
        await provider.console(handle)  # type: ignore[attr-defined]  # it is declared
    await until_terminated(provider, handle)


async def first(provider: Provider, capacity: str) -> Offer:
    return next(offer for offer in await provider.offers(OfferQuery()) if offer.capacity == capacity)


AWS_NODES: Sequence[tuple[str, Mapping[str, Any], Mapping[str, Any]]] = [
    ("on_demand", {}, {}),
    ("spot", {}, {}),
    ("reserved", {}, {}),
    ("on_demand", {"image_id": "ami-0aaaaaaaaaaaaaaa1", "zone": "us-east-1b"}, {"instance_profile": "nodes"}),
    ("on_demand", {"efa": True, "placement_group": "close"}, {"subnets": {"us-east-1": "subnet-0123"}}),
]
"""Capacity, a job's options, an operator's settings."""


async def test_ec2_knows_every_part_of_what_we_ask_and_of_what_our_fake_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("botocore", reason="needs the extra `vendors`")
    from support.clouds import aws_model

    with AwsCloud(SECRET) as cloud:
        heard = listen(cloud, monkeypatch)
        for capacity, options, settings in AWS_NODES:
            cloud.reservations = [dict(RESERVED)]
            async with closing(AwsProvider(settings_of("aws", cloud, **settings))) as provider:
                await provider.whoami()
                await live(provider, intent_for(await first(provider, capacity), options=options))

    queries = [said for said in heard if "x-amz-target" not in said.call.headers]
    answers = [said for said in queries if said.reply.status == 200]
    actions = {said.call.body.split(b"&")[0] for said in queries}
    assert {fault for said in queries for fault in aws_model.faults_of_request(said.call)} == set()
    assert {fault for said in answers for fault in aws_model.faults_of_answer(said.call, said.reply)} == set()
    assert actions >= {b"Action=RunInstances", b"Action=GetConsoleOutput", b"Action=AuthorizeSecurityGroupIngress"}


def test_what_ec2_does_not_know_is_found() -> None:
    pytest.importorskip("botocore", reason="needs the extra `vendors`")
    from support.clouds import aws_model

    body = b"Action=RunInstances&Version=2016-11-15&MinCount=one&MaxCount=1&Colour=red&SecurityGroupId.0=sg-1"
    call = Request("POST", "/", {}, {}, body)

    faults = aws_model.faults_of_request(call)

    assert faults == [
        "RunInstances.MinCount: 'one' is no integer",
        "RunInstances: there is no Colour",
        "RunInstances.SecurityGroupId: its numbers are [0]",
    ]


GOOGLE_NODES: Sequence[tuple[str, str, Mapping[str, Any], Mapping[str, Any]]] = [
    ("e2-standard-4", "on_demand", {}, {}),
    ("a3-highgpu-8g", "spot", {}, {"expires_at": time.time() + 3600}),
    ("a3-ultragpu-8g", "on_demand", {"placement_policy": "near"}, {}),
    (
        "a3-highgpu-8g",
        "on_demand",
        {"reservation": "h100s", "image": "projects/a-project/global/images/family/ours"},
        {},
    ),
]
"""Type, capacity, a job's options, other parts of the intent."""


async def test_google_knows_every_part_of_what_we_ask_and_of_what_our_fake_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("googleapiclient", reason="needs the extra `vendors`")
    from support.clouds import google_model

    with GoogleCloud(SECRET) as cloud:
        heard = listen(cloud, monkeypatch)
        async with closing(GoogleCloudProvider(settings_of("gcp", cloud))) as provider:
            await provider.whoami()
            offers = await provider.offers(OfferQuery())
            for name, capacity, options, more in GOOGLE_NODES:
                offer = next(one for one in offers if (one.instance_type, one.capacity) == (name, capacity))
                await live(provider, intent_for(offer, options=options, **more))

    asked = [said for said in heard if said.call.path != "/o/oauth2/token"]
    answers = [said for said in asked if said.reply.status == 200]
    assert {fault for said in asked for fault in google_model.faults_of_request(said.call)} == set()
    assert {fault for said in answers for fault in google_model.faults_of_answer(said.call, said.reply.body)} == set()
    assert len([said for said in asked if said.call.method == "POST"]) == len(GOOGLE_NODES)


def test_what_google_does_not_know_is_found() -> None:
    pytest.importorskip("googleapiclient", reason="needs the extra `vendors`")
    from support.clouds import google_model

    body = b'{"name": 7, "colour": "red", "scheduling": {"provisioningModel": "CHEAP"}}'
    path = "/compute/v1/projects/a-project/zones/us-central1-a/instances"
    call = Request("POST", path, {"requestId": ["1"], "wait": ["yes"]}, {}, body)

    faults = google_model.faults_of_request(call)

    assert [fault.partition(" ['")[0] for fault in faults] == [
        "compute.instances.insert: there is no parameter wait",
        "compute.instances.insert.name: 7 is no string",
        "compute.instances.insert: there is no colour",
        "compute.instances.insert.scheduling.provisioningModel: 'CHEAP' is none of",
    ]
