"""AWS says no: each refusal has its name, its reach and the way out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from shunter_providers.clouds.aws.provider import AwsProvider
from shunter_providers.contract import (
    Fault,
    Instance,
    ProviderError,
    Rate,
    Scope,
)
from shunter_providers.testing import CloudFault, Unpaced
from support.clouds.aws import ACCESS_KEY, AwsCloud
from support.clouds.aws_account import KEY, an_intent, aws, refusal_of
from support.clouds.aws_wire import error


@pytest.fixture
def cloud() -> Iterator[AwsCloud]:
    with AwsCloud(KEY) as running:
        yield running


async def test_missing_capacity_is_not_asked_for_again_though_it_is_told_with_500(cloud: AwsCloud) -> None:
    provider = aws(cloud)
    intent = await an_intent(provider)
    cloud.strike(CloudFault.NO_CAPACITY)

    refused = await refusal_of(provider, intent)

    assert (refused.fault, refused.scope, refused.may_have_created) == (Fault.NO_CAPACITY, Scope.OFFER, False)
    assert len(cloud.queries("RunInstances")) == 1


@pytest.mark.parametrize(
    ("status", "code", "fault", "scope", "unsure"),
    [
        (500, "InsufficientHostCapacity", Fault.NO_CAPACITY, Scope.OFFER, False),
        (400, "SpotMaxPriceTooLow", Fault.NO_CAPACITY, Scope.OFFER, False),
        (400, "MaxSpotInstanceCountExceeded", Fault.QUOTA, Scope.REGION, False),
        (503, "RequestLimitExceeded", Fault.RATE_LIMITED, Scope.ACCOUNT, False),
        (403, "UnauthorizedOperation", Fault.AUTH, Scope.ACCOUNT, False),
        (400, "PendingVerification", Fault.PAYMENT, Scope.ACCOUNT, False),
        (400, "InvalidParameterValue", Fault.INVALID, Scope.OFFER, False),
        (503, "Unavailable", Fault.TRANSIENT, Scope.PROVIDER, True),
        (500, "SomethingNew", Fault.TRANSIENT, Scope.PROVIDER, True),
    ],
)
async def test_a_refusal_has_its_name_whatever_its_status(
    cloud: AwsCloud, monkeypatch: pytest.MonkeyPatch, status: int, code: str, fault: Fault, scope: Scope, unsure: bool
) -> None:
    provider = aws(cloud)
    intent = await an_intent(provider)
    monkeypatch.setattr(cloud, "refusal", lambda struck, delay_s: error(status, code, "No & no."))
    cloud.strike(CloudFault.SERVER_ERROR, on="create")

    refused = await refusal_of(provider, intent)

    assert (refused.fault, refused.scope, refused.may_have_created) == (fault, scope, unsure)
    assert refused.detail == f"{status} {code}: No & no."


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"zone": "eu-west-1a"}, "placement.options.aws.zone"),
        ({"zone": "us-east-1-scl-1a"}, "placement.options.aws.zone"),
        ({"subnet_id": "subnet-0456"}, "placement.options.aws.subnet_id"),
        ({"image_id": "ubuntu"}, "placement.options.aws.image_id"),
        ({"colour": "red"}, "placement.options.aws.colour"),
    ],
)
async def test_an_option_that_would_leave_the_region_or_is_none_is_refused_by_name(
    cloud: AwsCloud, options: dict[str, str], place: str
) -> None:
    provider = aws(cloud)
    intent = await an_intent(provider, options=options)

    refused = await refusal_of(provider, intent)

    assert refused.fault is Fault.INVALID
    assert place in refused.detail
    assert cloud.queries("RunInstances") == []


async def test_an_account_without_a_default_network_or_an_image_is_told_which_setting_to_use(cloud: AwsCloud) -> None:
    provider = aws(cloud)
    intent = await an_intent(provider)
    cloud.has_default_network = False
    without_network = await refusal_of(provider, intent)
    cloud.has_default_network = True

    without_image = await refusal_of(aws(cloud, image_name="none of this name"), intent)

    assert "providers.aws.settings.subnets" in without_network.detail
    assert "providers.aws.settings.image_name" in without_image.detail
    assert {without_network.fault, without_image.fault} == {Fault.INVALID}


def test_a_region_that_does_not_exist_is_refused_with_the_nearest_that_does() -> None:
    settings = {"access_key_id": ACCESS_KEY, "secret_access_key": KEY, "regions": ["eu-cental-1"]}

    with pytest.raises(ProviderError, match="do you mean eu-central-1") as refused:
        AwsProvider(Instance("aws", "aws", settings))

    assert refused.value.fault is Fault.INVALID
    assert KEY not in refused.value.detail


async def test_the_vendors_own_variables_are_taken_and_a_session_token_is_sent_and_signed(cloud: AwsCloud) -> None:
    variables = {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": KEY,
        "AWS_SESSION_TOKEN": "a-session",
        "AWS_DEFAULT_REGION": "eu-north-1",
        "AWS_ENDPOINT_URL": cloud.url,
    }
    provider = AwsProvider(Instance("aws", "aws", environment=variables, pacer=Unpaced()))

    identity = await provider.whoami()

    await provider.close()
    headers = cloud.calls[0].headers
    assert (identity.account, identity.limits["regions"]) == ("123456789012", ["eu-north-1"])
    assert headers["x-amz-security-token"] == "a-session"
    assert "x-amz-security-token" in headers["authorization"].partition("SignedHeaders=")[2]


async def test_a_wrong_secret_is_known_by_its_signature(cloud: AwsCloud) -> None:
    provider = aws(cloud, secret_access_key="another")

    with pytest.raises(ProviderError, match="SignatureDoesNotMatch") as refused:
        await provider.whoami()

    await provider.close()
    assert (refused.value.fault, refused.value.scope) == (Fault.AUTH, Scope.ACCOUNT)


async def test_nothing_is_asked_when_the_account_has_to_wait_for_long(cloud: AwsCloud) -> None:
    class Busy(Unpaced):
        async def take_turn(self, bucket: str, rate: Rate, at_most_s: float) -> float:
            return 100.0

    keys = {"access_key_id": ACCESS_KEY, "secret_access_key": KEY, "base_url": cloud.url}
    provider = AwsProvider(Instance("aws", "aws", keys, pacer=Busy()))

    with pytest.raises(ProviderError) as refused:
        await provider.list_owned("a")

    await provider.close()
    assert (refused.value.fault, refused.value.retry_after_s) == (Fault.RATE_LIMITED, 100.0)
    assert cloud.calls == []


async def test_a_cloud_that_cannot_be_reached_has_made_nothing(cloud: AwsCloud) -> None:
    provider = aws(cloud)
    intent = await an_intent(provider)
    nowhere = aws(cloud, base_url="http://127.0.0.1:9")

    refused = await refusal_of(nowhere, intent)

    await provider.close()
    assert (refused.fault, refused.may_have_created) == (Fault.TRANSIENT, False)
