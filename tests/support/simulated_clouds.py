"""The simulated cloud, as tests set it up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shunter_providers.contract import Instance, Intent, Launch, OfferQuery
from shunter_providers.simulated import SimulatedProvider
from shunter_providers.simulated.entries import Entry
from shunter_providers.testing import make_intent
from shunter_schemas.node_sync import LaunchFile
from shunter_workers.packing import pack_launch

AGENT = pack_launch(LaunchFile(node="shn-test", sync_token="secret", service_url="http://127.0.0.1:9"))
NO_LAUNCH = Launch(argv=("true",), files={})


def cloud(tmp_path: Path, **settings: Any) -> SimulatedProvider:
    chosen = {"nodes": "bare", "boot_s": 0.0, **settings}
    return SimulatedProvider(Instance("sim", "simulated", chosen, str(tmp_path)))


async def an_intent(provider: SimulatedProvider, deployment: str, launch: Launch = NO_LAUNCH, index: int = 0) -> Intent:
    return make_intent(deployment, (await provider.offers(OfferQuery()))[index], launch)


def entries(provider: SimulatedProvider) -> list[Entry]:
    with provider.books.writing() as page:
        return page.everything()
