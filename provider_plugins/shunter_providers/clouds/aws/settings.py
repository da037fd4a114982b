"""What an operator and a job may say of AWS, and where its regions lie."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from ipaddress import IPv4Network
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr

from shunter_providers.cloud_kit.settings import BaseUrl, CloudSettings
from shunter_providers.jurisdictions import of_region
from shunter_providers.plugin_settings import Variables

# fmt: off
REGIONS: Final[Mapping[str, str]] = {
    "us-east-1":      "US", "us-east-2":      "US", "us-west-1":      "US", "us-west-2":      "US",
    "us-gov-east-1":  "US", "us-gov-west-1":  "US", "ca-central-1":   "CA", "ca-west-1":      "CA",
    "mx-central-1":   "MX", "sa-east-1":      "BR",
    "eu-central-1":   "DE", "eu-central-2":   "CH", "eu-west-1":      "IE", "eu-west-2":      "GB",
    "eu-west-3":      "FR", "eu-north-1":     "SE", "eu-south-1":     "IT", "eu-south-2":     "ES",
    "ap-northeast-1": "JP", "ap-northeast-2": "KR", "ap-northeast-3": "JP", "ap-east-1":      "HK",
    "ap-east-2":      "TW", "ap-south-1":     "IN", "ap-south-2":     "IN", "ap-southeast-1": "SG",
    "ap-southeast-2": "AU", "ap-southeast-3": "ID", "ap-southeast-4": "AU", "ap-southeast-5": "MY",
    "ap-southeast-7": "TH", "me-south-1":     "BH", "me-central-1":   "AE", "il-central-1":   "IL",
    "af-south-1":     "ZA", "cn-north-1":     "CN", "cn-northwest-1": "CN",
}
# fmt: on
"""The country of each. Local zones of a region may lie in another one, and are never used."""


def jurisdiction_of(region: str) -> str:
    """The country of a region; empty for one that is new."""
    return of_region(region, REGIONS)


def is_zone_of(region: str, zone: str) -> bool:
    """Whether it is one of a region's own availability zones, and no local zone, which may lie in another country."""
    return re.fullmatch(rf"{re.escape(region)}[a-z]", zone) is not None


def _split(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _known(region: str) -> str:
    if region not in REGIONS:
        near = get_close_matches(region, REGIONS, 1)
        raise ValueError(f"{region!r} is no region of AWS{f', do you mean {near[0]}?' if near else ''}")
    return region


_Region = Annotated[str, AfterValidator(_known)]


class AwsSettings(CloudSettings):
    """Settings of the `aws` plugin."""

    access_key_id: Annotated[SecretStr, Variables("AWS_ACCESS_KEY_ID")]
    """Of a user or role that may run, describe and terminate instances, make one security group a region, and read the
    price list."""
    secret_access_key: Annotated[SecretStr, Variables("AWS_SECRET_ACCESS_KEY")]
    """Its secret."""
    session_token: Annotated[SecretStr | None, Variables("AWS_SESSION_TOKEN")] = None
    """Of temporary credentials; they end when it does."""
    regions: Annotated[
        tuple[_Region, ...], BeforeValidator(_split), Field(min_length=1), Variables("AWS_REGION", "AWS_DEFAULT_REGION")
    ] = ("us-east-1",)
    """Where nodes may be made, and are looked for; several with commas between. Take out none that still has some."""
    base_url: Annotated[BaseUrl | None, Variables("AWS_ENDPOINT_URL_EC2", "AWS_ENDPOINT_URL")] = None
    """One address for all regions; None: the vendor's own."""
    image_name: str = "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04) *"
    """The newest image of this name is used; `*` stands for anything."""
    image_owner: str = "amazon"
    """Whose image: `amazon`, `self`, or an account's number."""
    ssh_user: str = "ubuntu"
    """As whom the image lets one in."""
    ssh_from: IPv4Network = IPv4Network("0.0.0.0/0")
    """Which addresses the security group lets in by SSH, as a block; set it before the group is made."""
    private_addresses: bool = False
    """The service reaches nodes by their private addresses, and they get no public one from a subnet of `subnets`."""
    subnets: Mapping[_Region, str] = {}
    """By region. Empty: the default network of the account."""
    security_groups: Mapping[_Region, str] = {}
    """By region: a group of your own instead of the one that is made."""
    instance_profile: str = ""
    """Name of an instance profile for nodes; the code of a job can use its role."""
    disk_gib: int = Field(default=200, ge=8, le=16384)
    """Of each node (gp3)."""
    disk_usd_per_gib_month: float = Field(default=0.08, ge=0)
    """What such a disk costs; 0.08 in us-east-1."""
    usd_per_hour: Mapping[str, Annotated[float, Field(gt=0)]] = {}
    """On-demand prices by `TYPE` or `REGION/TYPE`, where yours differ from the vendor's list. A type that has no GPU is
    only offered when it stands here."""


class AwsOptions(BaseModel):
    """What a job may say in `placement.options`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    image_id: str | None = Field(default=None, pattern=r"^ami-[0-9a-f]+$")
    zone: str | None = None
    """An availability zone of the region."""
    subnet_id: str | None = Field(default=None, pattern=r"^subnet-[0-9a-f]+$")
    placement_group: str | None = Field(default=None, min_length=1, max_length=255)
    """An existing group; with strategy `cluster` its nodes lie close together."""
    capacity_reservation_id: str | None = Field(default=None, pattern=r"^cr-[0-9a-f]+$")
    efa: bool = False
    """The node's network interface is an Elastic Fabric Adapter; the image needs its software."""
