"""What an operator and a job may set for Google Cloud, and the service account that it is done as."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from shunter_providers.cloud_kit.settings import BaseUrl, CloudSettings
from shunter_providers.clouds.google_cloud.gce import Account
from shunter_providers.contract import Fault, ProviderError, Scope
from shunter_providers.plugin_settings import Variables

UsdPerHour = Annotated[float, Field(gt=0, lt=1e6)]


class GoogleCloudSettings(CloudSettings):
    """Settings of the `gcp` plugin."""

    credentials_file: Annotated[str, Variables("GOOGLE_APPLICATION_CREDENTIALS")] = ""
    """The path of a service account's key in JSON. Its account needs the role `roles/compute.instanceAdmin.v1`."""
    credentials: SecretStr | None = None
    """The key itself, instead of its path."""
    project: Annotated[
        str, Variables("GOOGLE_CLOUD_PROJECT", "GCE_PROJECT", "GCLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT")
    ] = Field(default="", pattern=r"^([a-z0-9.:-]*)$")
    """Empty: the project of the key."""
    base_url: BaseUrl = "https://compute.googleapis.com"
    auth_url: BaseUrl = "https://accounts.google.com"
    """Where the service account signs in."""
    zones: tuple[str, ...] = ()
    """The only zones to offer; empty: all. A zone (`us-central1-a`) is what offers and `placement.regions` call a
    region."""
    image: str = ""
    """A source image with cloud-init and Google's guest agent (`projects/P/global/images/family/F`). Empty: Ubuntu,
    with NVIDIA's driver for types with GPUs."""
    user: str = Field(default="ubuntu", pattern=r"^[a-z_][a-z0-9_-]{0,31}$")
    """Who logs in."""
    network: str = "global/networks/default"
    """It must let SSH in, and its nodes reach each other, as the default network does."""
    subnetwork: str = ""
    disk_gib: int = Field(default=100, ge=20, le=65536)
    disk_usd_per_gib_month: float = Field(default=0.10, ge=0)
    """What the boot disk adds to a node's price."""
    prices: Mapping[str, UsdPerHour] = Field(default_factory=dict)
    """USD an hour of `TYPE` or `TYPE/REGION` where the catalogue has none or you pay another; CPU types too."""
    spot_prices: Mapping[str, UsdPerHour] = Field(default_factory=dict)
    """The same for spot."""
    operation_wait_s: float = Field(default=20.0, ge=0, le=40)
    """How long a create call waits for the vendor to say that there is no capacity."""


class GoogleCloudOptions(BaseModel):
    """What a job may say in `placement.options`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    image: str | None = None
    reservation: str | None = None
    """The name of a reservation to use."""
    placement_policy: str | None = Field(default=None, pattern=r"^[a-z][a-z0-9-]{0,62}$")
    """The name of a resource policy of the region, for nodes that should be near each other."""


def account_of(settings: GoogleCloudSettings) -> Account:
    """The account; reads the file of its key.

    Raises:
        ProviderError: `AUTH`, with what is wrong with the key.
    """
    where, text = "credentials", ""
    if settings.credentials is not None:
        text = settings.credentials.get_secret_value()
    else:
        where = f"credentials_file {settings.credentials_file}"
        try:
            text = Path(settings.credentials_file).expanduser().read_text(encoding="utf-8")
        except (OSError, ValueError) as exc:
            raise _wrong(where, (exc.strerror if isinstance(exc, OSError) else None) or "it is no text") from None
    email, private_key, project = _key_of(text, where)
    if not settings.project and not project:
        raise _wrong(where, "it names no project: set project (the variable GOOGLE_CLOUD_PROJECT)")
    return Account(
        email=email,
        private_key=private_key,
        project=settings.project or project,
        base_url=settings.base_url,
        auth_url=settings.auth_url,
        timeout_s=settings.timeout_s,
    )


def _key_of(text: str, where: str) -> tuple[str, str, str]:
    try:
        key = json.loads(text)
    except ValueError:
        raise _wrong(where, "it is no JSON") from None
    kind = key.get("type") if isinstance(key, dict) else None
    if kind != "service_account":
        raise _wrong(where, f"it is {kind or 'no key'}, and the key of a service account is needed")
    parts = [key.get(name) for name in ("client_email", "private_key")]
    email, private_key = (part if isinstance(part, str) else "" for part in parts)
    if not email or not private_key:
        raise _wrong(where, "client_email or private_key is missing")
    return email, private_key, str(key.get("project_id") or "")


def _wrong(where: str, why: str) -> ProviderError:
    return ProviderError(Fault.AUTH, f"{where}: {why}", scope=Scope.ACCOUNT)
