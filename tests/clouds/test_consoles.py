"""What a node wrote while it booted, of the clouds that tell it."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest
from shunter_providers.bounded import bounded
from shunter_providers.contract import Instance, Launch, NodeCondition, OfferQuery, Provider, ShowsConsole
from shunter_providers.testing import Unpaced, WireCloud, make_intent
from shunter_providers.testing.conformance import wait_for
from shunter_schemas.ids import new_deployment_id
from support.clouds.accounts import FAKES
from support.clouds.consoles import CONSOLE

SECRET = "a-secret-of-some-length"


def on(plugin: str, cloud: WireCloud) -> Provider:
    (kind,) = entry_points(group="shunter.providers", name=plugin)
    chosen = {**FAKES[plugin].settings(cloud.url, SECRET), "timeout_s": 5.0}
    return bounded(plugin, kind.load()(Instance(plugin, plugin, chosen, pacer=Unpaced())))


@pytest.mark.parametrize("plugin", ["aws", "azure", "gcp", "ovh"])
async def test_the_console_of_a_node_is_told_and_that_of_none_is_empty(plugin: str) -> None:
    with FAKES[plugin].cloud(SECRET) as cloud:
        provider = on(plugin, cloud)
        offer = (await provider.offers(OfferQuery()))[0]
        handle = await provider.create(make_intent(new_deployment_id(), offer, Launch(("true",), {})))
        await wait_for(provider, handle, NodeCondition.RUNNING, 10)
        assert isinstance(provider, ShowsConsole)

        told = await provider.console(handle)
        of_none = await provider.console("../../etc/passwd")

        await provider.close()
        assert told == CONSOLE
        assert of_none == ""


async def test_a_cloud_that_has_no_consoles_tells_none() -> None:
    with FAKES["lambda"].cloud(SECRET) as cloud:
        provider = on("lambda", cloud)
        assert isinstance(provider, ShowsConsole)

        told = await provider.console("0123456789abcdef0123456789abcdef")

        await provider.close()
        assert told == ""
        assert cloud.calls == []
