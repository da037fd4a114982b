"""Azure against a fake of its Resource Manager: the whole kit, and what is peculiar to it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest
from shunter_providers.clouds.azure.provider import AzureProvider
from shunter_providers.contract import Fault, Launch, NodeCondition
from shunter_providers.testing import CloudConformance, CloudFault, WireCloud
from shunter_providers.testing.conformance import listed, wait_for
from shunter_schemas.ids import new_node_token
from support.clouds.azure import AzureCloud
from support.clouds.azure_account import SECRET, an_intent, azure, orders, refusal
from support.clouds.azure_words import ROOT
from support.clouds.consoles import CONSOLE

HOST_KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaA==\n-----END OPENSSH PRIVATE KEY-----\n"


@pytest.fixture
def cloud() -> Iterator[AzureCloud]:
    with AzureCloud(SECRET) as running:
        yield running


class TestAzure(CloudConformance):
    @pytest.fixture
    def cloud(self) -> Iterator[WireCloud]:
        with AzureCloud(SECRET) as running:
            yield running

    @pytest.fixture
    def provider(self, cloud: WireCloud) -> AzureProvider:
        return azure(cloud)

    @pytest.fixture
    def unknown_handle(self, deployment: str) -> str:
        return f"shunter-eastus/{new_node_token(deployment)}"


async def test_everything_that_a_node_is_made_of_goes_with_it_and_bears_its_token(cloud: AzureCloud) -> None:
    provider = azure(cloud)
    intent = await an_intent(provider)

    await provider.create(intent)

    await provider.close()
    body = orders(cloud)[0].json()
    (interface,) = body["properties"]["networkProfile"]["networkInterfaceConfigurations"]
    address = interface["properties"]["ipConfigurations"][0]["properties"]["publicIPAddressConfiguration"]
    disk = body["properties"]["storageProfile"]["osDisk"]
    options = {interface["properties"]["deleteOption"], address["properties"]["deleteOption"], disk["deleteOption"]}
    assert options == {"Delete"}
    assert {thing["tags"]["shunter-token"] for thing in (body, interface, address)} == {intent.token}
    assert {thing["name"] for thing in (interface, address, disk)} == {intent.token}
    assert body["tags"]["shunter-job"] == "job_conformance"


async def test_group_network_and_security_group_are_made_once_a_region_and_named_for_it(cloud: AzureCloud) -> None:
    first, second = azure(cloud), azure(cloud)
    for provider in (first, first, second):
        await provider.create(await an_intent(provider))

    made = [call.path for call in cloud.calls if call.method == "PUT" and "/virtualMachines/" not in call.path]

    await first.close()
    await second.close()
    group = f"{ROOT}/resourceGroups/shunter-eastus"
    assert made == [
        group,
        f"{group}/providers/Microsoft.Network/networkSecurityGroups/shunter-eastus",
        f"{group}/providers/Microsoft.Network/virtualNetworks/shunter-eastus",
    ]


async def test_a_group_that_somebody_took_away_is_made_again(cloud: AzureCloud) -> None:
    provider = azure(cloud)
    await provider.create(await an_intent(provider))
    cloud.things.clear()

    handle = await provider.create(await an_intent(provider))

    view = await provider.get(handle)
    await provider.close()
    assert view.condition in (NodeCondition.PENDING, NodeCondition.RUNNING)


async def test_an_operators_own_group_subnet_and_rules_are_used_and_nothing_is_made(cloud: AzureCloud) -> None:
    group = f"{ROOT}/resourceGroups/Ours"
    network = f"{group}/providers/Microsoft.Network"
    for path in (group, f"{network}/virtualNetworks/v", f"{network}/networkSecurityGroups/n"):
        cloud.things[path.lower()] = {"ready_at": 0.0}
    provider = azure(
        cloud,
        resource_group="Ours",
        subnets={"eastus": f"{network}/virtualNetworks/v/subnets/gpu"},
        security_groups={"eastus": f"{network}/networkSecurityGroups/n"},
        private_addresses=True,
    )

    handle = await provider.create(await an_intent(provider))
    view = await wait_for(provider, handle, NodeCondition.RUNNING, 10)

    await provider.close()
    assert [call.path for call in cloud.calls if call.method == "PUT"] == [orders(cloud)[0].path]
    assert handle.startswith("ours/")
    assert view.ssh is not None
    assert view.ssh.host == "10.64.0.4"
    assert b"publicIPAddressConfiguration" not in orders(cloud)[0].body


async def test_a_spot_node_is_ordered_to_be_deleted_and_bills_at_most_what_was_said(cloud: AzureCloud) -> None:
    provider = azure(cloud)
    await provider.create(await an_intent(provider, capacity="spot"))
    await provider.create(await an_intent(provider, capacity="spot", options={"max_usd_per_hour": 3.5}))

    await provider.close()

    asked = [call.json()["properties"] for call in orders(cloud)]
    assert {(one["priority"], one["evictionPolicy"]) for one in asked} == {("Spot", "Delete")}
    assert [one["billingProfile"]["maxPrice"] for one in asked] == [-1, 3.5]


async def test_keys_go_into_custom_data_and_the_launch_does_not(cloud: AzureCloud) -> None:
    provider = azure(cloud)
    launch = Launch(("{python}", "agent.pyz"), {"agent.pyz": b"x" * 400_000}, {"TOKEN": "for-ssh-alone"})
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHNo job\n"
    handle = await provider.create(await an_intent(provider, launch=launch, public_key=key, host_key=HOST_KEY))
    view = await wait_for(provider, handle, NodeCondition.RUNNING, 10)

    system = orders(cloud)[0].json()["properties"]["osProfile"]

    await provider.close()
    config = json.loads(base64.b64decode(system["customData"]).decode().partition("\n")[2])
    assert config == {
        "ssh_authorized_keys": [key],
        "ssh_deletekeys": True,
        "ssh_keys": {"ed25519_private": HOST_KEY},
    }
    (login,) = system["linuxConfiguration"]["ssh"]["publicKeys"]
    assert login == {"path": "/home/ubuntu/.ssh/authorized_keys", "keyData": key.strip()}
    assert b"for-ssh-alone" not in orders(cloud)[0].body
    assert view.ssh is not None
    assert (view.ssh.host, view.ssh.port, view.ssh.user) == ("127.0.0.1", 22, "ubuntu")


async def test_a_node_is_the_same_in_the_list_as_alone_however_the_vendor_writes_its_group(cloud: AzureCloud) -> None:
    provider = azure(cloud)
    intent = await an_intent(provider)
    handle = await provider.create(intent)
    alone = await wait_for(provider, handle, NodeCondition.RUNNING, 10)

    views = await listed(provider, intent.tags["deployment"], 1)

    await provider.close()
    assert views == [alone]
    assert alone.addresses == {"private": "10.64.0.4", "public": "127.0.0.1"}


async def test_the_console_of_a_node_is_told_and_that_of_none_is_empty(cloud: AzureCloud) -> None:
    provider = azure(cloud)
    handle = await provider.create(await an_intent(provider))
    await wait_for(provider, handle, NodeCondition.RUNNING, 10)

    told = await provider.console(handle)
    of_none = [await provider.console(one) for one in (f"{handle}0", "../../etc/passwd")]

    await provider.close()
    assert told == CONSOLE
    assert of_none == ["", ""]


async def test_options_name_image_zone_and_groups(cloud: AzureCloud) -> None:
    provider = azure(cloud)
    compute = f"{ROOT}/resourceGroups/ours/providers/Microsoft.Compute"
    options = {
        "image": "/CommunityGalleries/ours-1/Images/trainer/Versions/latest",
        "zone": "2",
        "availability_set": f"{compute}/availabilitySets/near",
        "proximity_placement_group": f"{compute}/proximityPlacementGroups/nearer",
        "capacity_reservation_group": f"{compute}/capacityReservationGroups/h100s",
    }

    await provider.create(await an_intent(provider, options=options))

    await provider.close()
    body = orders(cloud)[0].json()
    properties = body["properties"]
    assert body["zones"] == ["2"]
    assert properties["storageProfile"]["imageReference"] == {"communityGalleryImageId": options["image"]}
    assert properties["availabilitySet"] == {"id": options["availability_set"]}
    assert properties["proximityPlacementGroup"] == {"id": options["proximity_placement_group"]}
    group = properties["capacityReservation"]["capacityReservationGroup"]
    assert group == {"id": options["capacity_reservation_group"]}


async def test_a_wrong_option_is_named_by_its_place(cloud: AzureCloud) -> None:
    provider = azure(cloud)

    error = await refusal(provider, await an_intent(provider, options={"zone": "4"}))

    await provider.close()
    assert error.fault is Fault.INVALID
    assert "placement.options.azure.zone" in error.detail
    assert orders(cloud) == []


@pytest.mark.parametrize("takes_if_none_match", [True, False])
async def test_the_same_name_with_another_body_makes_and_changes_nothing(
    cloud: AzureCloud, takes_if_none_match: bool
) -> None:
    cloud.takes_if_none_match = takes_if_none_match
    first, second = azure(cloud), azure(cloud, disk_gib=256)
    intent = await an_intent(first)
    handle = await first.create(intent)
    await wait_for(first, handle, NodeCondition.RUNNING, 10)

    again = await second.create(intent)

    await first.close()
    await second.close()
    (node,) = cloud.nodes()
    assert again == handle
    assert node.order["properties"]["storageProfile"]["osDisk"]["diskSizeGB"] == 128
    assert {call.headers["if-none-match"] for call in orders(cloud)} == {"*"}


async def test_a_create_whose_answer_is_lost_is_sent_once_whatever_libcloud_is_told_to_do(
    cloud: AzureCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIBCLOUD_RETRY_FAILED_HTTP_REQUESTS", "1")
    provider = azure(cloud)
    intent = await an_intent(provider)
    cloud.strike(CloudFault.LOST_REPLY)

    error = await refusal(provider, intent)
    await provider.close()

    assert error.fault is Fault.AMBIGUOUS
    assert len(orders(cloud)) == 1
