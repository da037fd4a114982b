"""Shunter's conformance kit, with every fault it knows, against the toy cloud."""

from collections.abc import Iterator

import pytest
from shunter_acme import AcmeProvider
from shunter_acme.toy_cloud import AcmeCloud
from shunter_providers.contract import Instance, Provider
from shunter_providers.testing import CloudConformance, Unpaced, WireCloud


class TestAcme(CloudConformance):
    @pytest.fixture
    def cloud(self) -> Iterator[WireCloud]:
        with AcmeCloud(self.secret) as cloud:
            yield cloud

    @pytest.fixture
    def provider(self, cloud: WireCloud) -> Provider:
        settings = {"base_url": f"{cloud.url}/v1", "api_key": self.secret, "timeout_s": 1}
        return AcmeProvider(Instance("acme", "acme", settings, pacer=Unpaced()))

    @pytest.fixture
    def unknown_handle(self) -> str:
        return "srv-00000000"
