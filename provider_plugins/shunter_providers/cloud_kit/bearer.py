"""An API that takes the account's key as a bearer token: what most vendors have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from pydantic import SecretStr

from shunter_providers.cloud_kit.faults import Row
from shunter_providers.cloud_kit.http import Api
from shunter_providers.contract import Capabilities


class Keyed(Protocol):
    """Settings of a plugin for such an API."""

    @property
    def api_key(self) -> SecretStr:
        """The account's key."""
        ...

    @property
    def base_url(self) -> str:
        """Without the slash at its end."""
        ...

    @property
    def timeout_s(self) -> float:
        """For one answer."""
        ...


def bearer(
    settings: Keyed,
    declared: Capabilities,
    faults: Sequence[Row],
    words_of: Callable[[Any, str], tuple[str, str]],
) -> Api:
    """The API, at the pace that the plugin declares. `faults`, `words_of`: as in `Api`."""
    return Api(
        base_url=settings.base_url,
        faults=faults,
        pacing=declared.pacing,
        words_of=words_of,
        headers={"Authorization": f"Bearer {settings.api_key.get_secret_value()}"},
        timeout_s=settings.timeout_s,
    )
