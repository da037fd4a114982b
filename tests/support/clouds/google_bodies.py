"""Bodies of the Compute API that the fake takes: no unknown field, and 64-bit numbers as text."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

NAME = r"^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$"
Int64 = Annotated[str, Field(pattern=r"^\d+$")]
Label = Annotated[str, Field(pattern=r"^[_\-a-z0-9]{0,63}$")]
LabelKey = Annotated[str, Field(pattern=r"^[a-z][_\-a-z0-9]{0,62}$")]


class Body(BaseModel):
    """Strict."""

    model_config = ConfigDict(extra="forbid", strict=True)


class InitializeParams(Body):
    """Of a new disk."""

    sourceImage: str
    diskSizeGb: Int64
    diskType: str
    labels: dict[LabelKey, Label] = {}


class Disk(Body):
    """An attached disk."""

    boot: bool = False
    autoDelete: bool = False
    initializeParams: InitializeParams | None = None
    source: str | None = None


class AccessConfig(Body):
    """A way in from outside."""

    type: Literal["ONE_TO_ONE_NAT", "DIRECT_IPV6"]
    name: str


class NetworkInterface(Body):
    """A network card."""

    network: str | None = None
    subnetwork: str | None = None
    nicType: Literal["GVNIC", "VIRTIO_NET", "MRDMA", "IRDMA"] | None = None
    accessConfigs: list[AccessConfig] = []


class Duration(Body):
    """Seconds."""

    seconds: Int64
    nanos: int = 0


class Scheduling(Body):
    """What the vendor may do with the node."""

    provisioningModel: Literal["STANDARD", "SPOT", "FLEX_START", "RESERVATION_BOUND"] = "STANDARD"
    instanceTerminationAction: Literal["DELETE", "STOP"] | None = None
    onHostMaintenance: Literal["MIGRATE", "TERMINATE"] = "MIGRATE"
    automaticRestart: bool = True
    maxRunDuration: Duration | None = None

    @model_validator(mode="after")
    def _fits(self) -> Scheduling:
        spot = self.provisioningModel == "SPOT"
        if spot and (self.automaticRestart or self.onHostMaintenance != "TERMINATE"):
            raise ValueError("Scheduling must have automaticRestart be false when preemptible is true")
        if self.instanceTerminationAction and not spot and self.maxRunDuration is None:
            raise ValueError("You cannot specify a termination action for a VM instance that has the standard model")
        if self.maxRunDuration and not 30 <= int(self.maxRunDuration.seconds) <= 120 * 86400:
            raise ValueError("Max Run Duration must be between 30 seconds and 120 days")
        return self


class Item(Body):
    """A pair of metadata."""

    key: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,127}$")
    value: str = Field(max_length=262144)


class Metadata(Body):
    """What the node can read of itself."""

    items: list[Item] = []

    @model_validator(mode="after")
    def _says_each_once(self) -> Metadata:
        if len({item.key for item in self.items}) < len(self.items):
            raise ValueError("duplicate metadata keys")
        for item in self.items:
            if item.key == "ssh-keys" and not re.fullmatch(r"[a-z_][a-z0-9_-]*:(ssh|ecdsa)-\S+ \S+.*", item.value):
                raise ValueError("ssh-keys are USER:KEY")
        return self


class ReservationAffinity(Body):
    """Which reservation a node uses."""

    consumeReservationType: Literal["ANY_RESERVATION", "NO_RESERVATION", "SPECIFIC_RESERVATION"]
    key: str | None = None
    values: list[str] = []


class Order(Body):
    """`instances.insert`, as far as the fake goes."""

    name: str = Field(pattern=NAME)
    machineType: str
    labels: dict[LabelKey, Label] = {}
    disks: Annotated[list[Disk], Field(min_length=1)]
    networkInterfaces: Annotated[list[NetworkInterface], Field(min_length=1)]
    scheduling: Scheduling = Scheduling()
    metadata: Metadata = Metadata()
    resourcePolicies: Annotated[list[str], Field(max_length=1)] = []
    reservationAffinity: ReservationAffinity | None = None
