"""What the kube API takes, as strictly as it decodes with `fieldValidation=Strict`: the fields that a node may need."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?")
_QUALIFIED = re.compile(
    r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?"
)
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUANTITY = re.compile(r"\d+(\.\d+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?")


def _fits(pattern: re.Pattern[str], what: str) -> Any:
    def check(text: str) -> str:
        if pattern.fullmatch(text) is None:
            raise ValueError(f"{text!r} is no {what}")
        return text

    return AfterValidator(check)


def _base64(text: str) -> str:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("illegal base64 data") from None
    return text


LabelValue = Annotated[str, _fits(_LABEL_VALUE, "label value")]
Qualified = Annotated[str, _fits(_QUALIFIED, "qualified name")]
Name = Annotated[str, Field(max_length=253), _fits(_NAME, "DNS subdomain")]
Quantity = Annotated[str, _fits(_QUANTITY, "quantity")]
SecretKey = Annotated[str, Field(max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Meta(_Body):
    name: Name
    labels: dict[Qualified, LabelValue] = {}
    annotations: dict[Qualified, str] = {}


class SecretBody(_Body):
    apiVersion: Literal["v1"]
    kind: Literal["Secret"]
    metadata: _Meta
    type: str = "Opaque"
    immutable: bool = False
    data: dict[SecretKey, Annotated[str, AfterValidator(_base64)]] = {}

    @model_validator(mode="after")
    def _is_small(self) -> SecretBody:
        if sum(len(base64.b64decode(value)) for value in self.data.values()) > 1 << 20:
            raise ValueError("Too long: may not be more than 1048576 bytes")
        return self


class _Variable(_Body):
    name: Annotated[str, Field(min_length=1, pattern=r"^[^=]+$")]
    value: str = ""


class _Resources(_Body):
    requests: dict[Qualified, Quantity] = {}
    limits: dict[Qualified, Quantity] = {}

    @model_validator(mode="after")
    def _extended_are_equal(self) -> _Resources:
        for name in {*self.requests, *self.limits}:
            if "/" in name and self.requests.get(name) != self.limits.get(name):
                raise ValueError(f"{name}: must be equal to request of {name} limit")
        return self


class _Mount(_Body):
    name: str
    mountPath: str
    readOnly: bool = False


class _Capabilities(_Body):
    add: list[str] = []
    drop: list[str] = []


class _ContainerSecurity(_Body):
    allowPrivilegeEscalation: bool | None = None
    capabilities: _Capabilities | None = None


class _Container(_Body):
    name: Name
    image: str = Field(min_length=1)
    command: list[str] = []
    env: list[_Variable] = []
    resources: _Resources = _Resources()
    securityContext: _ContainerSecurity | None = None
    terminationMessagePolicy: Literal["File", "FallbackToLogsOnError"] = "File"
    volumeMounts: list[_Mount] = []


class _EmptyDir(_Body):
    medium: Literal["", "Memory"] = ""
    sizeLimit: Quantity | None = None


class _SecretVolume(_Body):
    secretName: Name
    defaultMode: int = Field(default=0o644, ge=0, le=0o777)


class _Volume(_Body):
    name: Name
    emptyDir: _EmptyDir | None = None
    secret: _SecretVolume | None = None


class _Expression(_Body):
    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: list[str] = []

    @model_validator(mode="after")
    def _values_fit(self) -> _Expression:
        if (self.operator in ("In", "NotIn")) != bool(self.values):
            raise ValueError(f"{self.operator} with {len(self.values)} values")
        return self


class _Term(_Body):
    matchExpressions: list[_Expression] = []
    matchFields: list[_Expression] = []

    @model_validator(mode="after")
    def _fields_are_names(self) -> _Term:
        if any(one.key != "metadata.name" or len(one.values) != 1 for one in self.matchFields):
            raise ValueError("must be only one value when `operator` is 'In' or 'NotIn' for node field selector")
        return self


class _Terms(_Body):
    nodeSelectorTerms: list[_Term] = Field(min_length=1)


class _Preferred(_Body):
    weight: int = Field(ge=1, le=100)
    preference: _Term


class _NodeAffinity(_Body):
    requiredDuringSchedulingIgnoredDuringExecution: _Terms | None = None
    preferredDuringSchedulingIgnoredDuringExecution: list[_Preferred] = []


class _LabelSelector(_Body):
    matchLabels: dict[Qualified, LabelValue] = {}


class _PodTerm(_Body):
    labelSelector: _LabelSelector
    topologyKey: Qualified


class _PodAffinity(_Body):
    requiredDuringSchedulingIgnoredDuringExecution: list[_PodTerm] = []


class _Affinity(_Body):
    nodeAffinity: _NodeAffinity | None = None
    podAffinity: _PodAffinity | None = None
    podAntiAffinity: _PodAffinity | None = None


class _Toleration(_Body):
    key: str = ""
    operator: Literal["Equal", "Exists"] = "Equal"
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""


class _Seccomp(_Body):
    type: Literal["RuntimeDefault", "Unconfined", "Localhost"]


class _PodSecurity(_Body):
    runAsNonRoot: bool | None = None
    runAsUser: int | None = None
    fsGroup: int | None = None
    seccompProfile: _Seccomp | None = None


class _NamedThing(_Body):
    name: Name


class _Spec(_Body):
    restartPolicy: Literal["Always", "OnFailure", "Never"] = "Always"
    terminationGracePeriodSeconds: int = Field(default=30, ge=0)
    activeDeadlineSeconds: int | None = Field(default=None, ge=1)
    automountServiceAccountToken: bool | None = None
    enableServiceLinks: bool = True
    shareProcessNamespace: bool = False
    hostNetwork: bool = False
    dnsPolicy: Literal["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"] = "ClusterFirst"
    serviceAccountName: Name | None = None
    priorityClassName: Name | None = None
    schedulerName: Name | None = None
    imagePullSecrets: list[_NamedThing] = []
    nodeSelector: dict[Qualified, LabelValue] = {}
    affinity: _Affinity = _Affinity()
    tolerations: list[_Toleration] = []
    securityContext: _PodSecurity | None = None
    containers: list[_Container] = Field(min_length=1)
    volumes: list[_Volume] = []

    @model_validator(mode="after")
    def _mounts_are_volumes(self) -> _Spec:
        names = {volume.name for volume in self.volumes}
        missing = [mount.name for one in self.containers for mount in one.volumeMounts if mount.name not in names]
        if missing:
            raise ValueError(f"volumeMounts: Not found: {missing}")
        return self


class PodBody(_Body):
    apiVersion: Literal["v1"]
    kind: Literal["Pod"]
    metadata: _Meta
    spec: _Spec


class _Preconditions(_Body):
    uid: str | None = None
    resourceVersion: str | None = None


class DeleteBody(_Body):
    apiVersion: Literal["v1"] = "v1"
    kind: Literal["DeleteOptions"] = "DeleteOptions"
    gracePeriodSeconds: int | None = Field(default=None, ge=0)
    propagationPolicy: Literal["Orphan", "Background", "Foreground"] | None = None
    preconditions: _Preconditions | None = None
