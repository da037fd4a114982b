"""Who the `azure` plugin works as: an application or a machine's identity, its token, its subscription, its pace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from shunter_providers.clouds.azure.provider import AzureProvider
from shunter_providers.contract import Fault, Instance, ProviderError, Scope
from shunter_providers.testing import CloudFault, Unpaced
from support.clouds.azure import AzureCloud
from support.clouds.azure_account import SECRET, an_intent, azure, refusal
from support.clouds.azure_words import CLIENT, SUBSCRIPTION, TENANT

VARIABLES = {
    "AZURE_TENANT_ID": TENANT,
    "AZURE_CLIENT_ID": CLIENT,
    "AZURE_CLIENT_SECRET": SECRET,
    "AZURE_SUBSCRIPTION_ID": SUBSCRIPTION,
}


@pytest.fixture
def cloud() -> Iterator[AzureCloud]:
    with AzureCloud(SECRET) as running:
        yield running


def sign_ins(cloud: AzureCloud) -> int:
    return sum(call.path.endswith("/token") for call in cloud.calls)


def settings_refused(settings: Mapping[str, Any], variables: Mapping[str, str]) -> str:
    with pytest.raises(ProviderError) as refused:
        AzureProvider(Instance("azure", "azure", settings, environment=variables))
    assert refused.value.fault is Fault.INVALID
    return refused.value.detail


async def test_one_sign_in_serves_all_calls_and_a_refused_token_is_replaced_by_itself(cloud: AzureCloud) -> None:
    provider = azure(cloud)
    await provider.whoami()
    await provider.whoami()
    before = sign_ins(cloud)
    cloud.token = "another"

    identity = await provider.whoami()

    await provider.close()
    assert (before, sign_ins(cloud)) == (1, 2)
    assert identity.account == SUBSCRIPTION
    assert identity.limits == {
        "name": "Research",
        "state": "Enabled",
        "eastus cores left": 1000,
        "eastus spot cores left": 1000,
    }


async def test_the_vendors_variables_sign_in_and_those_of_an_instance_do(cloud: AzureCloud) -> None:
    settings = {"base_url": cloud.url, "auth_url": cloud.url}
    own = {name.replace("AZURE", "SHUNTER_AZURE_TWO"): value for name, value in VARIABLES.items()}
    first = AzureProvider(Instance("azure", "azure", settings, environment=VARIABLES, pacer=Unpaced()))
    second = AzureProvider(Instance("azure-two", "azure", settings, environment=own, pacer=Unpaced()))

    accounts = [(await provider.whoami()).account for provider in (first, second)]

    await first.close()
    await second.close()
    assert accounts == [SUBSCRIPTION, SUBSCRIPTION]


@pytest.mark.parametrize("client_id", ["", CLIENT])
async def test_the_identity_of_the_machine_signs_in_without_a_secret(cloud: AzureCloud, client_id: str) -> None:
    identity = {"managed_identity": True, "identity_url": cloud.url, "tenant_id": "", "client_secret": None}
    provider = azure(cloud, client_id=client_id, **identity)

    account = (await provider.whoami()).account

    await provider.close()
    assert account == SUBSCRIPTION
    assert cloud.calls[0].headers["metadata"] == "true"
    assert cloud.calls[0].one("client_id") == client_id


async def test_a_secret_that_is_not_taken_is_told_with_its_application_and_never_shown(cloud: AzureCloud) -> None:
    provider = azure(cloud, client_secret="one-that-nobody-knows")

    with pytest.raises(ProviderError) as refused:
        await provider.whoami()

    await provider.close()
    assert (refused.value.fault, refused.value.scope) == (Fault.AUTH, Scope.ACCOUNT)
    assert CLIENT in refused.value.detail
    assert "AADSTS7000215" in refused.value.detail
    assert "one-that-nobody-knows" not in f"{refused.value!r} {provider!r} {provider.connect()._account!r}"


async def test_a_sign_in_that_is_down_is_no_wrong_secret(cloud: AzureCloud) -> None:
    provider = azure(cloud)
    cloud.strike(CloudFault.SERVER_ERROR, times=100)

    with pytest.raises(ProviderError) as refused:
        await provider.whoami()

    await provider.close()
    assert refused.value.fault is Fault.TRANSIENT


async def test_a_subscription_that_is_not_there_or_was_disabled_stops_the_instance(cloud: AzureCloud) -> None:
    elsewhere, ours = azure(cloud, subscription_id="0" * 36), azure(cloud)
    cloud.state = "Disabled"

    with pytest.raises(ProviderError, match="could not be found") as missing:
        await elsewhere.whoami()
    with pytest.raises(ProviderError, match="is disabled") as disabled:
        await ours.whoami()

    await elsewhere.close()
    await ours.close()
    assert (missing.value.fault, missing.value.scope) == (Fault.AUTH, Scope.ACCOUNT)
    assert (disabled.value.fault, disabled.value.scope) == (Fault.PAYMENT, Scope.ACCOUNT)


@pytest.mark.parametrize(
    ("left_out", "said"),
    [
        ("AZURE_SUBSCRIPTION_ID", "AZURE_SUBSCRIPTION_ID"),
        ("AZURE_CLIENT_SECRET", "AZURE_CLIENT_SECRET"),
        ("AZURE_TENANT_ID", "managed_identity"),
    ],
)
def test_without_credentials_the_settings_say_where_they_go(left_out: str, said: str) -> None:
    variables = {name: value for name, value in VARIABLES.items() if name != left_out}

    detail = settings_refused({}, variables)

    assert said in detail
    assert SECRET not in detail


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"regions": "eastuss"}, "do you mean eastus"),
        ({"regions": "East US 2"}, "do you mean eastus2"),
        ({"private_addresses": True}, "private_addresses needs subnets"),
        ({"subnets": {"eastus": "nodes"}}, "subnets.eastus"),
        ({"image": "ubuntu"}, "image"),
        ({"resource_group": "a/../b"}, "resource_group"),
        ({"disk_gb": 100}, "disk_gb"),
    ],
)
def test_a_wrong_setting_is_named_and_the_way_out_is_told(settings: Mapping[str, Any], said: str) -> None:
    assert said in settings_refused(settings, VARIABLES)


async def test_a_wait_that_the_vendor_names_holds_every_call_of_the_account(cloud: AzureCloud) -> None:
    settings = {"base_url": cloud.url, "auth_url": cloud.url, "prices_url": cloud.url}
    provider = AzureProvider(Instance("azure", "azure", settings, environment=VARIABLES))
    intent = await an_intent(provider)
    cloud.strike(CloudFault.RATE_LIMITED, on="create", delay_s=60)
    error = await refusal(provider, intent)
    asked = len(cloud.calls)

    with pytest.raises(ProviderError, match="not asked") as held:
        await provider.whoami()

    await provider.close()
    assert error.retry_after_s == 60
    assert held.value.fault is Fault.RATE_LIMITED
    assert len(cloud.calls) == asked


async def test_a_bucket_that_is_nearly_empty_is_given_time_to_fill(cloud: AzureCloud) -> None:
    held: list[float] = []

    class Notes(Unpaced):
        async def hold_off(self, bucket: str, rate: object, for_s: float) -> None:
            held.append(for_s)

    settings = {"base_url": cloud.url, "auth_url": cloud.url, "prices_url": cloud.url}
    provider = AzureProvider(Instance("azure", "azure", settings, environment=VARIABLES, pacer=Notes()))
    await provider.whoami()
    before = list(held)
    cloud.headers = {"x-ms-ratelimit-remaining-subscription-reads": "3"}

    await provider.whoami()

    await provider.close()
    assert before == []
    assert min(held) > 0


async def test_a_next_page_elsewhere_is_never_followed_with_our_token(cloud: AzureCloud) -> None:
    provider = azure(cloud)

    with pytest.raises(ProviderError, match="not its own address"):
        provider.connect().follow("https://example.com/subscriptions/x?api-version=1")

    await provider.close()
    assert cloud.calls == []
