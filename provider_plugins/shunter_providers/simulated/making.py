"""What a create request turns into: the entry of a node, and what a fault makes of it."""

from __future__ import annotations

import base64
import json
import math
from dataclasses import replace

from shunter_providers.contract import Fault, Intent, Launch, ProviderError, Scope
from shunter_providers.simulated import market
from shunter_providers.simulated.books import Page
from shunter_providers.simulated.entries import NEVER, Entry
from shunter_providers.simulated.faults import Kind, Rule
from shunter_providers.simulated.settings import NodeType, Region, SimulatedSettings

_DISK_USD_PER_HOUR = 0.01


def wanted(settings: SimulatedSettings, intent: Intent) -> tuple[NodeType, Region]:
    """The type and region of an intent's offer.

    Raises:
        ProviderError: `INVALID`: this cloud does not have them.
    """
    kind = next((kind for kind in settings.types if kind.name == intent.offer.instance_type), None)
    region = next((region for region in settings.regions if region.name == intent.offer.region), None)
    if kind is None or region is None:
        raise ProviderError(Fault.INVALID, f"no {intent.offer.instance_type} in {intent.offer.region}")
    return kind, region


def require_room(settings: SimulatedSettings, page: Page, intent: Intent, at: float) -> None:
    """Refuse what there is no capacity or quota for.

    Raises:
        ProviderError: `NO_CAPACITY` or `QUOTA`, for the region.
    """
    kind, region = wanted(settings, intent)
    all_free = market.free_nodes(settings, kind, region, 0, at)
    # Thousands of nodes are counted only where they may have filled the region.
    if not page.were_fewer_than(all_free) and all_free <= page.taken(at)[kind.name, region.name]:
        raise ProviderError(Fault.NO_CAPACITY, f"no {kind.name} left in {region.name}", scope=Scope.REGION)
    if settings.quota_gpus is None:
        return
    gpus = page.gpus_of(settings.account, at) + kind.gpus
    if gpus > settings.quota_gpus:
        detail = f"{gpus} GPUs asked for, the quota is {settings.quota_gpus}"
        raise ProviderError(Fault.QUOTA, detail, scope=Scope.ACCOUNT)


def make_node(settings: SimulatedSettings, intent: Intent, number: int, at: float, rule: Rule | None) -> Entry:
    """The node of create call `number`, as it will be if nothing more happens to it."""
    kind, region = wanted(settings, intent)
    spot = intent.offer.capacity == "spot"
    boots_at = at + settings.boot_s + settings.boot_jitter_s * market.uniform(settings.seed, "boot", number)
    lives_s = -math.log(1.0 - market.uniform(settings.seed, "life", number)) * settings.spot_mean_life_s
    entry = Entry(
        handle=f"sim-{number:08d}",
        token=intent.token,
        deployment=intent.tags.get("deployment", ""),
        account=settings.account,
        kind="node",
        instance_type=kind.name,
        region=region.name,
        capacity=intent.offer.capacity,
        gpus=kind.gpus,
        usd_per_hour=market.usd_per_hour(settings, kind, region, intent.offer.capacity, at),
        created_at=at,
        visible_at=at,
        boots_at=boots_at,
        fails=False,
        preempted_at=boots_at + lives_s if spot else NEVER,
        asked_at=None,
        stuck_until=0.0,
        gone_at=NEVER,
        launch=_kept_launch(settings, intent.launch),
    )
    return entry if rule is None else _spoilt(entry, rule)


def make_disk(entry: Entry, number: int, at: float) -> Entry:
    """The disk that a node leaves behind."""
    return replace(
        entry,
        handle=f"sim-disk-{number:08d}",
        kind="disk",
        gpus=0,
        usd_per_hour=_DISK_USD_PER_HOUR,
        created_at=at,
        visible_at=at,
        preempted_at=NEVER,
        asked_at=None,
        gone_at=NEVER,
        launch="",
    )


def pack(launch: Launch) -> str:
    """A launch as text."""
    files = {name: base64.b64encode(content).decode() for name, content in launch.files.items()}
    return json.dumps({"argv": list(launch.argv), "files": files, "environment": dict(launch.environment)})


def unpack(text: str) -> Launch:
    """The launch of `pack`."""
    read = json.loads(text)
    files = {name: base64.b64decode(content) for name, content in read["files"].items()}
    return Launch(read["argv"], files, read["environment"])


def _kept_launch(settings: SimulatedSettings, launch: Launch) -> str:
    """What the node needs to come up: everything, or for a fleet what an agent is told at birth."""
    if settings.nodes == "agents":
        return pack(launch)
    return launch.files.get("launch.json", b"").decode() if settings.nodes == "fleet" else ""


def _spoilt(entry: Entry, rule: Rule) -> Entry:
    if rule.fault is Kind.LATE:
        return replace(entry, visible_at=entry.created_at + rule.delay_s)
    if rule.fault is Kind.NEVER_BOOTS:
        return replace(entry, boots_at=NEVER)
    if rule.fault is Kind.FAILS_TO_BOOT:
        return replace(entry, fails=True)
    if rule.fault is Kind.NO_IMAGE:
        return replace(entry, fails=True, fails_for=str(Fault.INVALID))
    if rule.fault is Kind.QUEUED:
        ends_at = entry.created_at + rule.delay_s
        boots_at, preempted_at = entry.boots_at + rule.delay_s, min(NEVER, entry.preempted_at + rule.delay_s)
        return replace(entry, queued_until=ends_at, boots_at=boots_at, preempted_at=preempted_at)
    if rule.fault is Kind.PREEMPTED:
        return replace(entry, preempted_at=entry.boots_at + rule.delay_s)
    if rule.fault is Kind.DEARER:
        return replace(entry, usd_per_hour=round(entry.usd_per_hour * rule.factor, 4))
    return entry
