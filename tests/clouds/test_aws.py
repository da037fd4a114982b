"""AWS against a fake of EC2's query API: the whole kit, and what is peculiar to it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator

import pytest
from shunter_providers.clouds.aws.provider import AwsProvider
from shunter_providers.contract import (
    Availability,
    Fault,
    Launch,
    NodeCondition,
    OfferQuery,
)
from shunter_providers.testing import CloudConformance, CloudFault, WireCloud, make_intent
from shunter_providers.testing.conformance import listed, until_terminated, wait_for
from shunter_schemas.ids import new_deployment_id
from support.clouds.aws import AwsCloud
from support.clouds.aws_account import KEY, an_intent, an_offer, aws, refusal_of
from support.clouds.aws_shapes import image

HOST_KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaA==\n-----END OPENSSH PRIVATE KEY-----\n"
BLOCK = {
    "capacityReservationId": "cr-0123",
    "instanceType": "p5.48xlarge",
    "availabilityZone": "us-east-1c",
    "state": "active",
    "availableInstanceCount": 1,
    "reservationType": "capacity-block",
}


@pytest.fixture
def cloud() -> Iterator[AwsCloud]:
    with AwsCloud(KEY) as running:
        yield running


class TestAws(CloudConformance):
    @pytest.fixture
    def cloud(self) -> Iterator[WireCloud]:
        with AwsCloud(KEY) as running:
            yield running

    @pytest.fixture
    def provider(self, cloud: WireCloud) -> AwsProvider:
        return aws(cloud, timeout_s=1.0)

    @pytest.fixture
    def unknown_handle(self) -> str:
        return "us-east-1/i-0123456789abcdef0"


async def test_offers_say_model_memory_place_and_whence_the_price_is(cloud: AwsCloud) -> None:
    provider = aws(cloud)

    offers = await provider.offers(OfferQuery())

    await provider.close()
    shown = {
        (
            o.instance_type,
            o.capacity,
            o.gpu_model,
            o.gpus,
            round(o.gpu_memory_gib),
            o.price.gpu_usd_per_hour,
            o.price.live,
        )
        for o in offers
    }
    assert shown == {
        ("g6.xlarge", "on_demand", "L4", 1, 22, 0.8048, False),
        ("g6.xlarge", "spot", "L4", 1, 22, 0.35, True),
        ("p4d.24xlarge", "on_demand", "A100", 8, 40, 21.957642, False),
        ("p5.48xlarge", "on_demand", "H100", 8, 80, 55.04, False),
        ("p5.48xlarge", "spot", "H100", 8, 80, 20.5, True),
    }
    assert {(offer.region, offer.jurisdiction, offer.interconnect) for offer in offers} == {
        ("us-east-1", "US", "ethernet")
    }
    assert {round(offer.price.disk_usd_per_hour, 4) for offer in offers} == {0.0219}
    assert {(offer.gpus, offer.network_gbps) for offer in offers} == {(8, 100.0), (1, None)}


async def test_what_the_catalogue_does_not_know_is_offered_at_the_operators_price_and_cpu_types_only_so(
    cloud: AwsCloud,
) -> None:
    prices = {"m7i.large": 0.1, "eu-central-1/p4d.24xlarge": 30.0}
    provider = aws(cloud, regions="eu-central-1, us-east-1", usd_per_hour=prices)

    offers = [offer for offer in await provider.offers(OfferQuery()) if offer.capacity == "on_demand"]

    await provider.close()
    shown = {(o.instance_type, o.region, o.jurisdiction, o.cpu_slots, o.price.gpu_usd_per_hour) for o in offers}
    assert shown == {
        ("m7i.large", "eu-central-1", "DE", 2, 0.1),
        ("p4d.24xlarge", "eu-central-1", "DE", 0, 30.0),
        ("m7i.large", "us-east-1", "US", 2, 0.1),
        ("g6.xlarge", "us-east-1", "US", 0, 0.8048),
        ("p4d.24xlarge", "us-east-1", "US", 0, 21.957642),
        ("p5.48xlarge", "us-east-1", "US", 0, 55.04),
    }


async def test_the_vendors_price_list_wins_over_the_catalogue_and_is_read_once_and_over_all_pages(
    cloud: AwsCloud,
) -> None:
    cloud.listed = [
        ("eu-central-1", "g6.xlarge", "1.0060000000"),
        ("eu-central-1", "p5.48xlarge", "0.0000000000"),
        ("us-east-1", "g6.xlarge", "0.9"),
        ("eu-central-1", "p4d.24xlarge", "25.5"),
    ]
    provider = aws(cloud, regions=["eu-central-1"])
    await provider.offers(OfferQuery())

    offers = [offer for offer in await provider.offers(OfferQuery()) if offer.capacity == "on_demand"]

    await provider.close()
    assert {(o.instance_type, o.price.gpu_usd_per_hour, o.price.live) for o in offers} == {
        ("g6.xlarge", 1.006, True),
        ("p4d.24xlarge", 25.5, True),
    }
    assert len([call for call in cloud.calls if "x-amz-target" in call.headers]) == 2


async def test_a_row_that_cannot_be_read_hides_no_other_and_a_price_of_nothing_is_none(cloud: AwsCloud) -> None:
    cloud.kinds[1]["vCpuInfo"] = {"defaultVCpus": "many"}
    cloud.spot = [("g6.xlarge", "a", "0.0"), ("p5.48xlarge", "a", "NaN")]
    provider = aws(cloud)

    offers = await provider.offers(OfferQuery())

    await provider.close()
    assert {(offer.instance_type, offer.capacity) for offer in offers} == {
        ("g6.xlarge", "on_demand"),
        ("p5.48xlarge", "on_demand"),
    }


async def test_one_region_that_fails_hides_the_offers_of_no_other(cloud: AwsCloud) -> None:
    provider = aws(cloud, regions=["us-east-1", "us-west-2"])
    cloud.strike(CloudFault.AUTH, on="offers")

    offers = await provider.offers(OfferQuery())

    await provider.close()
    assert len({offer.region for offer in offers}) == 1


async def test_nodes_of_every_region_are_listed_and_ended_where_they_are(cloud: AwsCloud) -> None:
    provider = aws(cloud, regions=["us-east-1", "eu-west-1"])
    deployment = new_deployment_id()
    offers = [await an_offer(provider, "spot", "g6", region) for region in ("us-east-1", "eu-west-1")]
    handles = [await provider.create(make_intent(deployment, offer, Launch((), {}))) for offer in offers]

    views = await listed(provider, deployment, 2)

    assert sorted(view.handle for view in views) == sorted(handles)
    assert [handle.partition("/")[0] for handle in handles] == ["us-east-1", "eu-west-1"]
    for handle in handles:
        await until_terminated(provider, handle)
    await provider.close()
    assert cloud.nodes() == []


async def test_a_launch_tells_keys_and_nothing_else_of_ours_and_leaves_nothing_behind(cloud: AwsCloud) -> None:
    provider = aws(cloud, disk_gib=50)
    launch = Launch(("{python}", "agent.pyz"), {"agent.pyz": b"x" * 100_000})
    intent = await an_intent(provider, launch=launch, public_key="ssh-ed25519 AAAA job", host_key=HOST_KEY)
    handle = await provider.create(intent)
    view = await wait_for(provider, handle, NodeCondition.RUNNING, 10)
    await provider.close()

    (launched,) = cloud.queries("RunInstances")
    said = launched.form
    told = base64.b64decode(said["UserData"]).decode()

    assert said["ClientToken"] == intent.token
    assert "ssh-ed25519 AAAA job" in told
    assert "agent" not in told
    assert said["ImageId"] == "ami-0bbbbbbbbbbbbbbb2"
    assert (said["BlockDeviceMapping.1.Ebs.VolumeSize"], said["BlockDeviceMapping.1.Ebs.DeleteOnTermination"]) == (
        "75",
        "true",
    )
    assert (said["InstanceInitiatedShutdownBehavior"], said["MetadataOptions.HttpTokens"]) == ("terminate", "required")
    assert [said[f"TagSpecification.{n}.ResourceType"] for n in (1, 2, 3)] == [
        "instance",
        "volume",
        "network-interface",
    ]
    assert provider.capabilities.bootstrap == "ssh"
    assert view.ssh is not None
    assert (view.ssh.host, view.ssh.user) == ("127.0.0.1", "ubuntu")


async def test_user_data_of_the_jobs_own_that_is_too_long_is_refused_before_anything_is_asked(cloud: AwsCloud) -> None:
    provider = aws(cloud)
    intent = await an_intent(provider, user_data="#" * 16385)

    refused = await refusal_of(provider, intent)

    assert refused.fault is Fault.INVALID
    assert "16384" in refused.detail
    assert cloud.queries("RunInstances") == []


async def test_a_spot_node_that_is_taken_back_says_so(cloud: AwsCloud) -> None:
    provider = aws(cloud)
    handle = await provider.create(await an_intent(provider, offer=await an_offer(provider, "spot")))
    await wait_for(provider, handle, NodeCondition.RUNNING, 10)
    cloud.preempt(handle)

    view = await provider.get(handle)

    await provider.close()
    said = cloud.queries("RunInstances")[0].form
    assert view.condition is NodeCondition.GONE
    assert "insufficient capacity" in view.reason
    assert said["InstanceMarketOptions.MarketType"] == "spot"
    assert said["InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior"] == "terminate"
    assert said["TagSpecification.4.ResourceType"] == "spot-instances-request"


async def test_reserved_capacity_is_offered_as_far_as_it_goes_and_used_where_it_is(cloud: AwsCloud) -> None:
    cloud.reservations = [dict(BLOCK)]
    provider = aws(cloud)
    offer = await an_offer(provider, "reserved")
    intent = await an_intent(provider, offer=offer)
    handle = await provider.create(intent)
    await wait_for(provider, handle, NodeCondition.RUNNING, 10)
    again = await provider.create(intent)

    refused = await refusal_of(provider, await an_intent(provider, offer=offer))

    said = cloud.queries("RunInstances")[0].form
    assert (offer.instance_type, offer.count, offer.availability) == ("p5.48xlarge", 1, Availability.AVAILABLE)
    assert said["Placement.AvailabilityZone"] == "us-east-1c"
    assert said["InstanceMarketOptions.MarketType"] == "capacity-block"
    assert (refused.fault, refused.may_have_created) == (Fault.NO_CAPACITY, False)
    assert again == handle
    assert [f"us-east-1/{node.id}" for node in cloud.nodes()] == [handle]


async def test_a_token_that_was_used_with_an_older_image_is_answered_with_its_node(cloud: AwsCloud) -> None:
    provider = aws(cloud)
    intent = await an_intent(provider)
    handle = await provider.create(intent)
    await wait_for(provider, handle, NodeCondition.RUNNING, 10)
    cloud.images.append(image("ami-0ccccccccccccccc3", "20261130"))

    again = await provider.create(intent)

    await provider.close()
    assert again == handle
    assert len(cloud.nodes()) == 1


async def test_a_token_whose_node_has_ended_makes_no_other(cloud: AwsCloud) -> None:
    provider = aws(cloud)
    intent = await an_intent(provider)
    await until_terminated(provider, await provider.create(intent))

    refused = await refusal_of(provider, intent)

    assert (refused.fault, refused.may_have_created) == (Fault.CONFLICT, False)
    assert cloud.nodes() == []


async def test_the_security_group_is_made_once_lets_ssh_in_and_its_members_reach_each_other(cloud: AwsCloud) -> None:
    provider = aws(cloud, ssh_from="192.0.2.0/24")
    intents = [await an_intent(provider) for _ in range(3)]

    await asyncio.gather(*(provider.create(intent) for intent in intents))

    await provider.close()
    (group,) = cloud.groups
    assert group["ipPermissions"] == [
        {"ipProtocol": "tcp", "fromPort": "22", "source": "192.0.2.0/24"},
        {"ipProtocol": "-1", "fromPort": "", "source": group["groupId"]},
    ]
    assert len(cloud.nodes()) == 3


async def test_a_security_group_that_was_left_without_rules_gets_them(cloud: AwsCloud) -> None:
    left = {"groupId": "sg-0123", "groupName": "shunter", "vpcId": "vpc-1", "ipPermissions": [], "region": "us-east-1"}
    cloud.groups.append(left)
    provider = aws(cloud)

    await provider.create(await an_intent(provider))

    await provider.close()
    assert len(cloud.groups) == 1
    assert len(cloud.groups[0]["ipPermissions"]) == 2


async def test_a_node_in_a_subnet_of_ones_own_with_an_adapter_for_its_fabric_says_so_at_its_interface(
    cloud: AwsCloud,
) -> None:
    provider = aws(cloud, subnets={"us-east-1": "subnet-0123"})
    options = {"efa": True, "placement_group": "close", "zone": "us-east-1b"}

    await provider.create(await an_intent(provider, options=options))

    await provider.close()
    said = cloud.queries("RunInstances")[0].form
    assert said["NetworkInterface.1.SubnetId"] == "subnet-0123"
    assert said["NetworkInterface.1.InterfaceType"] == "efa"
    assert said["NetworkInterface.1.AssociatePublicIpAddress"] == "true"
    assert (said["Placement.GroupName"], said["Placement.AvailabilityZone"]) == ("close", "us-east-1b")
    assert cloud.groups[0]["vpcId"] == "vpc-2"
