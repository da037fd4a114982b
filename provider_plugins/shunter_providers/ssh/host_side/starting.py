"""The agent's start on a leased host, where it finds the service, and who may look in."""

from __future__ import annotations

import base64
import os
import re
import subprocess
import sys
import time
from typing import Any

from shunter_providers.ssh.host_side import blobs, processes
from shunter_providers.ssh.host_side.leases import agent_of
from shunter_providers.ssh.host_side.places import Places, Refused, boot_id, locked, places_of, read_json, write_file

START_WITHIN_S = 30.0
HANDLE_VARIABLE = "SHUNTER_NODE_HANDLE"
CACHE_VARIABLE = "SHUNTER_OBJECT_CACHE"
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_KEY = re.compile(r"(ssh-ed25519|ecdsa-sha2-nistp(256|384|521)|ssh-rsa) [A-Za-z0-9+/=]{40,4000}")


def launch(request: dict[str, Any]) -> dict[str, Any]:
    """Start the node's agent, unless it lives already. It detaches itself: it outlives this call and its connection.

    Raises:
        Refused: the node has no lease, was released, or its agent does not start.
    """
    places, token = places_of(request), request["token"]
    folder = places.node(token)
    with locked(places):
        lease = read_json(os.path.join(folder, "lease.json"))
        if lease is None and request.get("own_machine"):
            os.makedirs(folder, mode=0o700, exist_ok=True)
        elif lease is None or lease.get("boot_id") != boot_id():
            raise Refused("lease", f"the host is not leased to node {token}")
        if os.path.exists(os.path.join(folder, "released")):
            raise Refused("released", f"node {token} was released")
        agent = agent_of(places, token)
        if agent is not None and processes.is_alive(agent):
            return {"agent": agent.pid, "folder": folder}
        _write_files(places, folder, request["files"])
        _start(places, folder, request)
    agent = agent_of(places, token)
    return {"agent": agent.pid if agent else None, "folder": folder}


def point(request: dict[str, Any]) -> dict[str, Any]:
    """Tell the agent where the service is from now on."""
    places = places_of(request)
    folder = places.node(request["token"])
    if not os.path.isdir(folder):
        raise Refused("lease", f"there is no node {request['token']}")
    write_file(os.path.join(folder, "service-url"), request["url"].encode())
    agent = agent_of(places, request["token"])
    return {"agent_lives": agent is not None and processes.is_alive(agent)}


def reach(request: dict[str, Any]) -> dict[str, Any]:
    """Whether this host reaches an address by HTTP; any answer will do."""
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(request["url"], timeout=float(request["timeout_s"])):  # noqa: S310 - the service's own
            return {"reached": True, "detail": ""}
    except urllib.error.HTTPError as error:
        return {"reached": True, "detail": str(error.code)}
    except (OSError, ValueError) as error:
        return {"reached": False, "detail": str(getattr(error, "reason", error))}


def allow(request: dict[str, Any]) -> dict[str, Any]:
    """Let a key log in until a time. Keys whose time is over go.

    Raises:
        Refused: it is no public key of a kind that is taken.
    """
    key = request["public_key"].strip()
    if not _KEY.fullmatch(key):
        raise Refused("invalid", "not a public key (ssh-ed25519, ecdsa or ssh-rsa) without comment")
    expires = time.strftime("%Y%m%d%H%M", time.localtime(float(request["expires_at"])))
    mark = f"shunter-access:{request['token']}"
    line = f'restrict,pty,expiry-time="{expires}" {key} {mark}'
    places = places_of(request)
    folder = places.node(request["token"])
    if not os.path.isdir(folder):
        raise Refused("lease", f"there is no node {request['token']}")
    with locked(places):
        kept = [entry for entry in _entries(request) if key not in entry]
        _write_entries(request, [*kept, line])
    return {"folder": folder}


def revoke(request: dict[str, Any]) -> dict[str, Any]:
    """Take back what `allow` gave for one node."""
    mark = f"shunter-access:{request['token']}"
    with locked(places_of(request)):
        entries = _entries(request)
        kept = [entry for entry in entries if not entry.endswith(" " + mark)]
        if len(kept) != len(entries):
            _write_entries(request, kept)
    return {}


def _write_files(places: Places, folder: str, files: dict[str, Any]) -> None:
    for name, source in files.items():
        if not _PLAIN_NAME.fullmatch(name):
            raise Refused("invalid", f"the launch file {name!r} would lie outside its folder")
        target = os.path.join(folder, name)
        if "digest" in source:
            draft = target + ".new"
            blobs.copy(places, source["digest"], draft)
            os.replace(draft, target)
        else:
            write_file(target, base64.b64decode(source["content"]))


def _start(places: Places, folder: str, request: dict[str, Any]) -> None:
    argv = [part.replace("{python}", sys.executable) for part in request["argv"]]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SHUNTER_", "SSH_"))}
    own = {processes.MARK: request["token"], HANDLE_VARIABLE: request["handle"], CACHE_VARIABLE: places.cache}
    try:
        told = subprocess.run(
            argv,
            cwd=folder,
            env={**kept, **request["environment"], **own},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            timeout=START_WITHIN_S,
        )
    except subprocess.TimeoutExpired:
        raise Refused("start", f"the agent did not detach within {START_WITHIN_S} s") from None
    except (OSError, ValueError) as error:
        raise Refused("start", f"{argv[0]}: {error}") from error
    if told.returncode != 0:
        lines = told.stderr.decode("utf-8", "replace").strip()[-2000:]
        raise Refused("start", f"the agent did not start (exit {told.returncode}): {lines}")


def _entries(request: dict[str, Any]) -> list[str]:
    try:
        with open(_keys_file(request), encoding="utf-8", errors="surrogateescape") as file:
            return [line for line in file.read().splitlines() if line]
    except FileNotFoundError:
        return []


def _write_entries(request: dict[str, Any], entries: list[str]) -> None:
    path = _keys_file(request)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    write_file(path, "".join(entry + "\n" for entry in entries).encode("utf-8", "surrogateescape"))


def _keys_file(request: dict[str, Any]) -> str:
    named: str = request.get("authorized_keys") or ""
    if not named:
        raise Refused("shell", "this host gives no shells (`authorized_keys` is empty)")
    return os.path.realpath(os.path.expanduser(named))
