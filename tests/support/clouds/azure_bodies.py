"""Bodies of the Resource Manager that the fake takes: no unknown field."""

from __future__ import annotations

import base64
import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Tags = Annotated[
    dict[Annotated[str, Field(max_length=512, pattern=r"^[^<>%&\\?/]+$")], Annotated[str, Field(max_length=256)]],
    Field(max_length=50),
]
Delete = Literal["Delete", "Detach"]


class Body(BaseModel):
    """Strict."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Id(Body):
    """A reference."""

    id: str = Field(pattern=r"^/")


class PublicAddressProperties(Body):
    """Of a public address."""

    deleteOption: Delete = "Detach"
    publicIPAllocationMethod: Literal["Static", "Dynamic"] = "Dynamic"
    idleTimeoutInMinutes: int = 4


class Sku(Body):
    """Of a public address."""

    name: Literal["Basic", "Standard"] = "Basic"
    tier: Literal["Regional", "Global"] = "Regional"


class PublicAddress(Body):
    """A public address that is made with its machine."""

    name: str
    tags: Tags = {}
    sku: Sku = Sku()
    properties: PublicAddressProperties = PublicAddressProperties()

    @model_validator(mode="after")
    def _fits(self) -> PublicAddress:
        if self.sku.name == "Standard" and self.properties.publicIPAllocationMethod != "Static":
            raise ValueError("Standard sku publicIp must have AllocationMethod set to Static")
        if self.sku.name == "Basic":
            raise ValueError("Creation of new Basic SKU public IP is not allowed")
        return self


class AddressProperties(Body):
    """Of a network interface's address."""

    subnet: Id
    primary: bool = False
    publicIPAddressConfiguration: PublicAddress | None = None


class Address(Body):
    """A network interface's address."""

    name: str
    properties: AddressProperties


class InterfaceProperties(Body):
    """Of a network interface."""

    ipConfigurations: Annotated[list[Address], Field(min_length=1)]
    primary: bool = False
    deleteOption: Delete = "Detach"
    enableAcceleratedNetworking: bool = False
    networkSecurityGroup: Id | None = None


class Interface(Body):
    """A network interface that is made with its machine."""

    name: str
    tags: Tags = {}
    properties: InterfaceProperties


class NetworkProfile(Body):
    """Of a machine."""

    networkApiVersion: Literal["2020-11-01", "2022-11-01"]
    networkInterfaceConfigurations: Annotated[list[Interface], Field(min_length=1)]


class ManagedDisk(Body):
    """Where a disk lies."""

    storageAccountType: Literal["Standard_LRS", "StandardSSD_LRS", "Premium_LRS"]


class OsDisk(Body):
    """The disk that a machine boots from."""

    createOption: Literal["FromImage"]
    name: str | None = None
    deleteOption: Delete = "Detach"
    diskSizeGB: int | None = Field(default=None, ge=30, le=32767)
    caching: Literal["None", "ReadOnly", "ReadWrite"] = "ReadWrite"
    managedDisk: ManagedDisk | None = None


class Image(Body):
    """What is on it."""

    publisher: str | None = None
    offer: str | None = None
    sku: str | None = None
    version: str | None = None
    id: str | None = None
    communityGalleryImageId: str | None = None
    sharedGalleryImageId: str | None = None


class StorageProfile(Body):
    """Of a machine."""

    imageReference: Image
    osDisk: OsDisk


class PublicKey(Body):
    """Whom a machine lets in."""

    path: str
    keyData: str = Field(pattern=r"^ssh-(rsa|ed25519) [A-Za-z0-9+/=]+( [^\n]*)?$")


class Ssh(Body):
    """How a machine is entered."""

    publicKeys: Annotated[list[PublicKey], Field(min_length=1)]


class Linux(Body):
    """Of a machine with Linux."""

    disablePasswordAuthentication: Literal[True]
    ssh: Ssh


class OsProfile(Body):
    """Of a machine."""

    computerName: str = Field(max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9-]*$")
    adminUsername: str
    linuxConfiguration: Linux
    customData: str | None = Field(default=None, max_length=87380)

    @field_validator("customData")
    @classmethod
    def _is_base64(cls, text: str | None) -> str | None:
        if text is not None:
            base64.b64decode(text, validate=True)
        return text

    @model_validator(mode="after")
    def _fits(self) -> OsProfile:
        if self.adminUsername in ("root", "admin", "administrator", "user", "test"):
            raise ValueError("The Admin Username specified is not allowed")
        wanted = f"/home/{self.adminUsername}/.ssh/authorized_keys"
        if any(key.path != wanted for key in self.linuxConfiguration.ssh.publicKeys):
            raise ValueError(f"Destination path for SSH public keys is currently limited to its default value {wanted}")
        return self


class Hardware(Body):
    """Of a machine."""

    vmSize: str


class Billing(Body):
    """Of a spot machine."""

    maxPrice: float | int = -1

    @model_validator(mode="after")
    def _fits(self) -> Billing:
        if self.maxPrice != -1 and self.maxPrice <= 0:
            raise ValueError("The only supported values for max price are -1 or a decimal greater than zero")
        return self


class BootDiagnostics(Body):
    """Whether the console is kept."""

    enabled: bool


class Diagnostics(Body):
    """Of a machine."""

    bootDiagnostics: BootDiagnostics


class CapacityReservation(Body):
    """What a machine may use."""

    capacityReservationGroup: Id


class Properties(Body):
    """Of a machine."""

    hardwareProfile: Hardware
    storageProfile: StorageProfile
    osProfile: OsProfile
    networkProfile: NetworkProfile
    diagnosticsProfile: Diagnostics | None = None
    priority: Literal["Regular", "Low", "Spot"] = "Regular"
    evictionPolicy: Literal["Deallocate", "Delete"] | None = None
    billingProfile: Billing | None = None
    availabilitySet: Id | None = None
    proximityPlacementGroup: Id | None = None
    capacityReservation: CapacityReservation | None = None

    @model_validator(mode="after")
    def _fits(self) -> Properties:
        if self.priority != "Spot" and self.evictionPolicy is not None:
            raise ValueError("Eviction policy can be set only on Azure Spot Virtual Machines")
        if self.priority != "Spot" and self.billingProfile is not None:
            raise ValueError("Max price is supported only for Azure Spot Virtual Machines")
        if self.priority == "Spot" and self.availabilitySet is not None:
            raise ValueError("Azure Spot Virtual Machine is not supported in Availability Set")
        return self


class Order(Body):
    """`PUT virtualMachines`, as far as the fake goes."""

    location: str
    tags: Tags = {}
    zones: Annotated[list[str], Field(max_length=1)] = []
    properties: Properties


class Group(Body):
    """`PUT resourceGroups`."""

    location: str
    tags: Tags = {}


class Network(Body):
    """`PUT virtualNetworks` and `PUT networkSecurityGroups`."""

    location: str
    tags: Tags = {}
    properties: dict[str, Any]


MACHINE_NAME = re.compile(r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9_])?$")
