"""OVHcloud against a real Keystone, nova and placement, from their packages: what our fake may have wrong with us.

glance, neutron and the price list are the fake's. The first run makes an environment for them, which takes minutes, and
keeps it in pytest's cache.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest
from shunter_providers.clouds.ovh import openstack
from shunter_providers.clouds.ovh import provider as provider_of_ovh
from shunter_providers.clouds.ovh.provider import OvhProvider
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
from shunter_providers.testing import CloudConformance, Unpaced, WireCloud, conformance, make_intent
from shunter_providers.testing.conformance import listed, until_terminated, wait_for
from shunter_schemas.ids import new_deployment_id
from support.clouds.accounts import FAKES
from support.clouds.nova import NovaCloud, furnish
from support.clouds.nova_probes import ANSWERS, Probed, answers_of
from support.clouds.real_openstack import PROJECT, USER, Nova, environment, running

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1200)]

SECRET = CloudConformance.secret
HOST_KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaA==\n-----END OPENSSH PRIVATE KEY-----\n"


@pytest.fixture(scope="module")
def nova(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nova]:
    with running(environment(pytestconfig), tmp_path_factory.mktemp("openstack"), SECRET) as nova:
        furnish(nova)
        yield nova


@pytest.fixture(scope="module")
def port() -> int:
    """Always the same one: Keystone tells where services are."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        found: int = listener.getsockname()[1]
        return found


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a real nova takes its time, and nothing is proven here by how long that is."""
    monkeypatch.setattr(conformance, "_GONE_WITHIN_S", 300.0)
    monkeypatch.setattr(openstack, "_WITHIN_S", 200.0)
    monkeypatch.setattr(provider_of_ovh, "_CALL_WITHIN_S", 240.0)
    monkeypatch.setattr(OvhProvider, "capabilities", replace(OvhProvider.capabilities, create_timeout_s=300.0))


@pytest.fixture
def cloud(nova: Nova, port: int) -> Iterator[NovaCloud]:
    with NovaCloud(nova, SECRET).listening_at(port) as cloud:
        yield cloud
        cloud.calm()


@pytest.fixture
def provider(cloud: NovaCloud) -> OvhProvider:
    return ovh(cloud)


def ovh(cloud: WireCloud, **changes: str) -> OvhProvider:
    chosen = {**FAKES["ovh"].settings(cloud.url, SECRET), "project_id": PROJECT, "timeout_s": 40.0, **changes}
    return OvhProvider(Instance("ovh", "ovh", chosen, pacer=Unpaced()))


async def an_intent(provider: OvhProvider, name: str = "b3-8") -> Intent:
    offer = next(one for one in await provider.offers(OfferQuery()) if one.instance_type == name)
    return make_intent(new_deployment_id(), offer, Launch(("true",), {}))


class TestOvhOnNova(CloudConformance):
    @pytest.fixture
    def unknown_handle(self) -> str:
        return "GRA11/01234567-89ab-cdef-0123-456789abcdef"


async def test_keys_and_tags_are_taken_and_the_address_is_known(provider: OvhProvider, cloud: NovaCloud) -> None:
    intent = replace(await an_intent(provider, "h100-380"), public_key="ssh-ed25519 AAAA job", host_key=HOST_KEY)
    handle = await provider.create(intent)
    view = await wait_for(provider, handle, NodeCondition.RUNNING, 200)

    (server,) = cloud.nova.servers()
    console = await provider.console(handle)

    await until_terminated(provider, handle)
    await provider.close()
    assert server["metadata"] == {"shunter-deployment": intent.tags["deployment"], "shunter-job": "job_conformance"}
    assert view.ssh is not None
    assert view.addresses == {"public": view.ssh.host}
    assert "CONSOLE" in console


async def test_a_node_for_which_there_is_no_host_has_failed_with_the_reason_and_is_ended(
    provider: OvhProvider, cloud: NovaCloud
) -> None:
    intent = await an_intent(provider, "h100-1520")
    handle = await provider.create(intent)
    view = await wait_for(provider, handle, NodeCondition.FAILED, 200)

    (still_listed,) = await listed(provider, intent.tags["deployment"], 1)
    await until_terminated(provider, handle)

    await provider.close()
    assert still_listed.handle == handle
    assert "No valid host was found" in view.reason
    assert view.fault is Fault.NO_CAPACITY
    assert cloud.nodes() == []


@pytest.mark.parametrize(
    ("quota", "said"), [({"cores": 30}, "cores"), ({"ram": 400_000}, "ram"), ({"instances": 1}, "instances")]
)
async def test_each_quota_is_told_before_a_create_and_refuses_one(
    provider: OvhProvider, cloud: NovaCloud, quota: dict[str, int], said: str
) -> None:
    intent = await an_intent(provider, "h100-380")
    handle = await provider.create(intent)
    await wait_for(provider, handle, NodeCondition.RUNNING, 200)
    cloud.nova.limit(**quota)

    offers = {offer.instance_type: offer.availability for offer in await provider.offers(OfferQuery())}
    with pytest.raises(ProviderError, match=f"Quota exceeded for {said}") as refused:
        await provider.create(await an_intent(provider, "h100-380"))

    await until_terminated(provider, handle)
    await provider.close()
    assert offers["h100-380"] is Availability.NO_QUOTA
    assert (refused.value.fault, refused.value.scope) == (Fault.QUOTA, Scope.REGION)
    assert not refused.value.may_have_created


async def test_a_node_that_is_ended_before_anything_took_it_up_is_gone_for_good(
    provider: OvhProvider, cloud: NovaCloud
) -> None:
    cloud.nova.control(hold_builds=1)
    handle = await provider.create(await an_intent(provider))
    before = await provider.get(handle)
    console = await provider.console(handle)
    await until_terminated(provider, handle)
    cloud.nova.control(release=True)

    after = await provider.get(handle)

    await provider.close()
    assert (before.condition, console) == (NodeCondition.PENDING, "")
    assert after.condition is NodeCondition.GONE
    assert cloud.nodes() == []


async def test_the_console_of_a_node_that_is_gone_is_empty(provider: OvhProvider) -> None:
    handle = await provider.create(await an_intent(provider))
    await until_terminated(provider, handle)

    told = await provider.console(handle)

    await provider.close()
    assert told == ""


async def test_one_sign_in_serves_all_calls_and_a_revoked_token_is_replaced_by_itself(
    provider: OvhProvider, cloud: NovaCloud
) -> None:
    await provider.list_owned(new_deployment_id())
    await provider.offers(OfferQuery())
    before = [call.path for call in cloud.calls].count("/v3/auth/tokens")
    cloud.revoke()

    await provider.list_owned(new_deployment_id())

    await provider.close()
    assert before == 1
    assert [call.path for call in cloud.calls].count("/v3/auth/tokens") == 2


@pytest.mark.parametrize(
    "changes", [{"password": "a-password-that-is-wrong"}, {"user": "nobody"}, {"project_id": "f" * 32}]
)
async def test_credentials_that_keystone_does_not_take_are_told_as_such_and_never_shown(
    cloud: NovaCloud, changes: dict[str, str]
) -> None:
    provider = ovh(cloud, **changes)

    with pytest.raises(ProviderError) as refused:
        await provider.whoami()

    await provider.close()
    assert (refused.value.fault, refused.value.scope) == (Fault.AUTH, Scope.ACCOUNT)
    assert changes.get("password", SECRET) not in refused.value.detail + repr(provider)


def test_its_answers_are_those_that_were_recorded_for_the_fake(nova: Nova, cloud: NovaCloud) -> None:
    flavor = next(one["id"] for one in nova.as_admin("GET", "/flavors")["flavors"] if one["name"] == "b3-8")
    ask = partial(nova.ask, token=nova.keystone.token(USER, SECRET))
    probed = Probed(ask, lambda cores: nova.limit(cores=cores), flavor, nova.image, nova.network)

    answers = answers_of(probed)

    if not ANSWERS.exists():  # delete it to record it anew
        ANSWERS.write_text(json.dumps(answers, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    assert answers == json.loads(ANSWERS.read_text(encoding="utf-8"))
