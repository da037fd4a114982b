"""Google Cloud against a fake of its Compute API v1: the whole kit, and what is peculiar to it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from shunter_providers.clouds.google_cloud.provider import GoogleCloudProvider
from shunter_providers.contract import (
    Availability,
    Fault,
    Instance,
    Intent,
    Launch,
    NodeCondition,
    Offer,
    OfferQuery,
    ProviderError,
    Scope,
)
from shunter_providers.testing import CloudConformance, CloudFault, Request, Unpaced, WireCloud, make_intent
from shunter_providers.testing.conformance import listed, until_terminated, wait_for
from shunter_schemas.ids import new_deployment_id, new_node_token
from support.clouds import google_cloud
from support.clouds.google_cloud import PROJECT, GoogleCloud

TOKEN = CloudConformance.secret
HOST_KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaA==\n-----END OPENSSH PRIVATE KEY-----\n"


def google(cloud: WireCloud, **settings: Any) -> GoogleCloudProvider:
    chosen = {
        "credentials": google_cloud.key_file(),
        "base_url": cloud.url,
        "auth_url": cloud.url,
        "timeout_s": 5.0,
        "operation_wait_s": 5.0,
        "prices": {"e2-standard-4": 0.134},
        **settings,
    }
    return GoogleCloudProvider(Instance("gcp", "gcp", chosen, pacer=Unpaced()))


@pytest.fixture
def cloud() -> Iterator[GoogleCloud]:
    with GoogleCloud(TOKEN) as running:
        yield running


class TestGoogleCloud(CloudConformance):
    @pytest.fixture
    def cloud(self) -> Iterator[WireCloud]:
        with GoogleCloud(TOKEN) as running:
            yield running

    @pytest.fixture
    def provider(self, cloud: WireCloud) -> GoogleCloudProvider:
        return google(cloud, timeout_s=1.0)

    @pytest.fixture
    def unknown_handle(self, deployment: str) -> str:
        return f"us-central1-a/{new_node_token(deployment)}"


async def offer_of(provider: GoogleCloudProvider, name: str, capacity: str = "on_demand") -> Offer:
    offers = await provider.offers(OfferQuery())
    return next(one for one in offers if (one.instance_type, one.capacity) == (name, capacity))


async def an_intent(
    provider: GoogleCloudProvider, name: str = "a3-highgpu-8g", capacity: str = "on_demand", **changes: Any
) -> Intent:
    offer = await offer_of(provider, name, capacity)
    return replace(make_intent(new_deployment_id(), offer, Launch(("true",), {})), **changes)


def inserts(cloud: GoogleCloud) -> list[Request]:
    return [call for call in cloud.calls if call.method == "POST" and call.path.endswith("/instances")]


async def refusal(provider: GoogleCloudProvider, intent: Intent) -> ProviderError:
    with pytest.raises(ProviderError) as refused:
        await provider.create(intent)
    return refused.value


async def test_offers_are_by_zone_with_the_catalogues_price_and_the_country(cloud: GoogleCloud) -> None:
    provider = google(cloud)

    offers = await provider.offers(OfferQuery())

    await provider.close()
    shown = {
        (o.instance_type, o.region, o.capacity, o.gpu_model, o.gpus, o.gpu_memory_gib, o.jurisdiction, o.price.live)
        for o in offers
    }
    assert shown == {
        ("a3-ultragpu-8g", "us-central1-a", "on_demand", "H200", 8, 141, "US", False),
        ("a3-ultragpu-8g", "us-central1-a", "spot", "H200", 8, 141, "US", False),
        ("a3-highgpu-8g", "us-central1-a", "on_demand", "H100", 8, 80, "US", False),
        ("a3-highgpu-8g", "us-central1-a", "spot", "H100", 8, 80, "US", False),
        ("a3-highgpu-1g", "us-central1-a", "spot", "H100", 1, 80, "US", False),
        ("e2-standard-4", "us-central1-a", "on_demand", None, 0, 0, "US", True),
        ("a3-highgpu-8g", "us-central1-b", "on_demand", "H100", 8, 80, "US", False),
        ("a3-highgpu-8g", "us-central1-b", "spot", "H100", 8, 80, "US", False),
        ("a3-ultragpu-8g", "europe-west1-b", "on_demand", "H200", 8, 141, "BE", False),
        ("a3-ultragpu-8g", "europe-west1-b", "spot", "H200", 8, 141, "BE", False),
        ("e2-standard-4", "europe-west1-b", "on_demand", None, 0, 0, "BE", True),
    }


async def test_an_own_price_wins_and_one_of_a_region_wins_over_that(cloud: GoogleCloud) -> None:
    prices = {"a3-ultragpu-8g": 60.0, "a3-ultragpu-8g/europe-west1": 70.0}
    provider = google(cloud, prices=prices, disk_usd_per_gib_month=0.0)

    offers = await provider.offers(OfferQuery())

    await provider.close()
    found = {
        o.region: o.price.usd_per_hour
        for o in offers
        if (o.instance_type, o.capacity) == ("a3-ultragpu-8g", "on_demand")
    }
    assert found == {"us-central1-a": 60.0, "europe-west1-b": 70.0}


async def test_a_region_without_quota_left_says_so_for_its_own_capacity_alone(cloud: GoogleCloud) -> None:
    cloud.quotas["us-central1"] = [
        {"metric": "NVIDIA_A100_GPUS", "limit": 0.0, "usage": 0.0},
        {"metric": "PREEMPTIBLE_NVIDIA_H100_GPUS", "limit": 8.0, "usage": 4.0},
    ]
    provider = google(cloud)

    offers = [o for o in await provider.offers(OfferQuery()) if o.instance_type == "a3-highgpu-8g"]

    await provider.close()
    assert {(o.capacity, o.availability) for o in offers} == {
        ("on_demand", Availability.UNKNOWN),
        ("spot", Availability.NO_QUOTA),
    }


async def test_a_spot_node_is_ordered_to_be_deleted_and_never_restarted(cloud: GoogleCloud) -> None:
    provider = google(cloud)
    intent = await an_intent(provider, capacity="spot")

    await provider.create(intent)

    await provider.close()
    assert inserts(cloud)[0].json()["scheduling"] == {
        "provisioningModel": "SPOT",
        "automaticRestart": False,
        "onHostMaintenance": "TERMINATE",
        "instanceTerminationAction": "DELETE",
    }


async def test_a_preempted_spot_node_is_gone_and_said_to_be_preempted(cloud: GoogleCloud) -> None:
    provider = google(cloud)
    handle = await provider.create(await an_intent(provider, capacity="spot"))
    await wait_for(provider, handle, NodeCondition.RUNNING, 10)
    cloud.preempt(handle)

    view = await provider.get(handle)

    await provider.close()
    assert view.condition is NodeCondition.GONE
    assert "preempted" in view.reason


async def test_a_node_with_an_end_is_told_to_the_vendor_so_that_it_ends_without_us(cloud: GoogleCloud) -> None:
    provider = google(cloud)
    intent = await an_intent(provider, expires_at=time.time() + 3600)

    await provider.create(intent)

    await provider.close()
    scheduling = inserts(cloud)[0].json()["scheduling"]
    assert scheduling["instanceTerminationAction"] == "DELETE"
    assert 3500 < int(scheduling["maxRunDuration"]["seconds"]) <= 3600


async def test_a_node_without_an_end_runs_until_it_is_ended(cloud: GoogleCloud) -> None:
    provider = google(cloud)

    await provider.create(await an_intent(provider, expires_at=float("inf")))

    await provider.close()
    assert not {"maxRunDuration", "instanceTerminationAction"} & set(inserts(cloud)[0].json()["scheduling"])


async def test_keys_go_into_metadata_and_neither_the_launch_nor_a_service_account_goes_along(
    cloud: GoogleCloud,
) -> None:
    provider = google(cloud)
    launch = Launch(("{python}", "agent.pyz"), {"agent.pyz": b"x" * 400_000}, {"TOKEN": "for-ssh-alone"})
    intent = await an_intent(provider, launch=launch, public_key="ssh-ed25519 AAAA job\n", host_key=HOST_KEY)
    handle = await provider.create(intent)
    view = await wait_for(provider, handle, NodeCondition.RUNNING, 10)

    metadata = {item["key"]: item["value"] for item in inserts(cloud)[0].json()["metadata"]["items"]}

    await provider.close()
    config = json.loads(metadata["user-data"].partition("\n")[2])
    assert config == {
        "ssh_authorized_keys": ["ssh-ed25519 AAAA job\n"],
        "ssh_deletekeys": True,
        "ssh_keys": {"ed25519_private": HOST_KEY},
    }
    assert metadata["ssh-keys"] == "ubuntu:ssh-ed25519 AAAA job"
    assert metadata["enable-oslogin"] == "FALSE"
    assert b"for-ssh-alone" not in inserts(cloud)[0].body
    assert "serviceAccounts" not in inserts(cloud)[0].json()
    assert view.ssh is not None
    assert (view.ssh.host, view.ssh.port, view.ssh.user) == ("127.0.0.1", 22, "ubuntu")


async def test_options_name_image_reservation_and_placement(cloud: GoogleCloud) -> None:
    provider = google(cloud)
    image = "projects/a-project/global/images/family/ours"
    options = {"image": image, "reservation": "h100s", "placement_policy": "near"}

    await provider.create(await an_intent(provider, options=options))

    await provider.close()
    body = inserts(cloud)[0].json()
    assert body["disks"][0]["initializeParams"]["sourceImage"] == image
    assert body["reservationAffinity"]["values"] == ["h100s"]
    assert body["resourcePolicies"] == [f"projects/{PROJECT}/regions/us-central1/resourcePolicies/near"]


async def test_a_create_sent_again_by_another_process_is_the_same_request(cloud: GoogleCloud) -> None:
    first, second = google(cloud), google(cloud)
    intent = await an_intent(first)

    handles = {await first.create(intent), await second.create(intent)}

    await first.close()
    await second.close()
    assert len(handles) == len(cloud.nodes()) == 1
    assert len({call.one("requestId") for call in inserts(cloud)}) == 1


async def test_a_create_whose_answer_is_lost_is_sent_once_whatever_libcloud_is_told_to_do(
    cloud: GoogleCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIBCLOUD_RETRY_FAILED_HTTP_REQUESTS", "1")
    provider = google(cloud)
    intent = await an_intent(provider)
    cloud.strike(CloudFault.LOST_REPLY)

    error = await refusal(provider, intent)
    await provider.close()

    assert error.fault is Fault.AMBIGUOUS
    assert len(inserts(cloud)) == 1


async def test_a_wait_that_the_vendor_names_holds_every_call_of_the_account(cloud: GoogleCloud) -> None:
    settings = {"credentials": google_cloud.key_file(), "base_url": cloud.url, "auth_url": cloud.url}
    provider = GoogleCloudProvider(Instance("gcp", "gcp", settings))
    cloud.strike(CloudFault.RATE_LIMITED, on="create", delay_s=60)
    error = await refusal(provider, await an_intent(provider))
    asked = len(cloud.calls)

    with pytest.raises(ProviderError, match="not asked") as held:
        await provider.whoami()

    await provider.close()
    assert error.retry_after_s == 60
    assert held.value.fault is Fault.RATE_LIMITED
    assert len(cloud.calls) == asked


async def test_a_name_that_is_taken_is_the_node_itself(cloud: GoogleCloud) -> None:
    provider = google(cloud)
    intent = await an_intent(provider)
    handle = await provider.create(intent)
    cloud.operations = {name: one for name, one in cloud.operations.items() if name == one.name}  # as after an hour

    again = await provider.create(intent)

    await provider.close()
    assert again == handle
    assert len(cloud.nodes()) == 1


@pytest.mark.parametrize(
    ("code", "message", "fault", "scope"),
    [
        ("ZONE_RESOURCE_POOL_EXHAUSTED", "The zone does not have enough resources.", Fault.NO_CAPACITY, Scope.OFFER),
        ("UNSUPPORTED_OPERATION", "Instance was preempted during creation", Fault.NO_CAPACITY, Scope.OFFER),
        ("QUOTA_EXCEEDED", "Quota 'GPUS_ALL_REGIONS' exceeded. Limit: 1.0 globally.", Fault.QUOTA, Scope.ACCOUNT),
        ("QUOTA_EXCEEDED", "Quota 'CPUS' exceeded. Limit: 8.0 in region us-x.", Fault.QUOTA, Scope.REGION),
        ("RESOURCE_OPERATION_RATE_EXCEEDED", "Operation rate exceeded.", Fault.RATE_LIMITED, Scope.ACCOUNT),
        ("IAM_PERMISSION_DENIED", "Required 'compute.disks.create' permission", Fault.AUTH, Scope.ACCOUNT),
        ("SOMETHING_NEW", "We cannot say.", Fault.TRANSIENT, Scope.PROVIDER),
    ],
)
async def test_what_an_operation_failed_with_is_the_create_calls_refusal(
    cloud: GoogleCloud, monkeypatch: pytest.MonkeyPatch, code: str, message: str, fault: Fault, scope: Scope
) -> None:
    monkeypatch.setattr(google_cloud, "FAILURES", {CloudFault.NO_CAPACITY: (503, code, message)})
    provider = google(cloud)
    intent = await an_intent(provider)
    cloud.strike(CloudFault.NO_CAPACITY)

    error = await refusal(provider, intent)
    await provider.close()

    assert (error.fault, error.scope, error.may_have_created) == (fault, scope, False)
    assert message in error.detail


async def test_an_operation_that_fails_after_the_call_was_answered_fails_the_node_with_the_reason(
    cloud: GoogleCloud,
) -> None:
    provider = google(cloud, operation_wait_s=0)
    intent = await an_intent(provider)
    cloud.operation_s = 3600
    cloud.strike(CloudFault.NO_CAPACITY)
    handle = await provider.create(intent)
    at_first = await provider.get(handle)
    for operation in cloud.operations.values():
        operation.done_at = 0

    view = await provider.get(handle)
    gone = await provider.terminate(handle)

    await provider.close()
    assert (at_first.condition, view.condition) == (NodeCondition.PENDING, NodeCondition.FAILED)
    assert "ZONE_RESOURCE_POOL_EXHAUSTED" in view.reason
    assert gone
    assert cloud.nodes() == []


async def test_a_node_that_neither_its_zone_nor_its_operations_show_yet_is_not_gone(cloud: GoogleCloud) -> None:
    provider = google(cloud)
    cloud.strike(CloudFault.LATE, delay_s=3600)
    handle = await provider.create(await an_intent(provider))
    cloud.operations.clear()

    view = await provider.get(handle)
    gone = await provider.terminate(handle)

    await provider.close()
    assert view.condition is NodeCondition.PENDING
    assert not gone


async def test_a_list_without_a_zone_that_cannot_be_reached_is_an_error(cloud: GoogleCloud) -> None:
    provider = google(cloud)
    cloud.unreachable = [f"projects/{PROJECT}/zones/us-central1-a"]

    with pytest.raises(ProviderError, match="not whole") as refused:
        await provider.list_owned(new_deployment_id())

    await provider.close()
    assert refused.value.fault is Fault.TRANSIENT


async def test_an_image_that_does_not_exist_is_named(cloud: GoogleCloud) -> None:
    provider = google(cloud)
    intent = await an_intent(provider, options={"image": "projects/nobody/global/images/x"})

    error = await refusal(provider, intent)
    await provider.close()

    assert error.fault is Fault.INVALID
    assert "sourceImage" in error.detail


async def test_a_type_that_left_its_zone_is_no_capacity_there(cloud: GoogleCloud) -> None:
    provider = google(cloud)
    intent = await an_intent(provider)
    cloud.types["us-central1-a"] = []

    error = await refusal(provider, intent)
    await provider.close()

    assert (error.fault, error.scope) == (Fault.NO_CAPACITY, Scope.OFFER)


async def test_nodes_of_others_with_names_like_ours_are_left_alone(cloud: GoogleCloud) -> None:
    provider = google(cloud)
    deployment = new_deployment_id()
    offer = await offer_of(provider, "e2-standard-4")
    ours = await provider.create(make_intent(deployment, offer, Launch(("true",), {})))
    order = dict(cloud.nodes()[0].order)
    cloud.machines.make(f"shn-{deployment}-not-ours", order, 1.0, None, f"us-central1-a/shn-{deployment}-not-ours")

    views = await listed(provider, deployment, 1)

    assert [view.handle for view in views] == [ours]
    await until_terminated(provider, ours)
    await provider.close()
