"""The pytest plugin that comes with this package: the conformance kit's asserts explain themselves, and its tests run
as coroutines whatever mode pytest-asyncio is in."""

from __future__ import annotations

import inspect
import sys

import pytest

_KIT = "shunter_providers.testing"


def pytest_configure(config: pytest.Config) -> None:
    """Before the kit is imported, so that its asserts are rewritten."""
    if not any(name.startswith(f"{_KIT}.") for name in sys.modules):
        pytest.register_assert_rewrite(f"{_KIT}.conformance", f"{_KIT}.cloud_conformance")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the kit's coroutine tests."""
    for item in items:
        if isinstance(item, pytest.Function) and _is_of_the_kit(item) and inspect.iscoroutinefunction(item.function):
            item.add_marker(pytest.mark.asyncio)


def _is_of_the_kit(item: pytest.Function) -> bool:
    return item.cls is not None and any(base.__module__.startswith(f"{_KIT}.") for base in item.cls.__mro__)
