"""How nodes of Azure end: those that could never be made, that were taken away, and what is left of them."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from shunter_providers.clouds.azure.nodes import WATCH
from shunter_providers.contract import Fault, NodeCondition, Scope
from shunter_providers.testing.conformance import listed, until_terminated, wait_for
from support.clouds.azure import AzureCloud
from support.clouds.azure_account import SECRET, an_intent, azure, orders, refusal
from support.clouds.azure_shown import ADDRESSES, DISKS, INTERFACES

HOST_KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaA==\n-----END OPENSSH PRIVATE KEY-----\n"
NO_ROOM = ("AllocationFailed", "Allocation failed. We do not have sufficient capacity for the requested VM size.")


@pytest.fixture
def cloud() -> Iterator[AzureCloud]:
    with AzureCloud(SECRET) as running:
        yield running


async def test_a_spot_node_that_was_taken_away_and_deleted_is_gone_with_all_its_parts(cloud: AzureCloud) -> None:
    provider = azure(cloud)
    handle = await provider.create(await an_intent(provider, capacity="spot"))
    await wait_for(provider, handle, NodeCondition.RUNNING, 10)
    cloud.preempt(handle)

    view = await provider.get(handle)

    await provider.close()
    assert view.condition is NodeCondition.GONE
    assert cloud.nodes() == []


async def test_a_spot_node_that_was_only_deallocated_says_that_it_was_evicted_bills_on_and_is_ended(
    cloud: AzureCloud,
) -> None:
    provider = azure(cloud, eviction="Deallocate")
    intent = await an_intent(provider, capacity="spot")
    handle = await provider.create(intent)
    await wait_for(provider, handle, NodeCondition.RUNNING, 10)
    cloud.preempt(handle)

    view = await provider.get(handle)
    (shown,) = await listed(provider, intent.tags["deployment"], 1)
    await until_terminated(provider, handle)

    await provider.close()
    assert view.condition is shown.condition is NodeCondition.STOPPED
    assert "evicted" in view.reason
    assert "bill on" in shown.reason
    assert cloud.nodes() == []


async def test_a_spot_node_asks_for_the_notice_of_its_end_and_another_does_not(cloud: AzureCloud) -> None:
    provider = azure(cloud)
    await provider.create(await an_intent(provider, capacity="spot", host_key=HOST_KEY))
    await provider.create(await an_intent(provider, host_key=HOST_KEY))

    await provider.close()

    told = [base64.b64decode(call.json()["properties"]["osProfile"]["customData"]) for call in orders(cloud)]
    spot, other = (json.loads(text.decode().partition("\n")[2]) for text in told)
    assert spot["runcmd"] == [["systemd-run", "--unit=shunter-eviction", "sh", "-c", WATCH]]
    assert spot["ssh_keys"] == other["ssh_keys"] == {"ed25519_private": HOST_KEY}
    assert "runcmd" not in other


def test_the_notice_of_its_end_shuts_a_spot_node_down(cloud: AzureCloud, tmp_path: Path) -> None:
    cloud.notices = ["Reboot", "Preempt"]
    (tmp_path / "poweroff").write_text("#!/bin/sh\nkill -TERM $PPID\n")
    (tmp_path / "poweroff").chmod(0o755)
    script = WATCH.replace("http://169.254.169.254", cloud.url).replace("sleep 5", "sleep 0.01")

    ended = subprocess.run(
        ["sh", "-c", script], env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}, timeout=60, check=False
    )

    assert ended.returncode == -15
    assert [call.path for call in cloud.calls] == ["/metadata/scheduledevents"] * 2
    assert cloud.notices == []


async def test_a_node_that_shut_itself_down_is_stopped_and_said_to_bill_on(cloud: AzureCloud) -> None:
    provider = azure(cloud)
    handle = await provider.create(await an_intent(provider))
    await wait_for(provider, handle, NodeCondition.RUNNING, 10)
    cloud.nodes()[0].extra["power"] = "stopped"

    view = await provider.get(handle)

    await provider.close()
    assert view.condition is NodeCondition.STOPPED
    assert "bills on" in view.reason


@pytest.mark.parametrize(
    ("code", "message", "fault", "scope"),
    [
        (*NO_ROOM, Fault.NO_CAPACITY, Scope.OFFER),
        ("OperationNotAllowed", "exceeding approved Total Regional Cores quota.", Fault.QUOTA, Scope.REGION),
        ("OSProvisioningTimedOut", "OS Provisioning did not finish in time.", Fault.TRANSIENT, Scope.PROVIDER),
    ],
)
async def test_what_an_operation_failed_with_is_the_create_calls_refusal_and_its_machine_is_ended(
    cloud: AzureCloud, code: str, message: str, fault: Fault, scope: Scope
) -> None:
    provider = azure(cloud)
    cloud.fails_later = (code, message)

    error = await refusal(provider, await an_intent(provider))
    await provider.close()

    assert (error.fault, error.scope, error.may_have_created) == (fault, scope, False)
    assert code in error.detail
    assert message in error.detail
    assert cloud.nodes() == []


async def test_a_machine_that_could_not_be_made_and_goes_slowly_may_still_be_there(cloud: AzureCloud) -> None:
    provider = azure(cloud)
    cloud.fails_later = NO_ROOM
    cloud.machines.end_s = 0.5
    intent = await an_intent(provider)

    error = await refusal(provider, intent)
    (view,) = await listed(provider, intent.tags["deployment"], 1)
    await until_terminated(provider, view.handle)

    await provider.close()
    assert (error.fault, error.may_have_created) == (Fault.NO_CAPACITY, True)
    assert cloud.nodes() == []


async def test_an_operation_that_fails_after_the_call_was_answered_fails_the_node_with_the_reason(
    cloud: AzureCloud,
) -> None:
    provider = azure(cloud, operation_wait_s=0)
    cloud.fails_later = NO_ROOM
    intent = await an_intent(provider)
    handle = await provider.create(intent)

    view = await wait_for(provider, handle, NodeCondition.FAILED, 10)
    (shown,) = await listed(provider, intent.tags["deployment"], 1)
    await until_terminated(provider, handle)

    await provider.close()
    assert view.reason.startswith("AllocationFailed: ")
    assert shown.condition is NodeCondition.FAILED
    assert cloud.nodes() == []


@pytest.mark.parametrize("kinds", [{INTERFACES, ADDRESSES, DISKS}, {ADDRESSES}, {DISKS}])
async def test_what_a_node_leaves_behind_is_listed_as_the_node_and_ended(cloud: AzureCloud, kinds: set[str]) -> None:
    provider = azure(cloud)
    cloud.leaves = kinds
    intent = await an_intent(provider)
    handle = await provider.create(intent)
    await wait_for(provider, handle, NodeCondition.RUNNING, 10)
    cloud.machines.end(cloud.nodes()[0], None)  # by somebody else

    view = await provider.get(handle)
    (shown,) = await listed(provider, intent.tags["deployment"], 1)
    await until_terminated(provider, handle)

    after = await provider.get(handle)
    await provider.close()
    assert view == shown
    assert (view.condition, view.token) == (NodeCondition.STOPPED, intent.token)
    assert "bill on" in view.reason
    assert after.condition is NodeCondition.GONE
    assert cloud.nodes() == []


async def test_an_interface_that_the_vendor_keeps_for_a_while_is_not_yet_gone(cloud: AzureCloud) -> None:
    provider = azure(cloud)
    cloud.leaves, cloud.reserved_s = {INTERFACES, ADDRESSES}, 0.4
    handle = await provider.create(await an_intent(provider))
    await wait_for(provider, handle, NodeCondition.RUNNING, 10)

    asked = [await provider.terminate(handle), await provider.terminate(handle)]
    await until_terminated(provider, handle)

    await provider.close()
    assert asked == [False, False]
    assert cloud.nodes() == []


async def test_machines_of_others_and_those_with_names_like_ours_are_left_alone(cloud: AzureCloud) -> None:
    provider = azure(cloud)
    intent = await an_intent(provider)
    ours = await provider.create(intent)
    order = {**cloud.nodes()[0].order, "tags": {}}
    for name in (f"shn-{intent.tags['deployment']}-not-ours", "web-1"):
        other = cloud.machines.make(name, order, 1.0, None, f"shunter-eastus/{name}")
        other.extra |= {"left": {DISKS, ADDRESSES}, "suffix": "x"}
        cloud._made.append(other)

    views = await listed(provider, intent.tags["deployment"], 1)

    await until_terminated(provider, ours)
    await provider.close()
    assert [view.handle for view in views] == [ours]
    assert len(cloud.nodes()) == 2
