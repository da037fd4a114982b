"""What the settings of every cloud have in common."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

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

    start_by: Literal["provider", "ssh"] = "provider"
    """`provider`: a node is told by user data (or its variables) to start its agent, and needs no way in. `ssh`: the
    service goes in, probes the node before it takes it, and no token of ours passes through the provider."""

    def adjusted(self, declared: Capabilities) -> Capabilities:
        """What a plugin declares, with what the operator set."""
        changes: dict[str, Any] = {
            name: value
            for name in ("visibility_delay_s", "scan_interval_s", "readiness_deadline_s")
            if (value := getattr(self, name)) is not None
        }
        if self.start_by == "ssh":
            changes["bootstrap"] = "ssh"
        return replace(declared, **changes)
