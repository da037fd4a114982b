"""Who holds what of a host: a lease file in the node's folder, good for one boot."""

from __future__ import annotations

import json
import os
import shutil
import time
from typing import Any, Iterator

from shunter_providers.ssh.host_side import facts, processes
from shunter_providers.ssh.host_side.places import (
    TOKEN,
    Places,
    Refused,
    boot_id,
    locked,
    places_of,
    read_json,
    write_file,
)
from shunter_providers.ssh.host_side.processes import Process

SHOWN = ("lease.json", "agent.json", "agent.log", "journal/journal.jsonl")
SHOWN_BYTES = 64 << 10
UNUSED_S = 3600.0
"""A lease of another deployment that no agent ever used holds nobody up for longer than this."""


def take(request: dict[str, Any]) -> dict[str, Any]:
    """Lease slots of this host to a node. The same node again is fine.

    Raises:
        Refused: somebody else has them.
    """
    places, token = places_of(request), request["token"]
    folder = places.node(token)
    with locked(places):
        tidy(places, float(request["keep_folders_s"]), float(request["keep_cache_s"]))
        known = read_json(os.path.join(folder, "lease.json"))
        if known is not None and known.get("boot_id") == boot_id():
            return _view(places, token)
        for other in _standing(places):
            _refuse_if_in_conflict(other, request)
        if os.path.isdir(folder):
            shutil.rmtree(folder)
        _make(places, folder, request)
    return _view(places, token)


def views(request: dict[str, Any]) -> dict[str, Any]:
    """Every node of one deployment and instance that is not gone."""
    places = places_of(request)
    found = [_view(places, token) for token, lease in _leases(places) if _is_of(lease, request)]
    return {"nodes": [view for view in found if view["condition"] != "gone"], "boot_id": boot_id()}


def view(request: dict[str, Any]) -> dict[str, Any]:
    """One node."""
    return _view(places_of(request), request["token"])


def end(request: dict[str, Any]) -> dict[str, Any]:
    """End everything of a node and give its slots back; the folder stays for a while."""
    places, token = places_of(request), request["token"]
    folder = places.node(token)
    if not os.path.isdir(folder):
        return {"gone": True}
    write_file(os.path.join(folder, "released"), b"")
    gone = processes.end_all(token, _agent(folder))
    if gone:
        _forget_secrets(folder)
    return {"gone": gone}


def standing(request: dict[str, Any]) -> dict[str, Any]:
    """Who holds this host now: deployments of the leases that count."""
    places = places_of(request)
    return {"deployments": sorted({lease["deployment"] for lease in _standing(places)})}


def peek(request: dict[str, Any]) -> dict[str, Any]:
    """The ends of the agent's own files, and what of the node lives. The file with its token is none of them."""
    places, token = places_of(request), request["token"]
    folder = places.node(token)
    files = {name: _tail(os.path.join(folder, name)) for name in SHOWN}
    processes_now = [{"pid": process.pid, "command": _command(process.pid)} for process in processes.marked(token)]
    return {"files": {name: text for name, text in files.items() if text}, "processes": processes_now}


def agent_of(places: Places, token: str) -> Process | None:
    """The node's agent, dead or alive, once it has said who it is in this boot."""
    return _agent(places.node(token))


def tidy(places: Places, keep_folders_s: float, keep_cache_s: float) -> None:
    """Remove what nobody uses: folders of ended nodes, and files of the cache."""
    for token, lease in _leases(places):
        folder = places.node(token)
        dead = lease.get("boot_id") != boot_id() or os.path.exists(os.path.join(folder, "released"))
        if dead and _age_s(folder) > keep_folders_s and not processes.marked(token):
            shutil.rmtree(folder, ignore_errors=True)
    for name in os.listdir(places.cache):
        path = os.path.join(places.cache, name)
        if _age_s(path) > keep_cache_s:
            os.unlink(path)


def _make(places: Places, folder: str, request: dict[str, Any]) -> None:
    unfinished = os.path.join(places.nodes, f".new-{request['token']}")
    shutil.rmtree(unfinished, ignore_errors=True)
    os.mkdir(unfinished, 0o700)
    address = request.get("private_address") or facts.look(request)["address"]
    lease = {
        "token": request["token"],
        "deployment": request["deployment"],
        "instance": request["instance"],
        "slot_kind": request["slot_kind"],
        "slots": request["slots"],
        "exclusive": request["exclusive"],
        "job": request["job"],
        "boot_id": boot_id(),
        "taken_at": time.time(),
        "address": address,
        "interface": request.get("interface") or (facts.interface_of(address) if address else None),
    }
    write_file(os.path.join(unfinished, "lease.json"), json.dumps(lease).encode())
    os.rename(unfinished, folder)


def _refuse_if_in_conflict(other: dict[str, Any], request: dict[str, Any]) -> None:
    who = f"deployment {other['deployment']} (node {other['token']})"
    if other["deployment"] != request["deployment"]:
        raise Refused("foreign", f"the host is leased by {who}")
    if other["exclusive"] or request["exclusive"]:
        raise Refused("taken", f"the host is leased as a whole: {other['token']}")
    both = set(other["slots"]) & set(request["slots"])
    if other["slot_kind"] == request["slot_kind"] and both:
        taken = ", ".join(str(slot) for slot in sorted(both))
        raise Refused("taken", f"{request['slot_kind']} {taken} are leased by node {other['token']}")


def _standing(places: Places) -> Iterator[dict[str, Any]]:
    """Leases of this boot that nobody has given back, and that somebody uses."""
    for token, lease in _leases(places):
        folder = places.node(token)
        if lease.get("boot_id") != boot_id() or _is_released(folder, token):
            continue
        agent = _agent(folder)
        unused = not processes.is_alive(agent) if agent else _age_s(os.path.join(folder, "lease.json")) > UNUSED_S
        if not unused or processes.marked(token):
            yield lease


def _leases(places: Places) -> Iterator[tuple[str, dict[str, Any]]]:
    for token in sorted(os.listdir(places.nodes)):
        lease = read_json(os.path.join(places.nodes, token, "lease.json")) if TOKEN.fullmatch(token) else None
        if lease is not None and lease.get("token") == token:
            yield token, lease


def _is_of(lease: dict[str, Any], request: dict[str, Any]) -> bool:
    return (lease["deployment"], lease["instance"]) == (request["deployment"], request["instance"])


def _view(places: Places, token: str) -> dict[str, Any]:
    folder = places.node(token)
    lease = read_json(os.path.join(folder, "lease.json"))
    condition, reason = _condition(folder, token, lease)
    addresses = {}
    if lease is not None and lease.get("address"):
        addresses["private"] = lease["address"]
        if lease.get("interface"):
            addresses["interface"] = lease["interface"]
    return {"token": token, "condition": condition, "reason": reason, "addresses": addresses}


def _condition(folder: str, token: str, lease: dict[str, Any] | None) -> tuple[str, str]:
    if lease is None:
        return "gone", "no such node"
    if lease.get("boot_id") != boot_id():
        return "gone", "the host was started anew"
    if _is_released(folder, token):
        return "gone", "it was released"
    agent = _agent(folder)
    if agent is None or processes.is_alive(agent):
        return "running", ""
    return "stopped", "its agent has ended"


def _is_released(folder: str, token: str) -> bool:
    agent = _agent(folder)
    living = (agent is not None and processes.is_alive(agent)) or processes.marked(token)
    return os.path.exists(os.path.join(folder, "released")) and not living


def _agent(folder: str) -> Process | None:
    said = read_json(os.path.join(folder, "agent.json"))
    if said is None or said.get("boot_id") != boot_id():
        return None
    return Process(int(said["pid"]), int(said["start_time"]))


def _forget_secrets(folder: str) -> None:
    """The node's token opens nothing any more; what stays for inspection does not hold it."""
    for name in ("launch.json", "service-url"):
        if os.path.exists(os.path.join(folder, name)):
            os.unlink(os.path.join(folder, name))


def _age_s(path: str) -> float:
    try:
        return time.time() - os.stat(path).st_mtime
    except OSError:
        return 0.0


def _tail(path: str) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - SHOWN_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode("utf-8", "replace").strip()[:500]
    except OSError:
        return ""
