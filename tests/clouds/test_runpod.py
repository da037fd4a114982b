"""RunPod against a fake of its API v2: the whole kit, and what is peculiar to it."""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from shunter_providers.clouds.runpod import RunpodProvider, jurisdiction_of
from shunter_providers.contract import (
    Availability,
    Fault,
    Instance,
    Intent,
    Launch,
    NodeCondition,
    OfferQuery,
    ProviderError,
    Scope,
)
from shunter_providers.testing import CloudConformance, Unpaced, WireCloud, make_intent
from shunter_providers.testing.conformance import wait_for
from shunter_schemas.ids import new_deployment_id
from support.clouds.runpod import RunpodCloud, gpu

KEY = CloudConformance.secret


def runpod(cloud: WireCloud, **settings: Any) -> RunpodProvider:
    chosen = {"api_key": KEY, "base_url": f"{cloud.url}/v2", "timeout_s": 5.0, **settings}
    return RunpodProvider(Instance("runpod", "runpod", chosen, pacer=Unpaced()))


@pytest.fixture
def cloud() -> Iterator[RunpodCloud]:
    with RunpodCloud(KEY) as running:
        yield running


async def an_intent(provider: RunpodProvider, **changes: Any) -> Intent:
    offer = (await provider.offers(OfferQuery()))[0]
    return replace(make_intent(new_deployment_id(), offer, Launch(("true",), {})), **changes)


class TestRunpod(CloudConformance):
    profile = "container"

    @pytest.fixture
    def cloud(self) -> Iterator[WireCloud]:
        with RunpodCloud(KEY) as running:
            yield running

    @pytest.fixture
    def provider(self, cloud: WireCloud) -> RunpodProvider:
        return runpod(cloud, timeout_s=1.0)

    @pytest.fixture
    def unknown_handle(self) -> str:
        return "0123456789abcd"


async def test_a_data_center_lies_where_its_name_says(cloud: RunpodCloud) -> None:
    provider = runpod(cloud)

    offers = await provider.offers(OfferQuery())

    places = {offer.region: offer.jurisdiction for offer in offers}
    await provider.close()
    assert places == {"EU-RO-1": "RO", "US-TX-3": "US", "EUR-IS-1": "IS", "CA-MTL-1": "CA", "SECURE": ""}


@pytest.mark.parametrize(
    ("name", "country"),
    [("US-TX-3", "US"), ("CA-MTL-1", "CA"), ("EU-RO-1", "RO"), ("EUR-IS-2", "IS"), ("AP-JP-1", "JP"), ("XX-1", "")],
)
def test_the_country_of_a_data_center_is_never_guessed(name: str, country: str) -> None:
    assert jurisdiction_of(name) == country


async def test_what_is_nowhere_to_be_had_is_offered_as_taken(cloud: RunpodCloud) -> None:
    provider = runpod(cloud)

    b200 = [offer for offer in await provider.offers(OfferQuery()) if offer.gpu_model == "B200"]

    await provider.close()
    assert {offer.availability for offer in b200} == {Availability.NONE}


@pytest.mark.parametrize("price", [0, -1, "free", None])
async def test_a_kind_without_a_sane_price_is_no_offer_and_hides_no_other(cloud: RunpodCloud, price: Any) -> None:
    cloud.gpus = [gpu("NVIDIA L4", 24, 1.0, centers=("US-TX-3",)), gpu("NVIDIA A40", 48, 0.4, centers=("US-TX-3",))]
    cloud.gpus[0]["price"]["secure"] = price
    provider = runpod(cloud)

    offers = await provider.offers(OfferQuery())

    await provider.close()
    assert {offer.gpu_model for offer in offers if offer.gpus} == {"A40"}


async def test_the_order_names_one_data_center_one_port_and_no_field_that_the_api_does_not_know(
    cloud: RunpodCloud,
) -> None:
    provider = runpod(cloud)
    await provider.create(await an_intent(provider, public_key="ssh-ed25519 AAAA job", host_key="PRIVATE"))
    await provider.close()

    body = next(call.json() for call in cloud.calls if call.method == "POST")

    assert body["dataCenterIds"] == ["EU-RO-1"]
    assert body["gpu"] == {"id": "NVIDIA H100 80GB HBM3", "count": 1}
    assert body["env"]["PUBLIC_KEY"] == "ssh-ed25519 AAAA job"
    assert body["startSsh"] is True
    assert body["ports"] == ["22/tcp"]


async def test_an_unknown_option_of_a_job_is_named_and_nothing_is_made(cloud: RunpodCloud) -> None:
    provider = runpod(cloud)
    intent = await an_intent(provider, options={"disc_gib": 5})

    with pytest.raises(ProviderError, match=r"placement\.options\.runpod\.disc_gib") as refused:
        await provider.create(intent)

    await provider.close()
    assert refused.value.fault is Fault.INVALID
    assert cloud.nodes() == []


async def test_a_pod_of_a_cluster_is_listed_too(cloud: RunpodCloud) -> None:
    provider = runpod(cloud)
    intent = await an_intent(provider)
    await provider.create(intent)
    cloud.cluster_pods = [{"id": "clusterpod1", "name": "shn-abcdef-zzzzzzzzzzzzzzzz", "status": "RUNNING", "ssh": {}}]

    (view,) = await provider.list_owned("abcdef")

    await provider.close()
    assert (view.handle, view.condition) == ("clusterpod1", NodeCondition.PENDING)


async def test_any_other_400_is_for_the_next_candidate_and_422_is_not(cloud: RunpodCloud) -> None:
    provider = runpod(cloud)
    intent = await an_intent(provider)
    unknown = replace(intent, offer=replace(intent.offer, instance_type="1x NVIDIA Nothing"))
    nameless = replace(intent, image="", offer=replace(intent.offer, gpus=0, cpus=1, instance_type="cpu cpu3c 1"))

    faults = []
    for wrong in (unknown, nameless):
        with pytest.raises(ProviderError) as refused:
            await provider.create(wrong)
        faults.append((refused.value.fault, refused.value.scope))

    await provider.close()
    assert faults == [(Fault.NO_CAPACITY, Scope.OFFER), (Fault.INVALID, Scope.OFFER)]


async def test_the_container_writes_its_files_and_starts_the_agent_with_its_own_id(
    cloud: RunpodCloud, tmp_path: Path
) -> None:
    provider = runpod(cloud)
    hostile = b"\x00'\"$(touch pwned)\n" * 30_000
    program = b'import os, sys; open("started", "w").write(os.environ["SHUNTER_NODE_HANDLE"] + " " + sys.argv[1])'
    launch = Launch(("{python}", "agent.pyz", "it's; $HOME"), {"agent.pyz": program, "data.bin": hostile})
    await provider.create(await an_intent(provider, launch=launch))
    await provider.close()
    body = next(call.json() for call in cloud.calls if call.method == "POST")
    environment = {
        **body["env"],
        "SHUNTER_BOOT": body["env"]["SHUNTER_BOOT"]
        .replace("/opt/shunter", str(tmp_path))
        .replace("exec sh -c", "wait; exit; sh -c"),
        "RUNPOD_POD_ID": "pod123",
        "PATH": "/usr/bin:/bin",
    }

    await asyncio.to_thread(subprocess.run, shlex.split(body["args"]), env=environment, check=True, timeout=30)

    assert (tmp_path / "data.bin").read_bytes() == hostile
    assert (tmp_path / "started").read_text() == "pod123 it's; $HOME"
    assert not (tmp_path / "pwned").exists()
    assert max(len(value) for value in body["env"].values()) < 128 * 1024
    assert json.dumps(body)


async def test_a_node_that_the_service_starts_by_ssh_gets_keys_and_nothing_else_of_ours(cloud: RunpodCloud) -> None:
    provider = runpod(cloud)
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
    assert "ssh-ed25519 AAAA job" in str(body["env"])
    assert "agent" not in str(body)


@pytest.mark.parametrize("command", ["stop pod pod-1", "pod stop pod-1"], ids=["older", "newer"])
def test_a_pod_whose_service_is_gone_stops_itself_by_the_vendor_s_tool(command: str, tmp_path: Path) -> None:
    tool = tmp_path / "runpodctl"
    tool.write_text(f'#!/bin/sh\n[ "$*" = "{command}" ] && touch {tmp_path}/stopped\n')
    tool.chmod(0o755)

    power_off = RunpodProvider.capabilities.power_off.replace("{handle}", "pod-1")
    subprocess.run(["sh", "-c", power_off], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=True)

    assert (tmp_path / "stopped").exists()
