"""What the settings of every cloud have in common."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, HttpUrl, TypeAdapter

from shunter_providers.contract import Capabilities


def _base_url(text: str) -> str:
    TypeAdapter(HttpUrl).validate_python(text)
    return text.rstrip("/")


BaseUrl = Annotated[str, AfterValidator(_base_url)]
"""Without the slash at its end."""


class CloudSettings(BaseModel):
    """Settings that a plugin's own model adds to."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    timeout_s: float = Field(default=20.0, gt=0, le=60)
    """How long one answer of the API may take."""
    visibility_delay_s: float | None = Field(default=None, ge=0)
    """How long a new node may be missing from listings. None: what is known of the vendor."""
    scan_interval_s: float | None = Field(default=None, gt=0)
    """How often the account's nodes are listed. None: what its rate allows."""
    readiness_deadline_s: float | None = Field(default=None, gt=0)
    """A node that is not up by then is given back. None: what is known of the vendor."""

    def adjusted(self, declared: Capabilities) -> Capabilities:
        """What a plugin declares, with what the operator set."""
        changes: dict[str, Any] = {
            name: value
            for name in ("visibility_delay_s", "scan_interval_s", "readiness_deadline_s")
            if (value := getattr(self, name)) is not None
        }
        return replace(declared, **changes)


class TellingSettings(CloudSettings):
    """Of clouds whose plugin can start the agent by itself, where the service has no way in."""

    told_by: ClassVar[str] = "user_data"
    """`Capabilities.bootstrap` of nodes that the provider starts."""

    start_by: Literal["ssh", "provider"] = "ssh"
    """`ssh`: the service logs in, probes the node before it takes it, and starts the agent; none of our tokens passes
    through the provider. `provider`: for networks that let no SSH out. User data or variables bring the agent with its
    node's token, which whoever may read the account at the provider can see for as long as the node lives."""

    def adjusted(self, declared: Capabilities) -> Capabilities:
        """See `CloudSettings`."""
        changed = super().adjusted(declared)
        return changed if self.start_by == "ssh" else replace(changed, bootstrap=self.told_by)
