"""What an operator and a job may set for OVHcloud."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from shunter_providers.cloud_kit.settings import BaseUrl, CloudSettings
from shunter_providers.plugin_settings import Variables


class OvhSettings(CloudSettings):
    """Settings of the `ovh` plugin: those of OpenStack, as its `openrc.sh` has them."""

    auth_url: Annotated[BaseUrl, Variables("OS_AUTH_URL")] = "https://auth.cloud.ovh.net/v3"
    user: Annotated[str, Variables("OS_USERNAME")] = Field(min_length=1)
    """An OpenStack user of the project with the role `compute_operator`."""
    password: Annotated[SecretStr, Variables("OS_PASSWORD")]
    project_id: Annotated[str, Variables("OS_PROJECT_ID", "OS_TENANT_ID")] = Field(pattern=r"^[0-9a-f]{32}$")
    user_domain: Annotated[str, Variables("OS_USER_DOMAIN_NAME")] = "Default"
    regions: tuple[str, ...] = ()
    """The only regions to use. Empty: all of the project."""
    price_url: BaseUrl = "https://eu.api.ovh.com/1.0"
    """Where the price list is; `https://ca.api.ovh.com/1.0` and `https://api.us.ovhcloud.com/1.0` are the others."""
    subsidiary: str = Field(default="FR", pattern=r"^[A-Z]{2,4}$")
    """Whose prices: of the account's own subsidiary, such as `FR`, `DE`, `US`."""
    usd_per_eur: float | None = Field(default=None, gt=0, lt=100)
    """What a euro is worth in USD. Without it nothing is offered that is billed in euros."""
    image: str = "Ubuntu 24.04"
    gpu_image: str = "NVIDIA GPU Cloud (NGC)"
    """The name of the image for flavors with GPUs: one with cloud-init and NVIDIA's driver."""
    user_name: str = Field(default="ubuntu", pattern=r"^[a-z_][a-z0-9_-]{0,31}$")
    """Who logs in."""
    networks: tuple[str, ...] = ("Ext-Net",)
    """Networks of a node by name; the first is the public one. Add a private one (vRack) for jobs on several nodes."""


class OvhOptions(BaseModel):
    """What a job may say in `placement.options`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    image: str | None = Field(default=None, min_length=1)
