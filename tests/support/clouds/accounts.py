"""The fakes of all clouds by plugin: how to run one, and what an instance's settings for it are.

Every account has a secret of its own: calls of accounts with the same one share a pace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from shunter_providers.testing import WireCloud
from support.clouds import aws, azure_market, azure_words, google_cloud, ovh
from support.clouds.aws import AwsCloud
from support.clouds.azure import AzureCloud
from support.clouds.coreweave import CoreweaveCluster
from support.clouds.digitalocean import DigitaloceanCloud
from support.clouds.google_cloud import GoogleCloud
from support.clouds.hetzner_robot import HetznerRobotCloud
from support.clouds.kubernetes import KubernetesCluster
from support.clouds.lambda_cloud import LambdaCloud
from support.clouds.ovh import OvhCloud
from support.clouds.paperspace import PaperspaceCloud
from support.clouds.runpod import RunpodCloud
from support.clouds.vast import VastCloud


class Fake(NamedTuple):
    """Of one plugin."""

    cloud: Callable[..., WireCloud]
    """Takes the account's secret, and what every fake takes."""
    settings: Callable[[str, str], dict[str, Any]]
    """By its URL and the secret that the operator has."""


FAKES: Final[Mapping[str, Fake]] = {
    "aws": Fake(
        AwsCloud,
        lambda url, secret: {
            "access_key_id": aws.ACCESS_KEY,
            "secret_access_key": secret,
            "base_url": url,
            "usd_per_hour": {"m7i.large": 0.2},
        },
    ),
    "coreweave": Fake(
        CoreweaveCluster,
        lambda url, secret: {
            "server": url,
            "token": secret,
            "namespace": "training",
            "prices": {"turin-gp": 2.0, "gd-8xh100ib-i128": 50.0},
        },
    ),
    "azure": Fake(
        AzureCloud,
        lambda url, secret: {
            "tenant_id": azure_words.TENANT,
            "client_id": azure_words.CLIENT,
            "client_secret": secret,
            "subscription_id": azure_words.SUBSCRIPTION,
            "base_url": url,
            "auth_url": url,
            "prices_url": url,
            "cpu_types": azure_market.CPU,
        },
    ),
    "digitalocean": Fake(DigitaloceanCloud, lambda url, secret: {"api_key": secret, "base_url": url}),
    "gcp": Fake(
        GoogleCloud,
        lambda url, secret: {
            "credentials": google_cloud.key_file(),
            "base_url": url,
            "auth_url": url,
            "prices": {"e2-standard-4": 0.134},
        },
    ),
    "hetzner-robot": Fake(
        HetznerRobotCloud,
        lambda url, secret: {
            "user": "#ws+test",
            "password": secret,
            "base_url": url,
            "usd_per_eur": 1.25,
            "dist": "Ubuntu with CUDA",
        },
    ),
    "kubernetes": Fake(
        KubernetesCluster,
        lambda url, secret: {
            "server": url,
            "token": secret,
            "namespace": "training",
            "jurisdictions": {"eu-de-*": "DE"},
        },
    ),
    "lambda": Fake(LambdaCloud, lambda url, secret: {"api_key": secret, "base_url": f"{url}/api/v1"}),
    "ovh": Fake(
        OvhCloud,
        lambda url, secret: {
            "auth_url": f"{url}/v3",
            "price_url": f"{url}/1.0",
            "user": ovh.USER,
            "password": secret,
            "project_id": ovh.PROJECT,
            "usd_per_eur": 1.25,
        },
    ),
    "paperspace": Fake(PaperspaceCloud, lambda url, secret: {"api_key": secret, "base_url": f"{url}/v1"}),
    "runpod": Fake(RunpodCloud, lambda url, secret: {"api_key": secret, "base_url": f"{url}/v2"}),
    "vast": Fake(VastCloud, lambda url, secret: {"api_key": secret, "base_url": url}),
}
