"""The pytest plugin that comes with this package: the asserts of the conformance kit explain themselves."""

from __future__ import annotations

import sys

import pytest

_KIT = "shunter_providers.testing"


def pytest_configure(config: pytest.Config) -> None:
    """Before the kit is imported, so that its asserts are rewritten."""
    if f"{_KIT}.conformance" not in sys.modules:
        pytest.register_assert_rewrite(f"{_KIT}.conformance", f"{_KIT}.cloud_conformance")
