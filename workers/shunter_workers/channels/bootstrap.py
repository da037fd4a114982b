"""Brings up a node's agent over an open connection: probe, upload, start. Each part is safe to repeat."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shunter_providers.contract import Launch, Offer
from shunter_providers.gpu_names import is_of
from shunter_providers.ssh.calling import HostSide
from shunter_providers.ssh.judging import acceptance_faults

from shunter_workers.channels.seeding import Blob, Seat, Seeder
from shunter_workers.choosing import devices_of
from shunter_workers.launching import SERVICE_URL_FILE

MOST_SKEW_S: Final = 30.0
LEAST_DISK_GIB: Final = 1.0
START_WITHIN_S: Final = 60.0
INLINE_BYTES: Final = 16 << 10


class NodeRefused(Exception):
    """The node is not what it has to be; the text says how, in numbers."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What one node has to be, and gets."""

    token: str
    handle: str
    job_id: str
    offer: Offer
    slot_kind: str | None
    slot_indices: Sequence[int]
    disk_gib: float | None
    launch: Launch
    blobs: Sequence[Blob]
    own_machine: bool
    """The machine was made for this node: there is no lease on it."""


async def probe(side: HostSide, needs: Needs) -> dict[str, Any]:
    """What the node is, once it is accepted.

    Raises:
        NodeRefused, CallFailed
    """
    began = time.time()
    facts = await side.call("look")
    facts["clock_skew_s"] = _skew_s(float(facts["clock"]), began, time.time())
    faults = acceptance_faults(_as_needed(facts, needs), facts["clock_skew_s"], MOST_SKEW_S, _least_disk_gib(needs))
    faults += gpu_faults(facts["gpus"], needs)
    if faults:
        raise NodeRefused("; ".join(faults))
    return facts


async def bring(side: HostSide, seeder: Seeder, seat: Seat, needs: Needs) -> None:
    """Upload what the host lacks of the node's files.

    Raises:
        CallFailed
    """
    programs = [_blob_of(content) for content in needs.launch.files.values() if len(content) > INLINE_BYTES]
    await seeder.provide(needs.job_id, seat, [*programs, *needs.blobs])


async def start(side: HostSide, needs: Needs, service_url: str) -> None:
    """Start the agent, unless it lives; it detaches itself and outlives the connection.

    Raises:
        CallFailed
    """
    files = {name: _source(content) for name, content in needs.launch.files.items()}
    files[SERVICE_URL_FILE] = _inline(service_url.encode())
    await side.call(
        "launch",
        START_WITHIN_S,
        token=needs.token,
        handle=needs.handle,
        own_machine=needs.own_machine,
        files=files,
        argv=list(needs.launch.argv),
        environment=dict(needs.launch.environment),
    )


def gpu_faults(found: Sequence[Mapping[str, Any]], needs: Needs) -> list[str]:
    """What is wrong with the GPUs, by the offer."""
    offer = needs.offer
    if not offer.gpus or needs.slot_kind == "cpu":
        return []
    shown = {int(gpu["index"]): str(gpu["name"]) for gpu in found}
    if needs.slot_indices:
        wanted = devices_of(offer, needs.slot_indices)
        lacking = [device for device in wanted if device not in shown]
        if lacking:
            return [f"it has no GPU {', '.join(map(str, lacking))}: nvidia-smi shows {len(shown)}"]
    elif len(shown) < offer.gpus:
        return [f"{offer.gpus} GPUs were offered, nvidia-smi shows {len(shown)}"]
    others = sorted({name for name in shown.values() if not is_of(offer.gpu_model or "", name)})
    return [f"{offer.gpu_model} was offered, it has {', '.join(others)}"] if others and not needs.slot_indices else []


def _as_needed(facts: Mapping[str, Any], needs: Needs) -> dict[str, Any]:
    """GPUs that the job does not use may be broken."""
    return dict(facts) if needs.offer.gpus else {**facts, "gpus": []}


def _skew_s(shown: float, began: float, ended: float) -> float:
    """How far the node's clock is ahead for certain: what the call's own duration may explain is none."""
    if shown < began:
        return shown - began
    return shown - ended if shown > ended else 0.0


def _least_disk_gib(needs: Needs) -> float:
    archives_gib = sum(blob.size for blob in needs.blobs) / 2.0**30
    return max(needs.disk_gib or 0.0, LEAST_DISK_GIB + 3 * archives_gib)


def _blob_of(content: bytes) -> Blob:
    digest = hashlib.sha256(content).hexdigest()
    return Blob(digest, len(content), lambda offset: iter([content[offset:]]))


def _source(content: bytes) -> dict[str, str]:
    if len(content) > INLINE_BYTES:
        return {"digest": hashlib.sha256(content).hexdigest()}
    return _inline(content)


def _inline(content: bytes) -> dict[str, str]:
    return {"content": base64.b64encode(content).decode()}
