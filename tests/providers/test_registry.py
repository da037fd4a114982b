"""Plugins are found by name, loaded when first used, and never take each other down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from shunter_providers.contract import Capabilities, Fault, Instance, Provider, ProviderError
from shunter_providers.instances import make_instances
from shunter_providers.local import LocalProvider
from shunter_providers.registry import Registry, load_plugin
from shunter_store.installation.settings import ProviderSettings


def instances(tmp_path: Path, **plugins: str) -> dict[str, Instance]:
    return {name: Instance(name, plugin, {}, str(tmp_path)) for name, plugin in plugins.items()}


def test_the_installed_plugin_is_found_by_its_entry_point(tmp_path: Path) -> None:
    registry = Registry(instances(tmp_path, mine="local"))

    assert registry.get("mine").capabilities is LocalProvider.capabilities
    assert isinstance(registry.get("mine"), Provider)
    assert registry.get("mine") is registry.get("mine")


def test_nothing_is_loaded_before_it_is_used(tmp_path: Path) -> None:
    asked: list[str] = []

    def find(plugin: str) -> Any:
        asked.append(plugin)
        return LocalProvider

    registry = Registry(instances(tmp_path, one="a", two="b"), find)
    registry.get("two")

    assert asked == ["b"]


def test_a_plugin_that_does_not_import_is_named_with_its_cause_and_the_others_go_on(tmp_path: Path) -> None:
    def find(plugin: str) -> Any:
        if plugin == "broken":
            raise ImportError("No module named 'acme_sdk'")
        return LocalProvider

    registry = Registry(instances(tmp_path, bad="broken", good="local"), find)

    with pytest.raises(ProviderError, match=r"providers\.bad: ImportError: No module named 'acme_sdk'"):
        registry.get("bad")
    assert registry.get("good").capabilities is LocalProvider.capabilities


def test_a_plugin_that_is_not_installed_is_named_with_those_that_are() -> None:
    with pytest.raises(ProviderError, match=r"no provider plugin 'acme' .*local") as caught:
        load_plugin("acme")

    assert caught.value.fault is Fault.INVALID


def test_an_instance_that_nobody_configured_is_named_with_those_that_are(tmp_path: Path) -> None:
    registry = Registry(instances(tmp_path, mine="local"))

    with pytest.raises(ProviderError, match=r"no provider instance 'yours' \(configured: mine\)"):
        registry.get("yours")


def test_a_plugin_of_another_contract_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Later(LocalProvider):
        capabilities = Capabilities(contract_version=2)

    class Entry:
        name = "later"

        def load(self) -> type[Later]:
            return Later

    monkeypatch.setattr("shunter_providers.registry.metadata.entry_points", lambda group: [Entry()])

    with pytest.raises(ProviderError, match="speaks contract 2, this service 1"):
        load_plugin("later")


def test_a_wrong_setting_of_one_instance_is_that_instances_problem(tmp_path: Path) -> None:
    configured = {
        "bad": ProviderSettings(plugin="local", settings={"cpu_slots": 0}),
        "good": ProviderSettings(plugin="local", settings={"cpu_slots": 3}),
    }

    registry = Registry(make_instances(configured, tmp_path))

    assert list(registry.names) == ["bad", "good"]
    with pytest.raises(ProviderError, match=r"providers\.bad: cpu_slots"):
        registry.get("bad")
    assert registry.get("good").capabilities is LocalProvider.capabilities


async def test_closing_closes_what_was_made(tmp_path: Path) -> None:
    closed: list[str] = []

    class Closing(LocalProvider):
        async def close(self) -> None:
            closed.append("closed")
            raise ProviderError(Fault.TRANSIENT, "already gone")

    registry = Registry(instances(tmp_path, one="x", two="x"), lambda _: Closing)
    registry.get("one")

    await registry.close()

    assert closed == ["closed"]
