"""Paperspace against a fake of its API v1: the whole kit, and what is peculiar to it."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from shunter_providers.clouds.paperspace import PaperspaceProvider, jurisdiction_of
from shunter_providers.contract import (
    Availability,
    Fault,
    Instance,
    Intent,
    Launch,
    NodeCondition,
    OfferQuery,
    Provider,
    ProviderError,
    Scope,
)
from shunter_providers.testing import CloudConformance, CloudFault, Reply, Unpaced, WireCloud, make_intent
from shunter_providers.testing.conformance import listed, until_terminated, wait_for
from shunter_schemas.ids import new_deployment_id
from support.clouds.paperspace import PaperspaceCloud

KEY = CloudConformance.secret
PUBLIC = "ssh-ed25519 AAAA $(touch pwned)'\""
PRIVATE = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaA==\n-----END OPENSSH PRIVATE KEY-----\n"


def paperspace(cloud: WireCloud, **settings: Any) -> PaperspaceProvider:
    chosen = {"api_key": KEY, "base_url": f"{cloud.url}/v1", "timeout_s": 5.0, **settings}
    return PaperspaceProvider(Instance("paperspace", "paperspace", chosen, pacer=Unpaced()))


@pytest.fixture
def cloud() -> Iterator[PaperspaceCloud]:
    with PaperspaceCloud(KEY) as running:
        yield running


async def an_intent(provider: Provider, instance_type: str = "H100", **changes: Any) -> Intent:
    offers = await provider.offers(OfferQuery())
    offer = next(offer for offer in offers if offer.instance_type == instance_type)
    return replace(make_intent(new_deployment_id(), offer, Launch((), {})), **changes)


def body_of(cloud: PaperspaceCloud, ending: str) -> dict[str, Any]:
    body: dict[str, Any] = next(
        call.json() for call in cloud.calls if call.method == "POST" and call.path.endswith(ending)
    )
    return body


class TestPaperspace(CloudConformance):
    @pytest.fixture
    def cloud(self) -> Iterator[WireCloud]:
        with PaperspaceCloud(KEY) as running:
            yield running

    @pytest.fixture
    def provider(self, cloud: WireCloud) -> PaperspaceProvider:
        return paperspace(cloud, timeout_s=1.0)

    @pytest.fixture
    def unknown_handle(self) -> str:
        return "ps0123456789"


async def test_prices_are_of_the_catalogue_and_say_so_and_availability_is_of_now(cloud: PaperspaceCloud) -> None:
    provider = paperspace(cloud)

    offers = {offer.instance_type: offer for offer in await provider.offers(OfferQuery())}

    await provider.close()
    h100, a100 = offers["H100"], offers["A100"]
    assert (h100.price.gpu_usd_per_hour, h100.price.live, h100.price.as_of, h100.price.confidence) == (
        5.95,
        False,
        "2024",
        "stale",
    )
    assert (h100.gpu_model, h100.gpus, h100.gpu_memory_gib, h100.region, h100.jurisdiction) == (
        "H100",
        1,
        80,
        "ny2",
        "US",
    )
    assert (h100.availability, a100.availability) == (Availability.AVAILABLE, Availability.NONE)


async def test_a_type_that_the_vendor_does_not_answer_for_is_of_unknown_availability(cloud: PaperspaceCloud) -> None:
    provider = paperspace(cloud)
    cloud._availability = lambda request: Reply(404, {"code": "NOT_FOUND", "message": "no such type"})  # type: ignore[method-assign]

    offers = await provider.offers(OfferQuery())

    await provider.close()
    assert {offer.availability for offer in offers} == {Availability.UNKNOWN}


@pytest.mark.parametrize(("region", "country"), [("ny2", "US"), ("ca1", "US"), ("ams1", "NL"), ("new1", "")])
def test_the_country_of_a_region_is_never_guessed(region: str, country: str) -> None:
    assert jurisdiction_of(region) == country


async def test_a_session_of_nobody_is_a_key_that_is_not_valid(cloud: PaperspaceCloud) -> None:
    cloud.session_is_there = False
    provider = paperspace(cloud)

    with pytest.raises(ProviderError, match="belongs to nobody") as refused:
        await provider.whoami()

    await provider.close()
    assert (refused.value.fault, refused.value.scope) == (Fault.AUTH, Scope.ACCOUNT)


@pytest.mark.parametrize(("instance_type", "template"), [("H100", "tmlinabx"), ("H100x8", "tubuntu1")])
async def test_the_template_with_drivers_is_taken_that_suits_the_type(
    cloud: PaperspaceCloud, instance_type: str, template: str
) -> None:
    provider = paperspace(cloud)
    await provider.create(await an_intent(provider, instance_type))
    await provider.close()

    body = body_of(cloud, "/machines")

    assert body["templateId"] == template
    assert body["enableNvlink"] is (instance_type == "H100x8")
    assert body["emailPassword"] is False


async def test_a_type_that_no_template_suits_is_told_with_the_way_out(cloud: PaperspaceCloud) -> None:
    cloud.templates = cloud.templates[:1]
    provider = paperspace(cloud)
    intent = await an_intent(provider)

    with pytest.raises(ProviderError, match="set template_id") as refused:
        await provider.create(intent)

    await provider.close()
    assert refused.value.fault is Fault.INVALID


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"template_id": "tnothing"}, "Template not found"),
        ({"disk_gib": 51}, "diskSize"),
        ({"disc_gib": 50}, r"placement\.options\.paperspace\.disc_gib"),
    ],
)
async def test_options_that_cannot_be_are_named_and_leave_nothing(
    cloud: PaperspaceCloud, options: dict[str, Any], said: str
) -> None:
    provider = paperspace(cloud)
    intent = await an_intent(provider, options=options, public_key="ssh-ed25519 AAAA job")

    with pytest.raises(ProviderError, match=said) as refused:
        await provider.create(intent)

    await provider.close()
    assert refused.value.fault is Fault.INVALID
    assert cloud.nodes() == []
    assert cloud.scripts == {}


async def test_keys_come_by_a_script_of_the_nodes_own_that_goes_with_it(cloud: PaperspaceCloud) -> None:
    provider = paperspace(cloud)
    launch = Launch(("{python}", "agent.pyz"), {"agent.pyz": b"x" * 300_000})
    intent = await an_intent(provider, public_key=PUBLIC, host_key=PRIVATE, launch=launch)
    handle = await provider.create(intent)
    view = await wait_for(provider, handle, NodeCondition.RUNNING, 10)
    registered = [script["name"] for script in cloud.scripts.values()]
    used = body_of(cloud, "/machines")["startupScriptId"] in cloud.scripts

    await until_terminated(provider, handle)

    await provider.close()
    assert view.ssh is not None
    assert (view.ssh.host, view.ssh.port, view.ssh.user) == ("127.0.0.1", 22, "paperspace")
    assert view.addresses == {"public": "127.0.0.1", "private": "10.64.13.4"}
    assert registered == [intent.token]
    assert used
    assert cloud.scripts == {}


async def test_the_script_puts_both_keys_in_place_and_no_shell_reads_them(
    cloud: PaperspaceCloud, tmp_path: Path
) -> None:
    provider = paperspace(cloud)
    await provider.create(await an_intent(provider, public_key=PUBLIC, host_key=PRIVATE))
    await provider.close()
    (tmp_path / "etc/ssh").mkdir(parents=True)
    (tmp_path / "etc/ssh/ssh_host_rsa_key").write_text("of the image")
    script = body_of(cloud, "/startup-scripts")["script"]
    commands = script.replace("/home", f"{tmp_path}/home").replace("/etc", f"{tmp_path}/etc")
    commands = commands.replace("systemctl restart ssh", "true").replace("chown -R paperspace:", "true")

    await asyncio.to_thread(subprocess.run, ["sh", "-ec", commands], cwd=tmp_path, check=True, timeout=30)

    assert (tmp_path / "home/paperspace/.ssh/authorized_keys").read_text() == f"{PUBLIC}\n"
    assert [file.name for file in (tmp_path / "etc/ssh").iterdir()] == ["ssh_host_ed25519_key"]
    assert (tmp_path / "etc/ssh/ssh_host_ed25519_key").read_text() == PRIVATE
    assert not (tmp_path / "pwned").exists()


async def test_a_script_whose_machine_was_refused_is_forgotten_and_that_of_a_lost_reply_is_kept(
    cloud: PaperspaceCloud,
) -> None:
    provider = paperspace(cloud)
    refused = await an_intent(provider, public_key="ssh-ed25519 AAAA job")
    lost = await an_intent(provider, public_key="ssh-ed25519 AAAA job")
    for intent, fault in ((refused, CloudFault.NO_CAPACITY), (lost, CloudFault.LOST_REPLY)):
        cloud.strike(fault, on="create")
        with pytest.raises(ProviderError):
            await provider.create(intent)

    kept = [script["name"] for script in cloud.scripts.values()]

    (view,) = await listed(provider, lost.tags["deployment"], 1)
    await until_terminated(provider, view.handle)
    await provider.close()
    assert kept == [lost.token]
    assert cloud.scripts == {}


async def test_a_machine_whose_creation_failed_after_it_was_accepted_has_failed_in_the_vendors_words(
    cloud: PaperspaceCloud,
) -> None:
    provider = paperspace(cloud)
    cloud.strike(CloudFault.NEVER_BOOTS)
    intent = await an_intent(provider)
    handle = await provider.create(intent)
    await listed(provider, intent.tags["deployment"], 1)
    cloud.nodes()[0].extra["event"] = {"state": "error", "error": None}
    wordless = await provider.get(handle)
    cloud.nodes()[0].extra["event"] = {"state": "error", "error": "no host has room"}

    failed = await provider.get(handle)

    await provider.close()
    assert wordless.condition is NodeCondition.PENDING
    assert (failed.condition, failed.token) == (NodeCondition.FAILED, intent.token)
    assert "no host has room" in failed.reason


async def test_a_machine_that_is_off_while_it_is_made_is_not_lost_but_one_that_was_switched_off_is(
    cloud: PaperspaceCloud,
) -> None:
    provider = paperspace(cloud)
    intent = await an_intent(provider)
    await provider.create(intent)
    deployment = intent.tags["deployment"]
    await listed(provider, deployment, 1)
    node = cloud.nodes()[0]
    node.extra |= {"state": "off", "event": {"state": "in progress"}}
    (made,) = await provider.list_owned(deployment)
    node.extra["event"] = {"state": "done"}

    (off,) = await provider.list_owned(deployment)

    await provider.close()
    assert made.condition is NodeCondition.PENDING
    assert (off.condition, off.reason) == (NodeCondition.STOPPED, "it is switched off")
