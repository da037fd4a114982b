"""What an operator and a job may say of Azure, who it is done as, and where its regions lie."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from ipaddress import IPv4Network
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, model_validator

from shunter_providers.cloud_kit.settings import BaseUrl, CloudSettings
from shunter_providers.clouds.azure.arm import Account
from shunter_providers.jurisdictions import of_region
from shunter_providers.plugin_settings import Variables

# fmt: off
REGIONS: Final[Mapping[str, str]] = {
    "australiacentral":   "AU", "australiacentral2":  "AU", "australiaeast":      "AU", "australiasoutheast": "AU",
    "austriaeast":        "AT", "belgiumcentral":     "BE", "brazilsouth":        "BR", "brazilsoutheast":    "BR",
    "canadacentral":      "CA", "canadaeast":         "CA", "centralindia":       "IN", "centralus":          "US",
    "chilecentral":       "CL", "denmarkeast":        "DK", "eastasia":           "HK", "eastus":             "US",
    "eastus2":            "US", "francecentral":      "FR", "francesouth":        "FR", "germanynorth":       "DE",
    "germanywestcentral": "DE", "indonesiacentral":   "ID", "israelcentral":      "IL", "italynorth":         "IT",
    "japaneast":          "JP", "japanwest":          "JP", "jioindiacentral":    "IN", "jioindiawest":       "IN",
    "koreacentral":       "KR", "koreasouth":         "KR", "malaysiawest":       "MY", "mexicocentral":      "MX",
    "newzealandnorth":    "NZ", "northcentralus":     "US", "northeurope":        "IE", "norwayeast":         "NO",
    "norwaywest":         "NO", "polandcentral":      "PL", "qatarcentral":       "QA", "southafricanorth":   "ZA",
    "southafricawest":    "ZA", "southcentralus":     "US", "southeastasia":      "SG", "southindia":         "IN",
    "spaincentral":       "ES", "swedencentral":      "SE", "swedensouth":        "SE", "switzerlandnorth":   "CH",
    "switzerlandwest":    "CH", "uaecentral":         "AE", "uaenorth":           "AE", "uksouth":            "GB",
    "ukwest":             "GB", "westcentralus":      "US", "westeurope":         "NL", "westindia":          "IN",
    "westus":             "US", "westus2":            "US", "westus3":            "US",
}
# fmt: on
"""The country of each."""

_GROUP_NAME: Final = r"^[A-Za-z0-9_()][A-Za-z0-9_().-]{0,88}[A-Za-z0-9_()-]$"
_ID: Final = r"(?i)^/subscriptions/[0-9a-f-]{36}/resourceGroups/[^/]+/providers/"
_SIZE: Final = r"^[A-Za-z0-9_]+$"


def jurisdiction_of(region: str) -> str:
    """The country of a region; empty for one that is new."""
    return of_region(region, REGIONS)


def _split(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _known(region: str) -> str:
    if region not in REGIONS:
        near = get_close_matches(region.lower().replace(" ", ""), REGIONS, 1)
        raise ValueError(f"{region!r} is no region of Azure{f', do you mean {near[0]}?' if near else ''}")
    return region


def _once(regions: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(regions))


_Region = Annotated[str, AfterValidator(_known)]
_Image = Annotated[str, Field(pattern=r"^([^:/]+:[^:/]+:[^:/]+:[^:/]+|/[A-Za-z]+/.+)$")]
UsdPerHour = Annotated[float, Field(gt=0, lt=1e6)]


class AzureSettings(CloudSettings):
    """Settings of the `azure` plugin."""

    tenant_id: Annotated[str, Variables("AZURE_TENANT_ID")] = Field(default="", pattern=r"^[A-Za-z0-9.-]*$")
    """The directory of the application."""
    client_id: Annotated[str, Variables("AZURE_CLIENT_ID")] = ""
    """The application (service principal). It needs the role `Contributor` of the subscription, or of `resource_group`
    beside `Reader` of the subscription. With `managed_identity`: which one, where the machine has several."""
    client_secret: Annotated[SecretStr | None, Variables("AZURE_CLIENT_SECRET")] = None
    managed_identity: bool = False
    """Sign in as the identity of the machine that the service runs on, which has to be one of Azure's."""
    subscription_id: Annotated[str, Variables("AZURE_SUBSCRIPTION_ID")] = Field(pattern=r"(?i)^[0-9a-f-]{36}$")
    """What nodes are billed to."""
    regions: Annotated[
        tuple[_Region, ...],
        BeforeValidator(_split),
        AfterValidator(_once),
        Field(min_length=1),
        Variables("AZURE_REGION"),
    ] = ("eastus",)
    """Where nodes may be made; several with commas between. Nodes are looked for in the whole subscription."""
    base_url: BaseUrl = "https://management.azure.com"
    auth_url: Annotated[BaseUrl, Variables("AZURE_AUTHORITY_HOST")] = "https://login.microsoftonline.com"
    """Where the application signs in."""
    prices_url: BaseUrl = "https://prices.azure.com"
    """Where retail prices are told, to anybody."""
    identity_url: BaseUrl = "http://169.254.169.254"
    """Where a machine asks for the token of its identity."""
    resource_group: str = Field(default="", pattern=rf"^$|{_GROUP_NAME}")
    """An existing group for all nodes. Empty: one for each region is made, `shunter-REGION`."""
    subnets: Mapping[
        _Region, Annotated[str, Field(pattern=rf"{_ID}Microsoft\.Network/virtualNetworks/[^/]+/subnets/")]
    ] = {}
    """By region, the resource id of a subnet. Empty: a network `shunter-REGION` is made in the resource group."""
    security_groups: Mapping[
        _Region, Annotated[str, Field(pattern=rf"{_ID}Microsoft\.Network/networkSecurityGroups/")]
    ] = {}
    """By region, the resource id of a network security group instead of the one that is made. Its nodes must reach each
    other, and the service must reach them by SSH."""
    ssh_from: IPv4Network = IPv4Network("0.0.0.0/0")
    """Which addresses the security group lets in by SSH, as a block; set it before the group is made."""
    private_addresses: bool = False
    """The service reaches nodes by their private addresses, and they get no public one; `subnets` have a way out."""
    image: _Image | None = None
    """`PUBLISHER:OFFER:SKU:VERSION`, or the resource id of an image, also of a gallery. None: Ubuntu, with NVIDIA's
    driver for types with GPUs."""
    user: str = Field(default="ubuntu", pattern=r"^[a-z_][a-z0-9_-]{0,31}$")
    """Who logs in; Azure takes no names such as `root` or `admin`."""
    disk_gib: int = Field(default=128, ge=32, le=32767)
    """Of each node."""
    disk_type: Literal["StandardSSD_LRS", "Premium_LRS"] = "StandardSSD_LRS"
    disk_usd_per_gib_month: float = Field(default=0.075, ge=0)
    """What such a disk costs; it is added to a node's price."""
    address_usd_per_hour: float = Field(default=0.005, ge=0)
    """What a public address costs; it is added too."""
    eviction: Literal["Delete", "Deallocate"] = "Delete"
    """What becomes of a spot node that is taken away. One that is deallocated keeps its disk, which bills on until the
    service has ended it."""
    cpu_types: Annotated[tuple[Annotated[str, Field(pattern=_SIZE)], ...], BeforeValidator(_split)] = ()
    """Types without a GPU that are offered too (`Standard_D4s_v5`); several with commas between."""
    prices: Mapping[str, UsdPerHour] = {}
    """USD an hour of `TYPE` or `TYPE/REGION` where yours differ from the retail price."""
    spot_prices: Mapping[str, UsdPerHour] = {}
    """The same for spot."""
    operation_wait_s: float = Field(default=10.0, ge=0, le=30)
    """How long a create call waits for the vendor to say that there is no capacity."""

    @model_validator(mode="after")
    def _is_whole(self) -> AzureSettings:
        values = {"tenant_id": self.tenant_id, "client_id": self.client_id, "client_secret": self.client_secret}
        missing = [name for name, value in values.items() if not value]
        if not self.managed_identity and missing:
            variables = ", ".join(f"AZURE_{name.upper()}" for name in missing)
            names = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
            way_out = "or managed_identity = true where the service runs on a machine of Azure's"
            raise ValueError(f"{names}: set {variables} or the settings of these names, {way_out}")
        if self.private_addresses and (bare := [region for region in self.regions if region not in self.subnets]):
            raise ValueError(f"private_addresses needs subnets, and {', '.join(bare)} has none")
        return self


class AzureOptions(BaseModel):
    """What a job may say in `placement.options`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    image: _Image | None = None
    zone: Literal["1", "2", "3"] | None = None
    """An availability zone of the region. None: Azure chooses."""
    max_usd_per_hour: UsdPerHour | None = None
    """For spot: a node is taken away when it costs more. None: only when its room is needed."""
    availability_set: str | None = Field(default=None, pattern=rf"{_ID}Microsoft\.Compute/availabilitySets/")
    """The id of an existing set; InfiniBand joins only nodes of one."""
    proximity_placement_group: str | None = Field(
        default=None, pattern=rf"{_ID}Microsoft\.Compute/proximityPlacementGroups/"
    )
    """The id of an existing group, for nodes that should be near each other."""
    capacity_reservation_group: str | None = Field(
        default=None, pattern=rf"{_ID}Microsoft\.Compute/capacityReservationGroups/"
    )
    """The id of a group of reservations to use."""


def account_of(settings: AzureSettings) -> Account:
    """Who signs in, and for what."""
    return Account(
        tenant=settings.tenant_id,
        client_id=settings.client_id,
        secret=settings.client_secret.get_secret_value() if settings.client_secret is not None else "",
        managed=settings.managed_identity,
        subscription=settings.subscription_id.lower(),
        base_url=settings.base_url,
        auth_url=settings.identity_url if settings.managed_identity else settings.auth_url,
        prices_url=settings.prices_url,
        timeout_s=settings.timeout_s,
    )
