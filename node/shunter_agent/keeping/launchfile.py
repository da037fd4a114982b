"""`launch.json`, and where the service is at this moment."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from shunter_agent.files import read_json
from shunter_agent.keeping.clock import boot_id

HANDLE_VARIABLE = "SHUNTER_NODE_HANDLE"
"""The provider's name of this machine, set by plugins that know it when the agent starts."""


class Address(NamedTuple):
    """Where to sync, and as whom."""

    url: str
    token: str


class LaunchFile:
    """All that the agent was told at birth. The service may move: its address is read again at each try."""

    def __init__(self, path: str) -> None:
        """Read the file.

        Raises:
            ValueError: it is missing or lacks a field.
        """
        self._path = path
        found = read_json(path)
        if found is None:
            raise ValueError(f"{path} cannot be read")
        missing = [name for name in ("node", "sync_token", "service_url") if not found.get(name)]
        if missing:
            raise ValueError(f"{path} lacks {', '.join(missing)}")
        self._found = found
        self.node: str = found["node"]
        self.handle = os.environ.get(HANDLE_VARIABLE) or None
        self.lease: dict[str, Any] = found.get("lease") or {}
        home = found.get("home_boot_id") or ""
        self.ends_machine: bool = bool(found.get("ends_machine")) and home not in ("", boot_id())
        self.power_off: str = found.get("power_off") or ""
        self.labels: dict[str, Any] = found.get("labels") or {}
        self.container: dict[str, Any] | None = found.get("container")
        """The image that this machine has to run, with the ranks in it; None: they run on the machine as it is."""

    def address(self) -> Address:
        """The service's address and this node's token as they are on the disk now."""
        self._found = read_json(self._path) or self._found
        url = self._found["service_url"]
        moved = self._found.get("service_url_file")
        if moved:
            try:
                with open(moved, encoding="utf-8") as file:
                    url = file.read().strip() or url
            except OSError:
                pass  # not written yet, or the service is down: the last known address is tried
        return Address(url.rstrip("/"), self._found["sync_token"])
