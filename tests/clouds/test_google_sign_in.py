"""The service account that Google Cloud's plugin works as: its key, its token, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from shunter_providers.clouds.google_cloud.provider import GoogleCloudProvider
from shunter_providers.contract import Fault, Instance, ProviderError, Scope
from shunter_providers.testing import CloudConformance, Unpaced
from support.clouds import google_cloud
from support.clouds.google_cloud import EMAIL, PROJECT, GoogleCloud

TOKEN = CloudConformance.secret


def google(cloud: GoogleCloud, **settings: Any) -> GoogleCloudProvider:
    chosen = {"credentials": google_cloud.key_file(), "base_url": cloud.url, "auth_url": cloud.url, **settings}
    return GoogleCloudProvider(Instance("gcp", "gcp", chosen, pacer=Unpaced()))


@pytest.fixture
def cloud() -> Iterator[GoogleCloud]:
    with GoogleCloud(TOKEN) as running:
        yield running


async def test_one_sign_in_serves_all_calls_and_a_refused_token_is_replaced_by_itself(cloud: GoogleCloud) -> None:
    provider = google(cloud)
    await provider.whoami()
    await provider.whoami()
    signed_in = [call.path for call in cloud.calls].count("/o/oauth2/token")
    cloud._token = "another"

    identity = await provider.whoami()

    await provider.close()
    assert signed_in == 1
    assert identity.account == PROJECT
    assert identity.limits == {"GPUS_ALL_REGIONS": 16.0}


async def test_a_key_that_was_revoked_is_told_with_the_account_and_never_shown(cloud: GoogleCloud) -> None:
    other = google_cloud.key_file(rsa.generate_private_key(public_exponent=65537, key_size=1024))
    provider = google(cloud, credentials=other)

    with pytest.raises(ProviderError) as refused:
        await provider.whoami()

    await provider.close()
    assert refused.value.fault is Fault.AUTH
    assert EMAIL in refused.value.detail
    assert "invalid_grant" in refused.value.detail
    assert "PRIVATE KEY" not in refused.value.detail + repr(provider)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        ("{", "no JSON"),
        ("[]", "no key"),
        ('{"type": "authorized_user"}', "authorized_user"),
        ('{"type": "service_account", "client_email": "a@b"}', "private_key is missing"),
        ('{"type": "service_account", "client_email": "a@b", "private_key": "x"}', "GOOGLE_CLOUD_PROJECT"),
        ('{"type": "service_account", "client_email": "a@b", "private_key": "x", "project_id": "p"}', "PEM"),
    ],
)
async def test_a_key_file_that_is_none_is_told_by_its_path(
    cloud: GoogleCloud, tmp_path: Path, content: str | None, said: str
) -> None:
    path = tmp_path / "key.json"
    if content is not None:
        path.write_text(content)
    settings = {"base_url": cloud.url, "auth_url": cloud.url}
    environment = {"GOOGLE_APPLICATION_CREDENTIALS": str(path)}
    provider = GoogleCloudProvider(Instance("gcp", "gcp", settings, environment=environment, pacer=Unpaced()))

    with pytest.raises(ProviderError, match=said) as refused:
        await provider.whoami()

    await provider.close()
    assert (refused.value.fault, refused.value.scope) == (Fault.AUTH, Scope.ACCOUNT)


def test_without_a_key_the_settings_say_where_it_goes() -> None:
    with pytest.raises(ProviderError, match="GOOGLE_APPLICATION_CREDENTIALS") as refused:
        GoogleCloudProvider(Instance("gcp", "gcp", {}))

    assert refused.value.fault is Fault.INVALID
