"""Becoming a process of its own: one agent a folder, detached from whoever started it."""

from __future__ import annotations

import fcntl
import os
import sys
from typing import TYPE_CHECKING

from shunter_agent.files import read_json, write_json
from shunter_agent.keeping.clock import boot_id, start_time
from shunter_agent.keeping.layout import Layout

if TYPE_CHECKING:
    from shunter_agent.agent import Agent
    from shunter_agent.containing.keeper import Keeper

REFUSED = 1


class AlreadyRunning(Exception):
    """Another agent holds the folder."""


_REFUSALS = (AlreadyRunning, OSError, ValueError)


def start(root: str) -> int:
    """Start the agent as a daemon; returns when it has written `agent.json`, or has refused."""
    from shunter_agent import agent  # noqa: F401 - imported before the fork: its memory is shared, its faults are seen

    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.setsid()
        if os.fork() == 0:
            _become_daemon(root, writing)
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as pipe:
        message = pipe.read().decode("utf-8", "replace")
    if message == "ready":
        return 0
    sys.stderr.write(f"the agent did not start: {message or 'it died'}\n")
    return REFUSED


def run(root: str) -> int:
    """Run the agent in this process until it is released."""
    try:
        agent = _made(root)
    except _REFUSALS as error:
        sys.stderr.write(f"the agent did not start: {error}\n")
        return REFUSED
    return agent.run()


def claim(root: str) -> None:
    """Take the folder for this process as long as it lives, and say who it is in `agent.json`.

    Raises:
        AlreadyRunning: another agent has it.
    """
    layout = Layout(root)
    hold(layout.lock)
    identity = {"pid": os.getpid(), "start_time": start_time(os.getpid()), "boot_id": boot_id()}
    write_json(layout.identity, identity)


def hold(path: str) -> None:
    """Lock a file for this process as long as it lives.

    Raises:
        AlreadyRunning: another process has it.
    """
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held until the process ends: never closed
    except BlockingIOError:
        os.close(lock)
        raise AlreadyRunning(f"another agent runs in {os.path.dirname(path)}") from None


def run_contained(root: str) -> int:
    """Run the agent inside the container that a keeper has made for this folder."""
    layout = Layout(root)
    try:
        hold(layout.agent_lock)
        _attach_output(layout.log)  # it outlives the client of docker that shows it to the keeper
        from shunter_agent.containing.contained import Contained

        agent = Contained(root)
    except _REFUSALS as error:
        sys.stderr.write(f"the agent did not start: {error}\n")
        return REFUSED
    os._exit(agent.run())  # as the daemon does: its threads need no end, for which small images lack a library


def _made(root: str) -> Agent | Keeper:
    claim(root)
    if (read_json(Layout(root).launch) or {}).get("container"):
        from shunter_agent.containing.keeper import Keeper

        return Keeper(root)
    from shunter_agent.agent import Agent

    return Agent(root)


def _become_daemon(root: str, report: int) -> None:
    """In the grandchild: never returns."""
    status = REFUSED
    try:
        os.chdir(root)
        _attach_output(Layout(root).log)
        agent = _made(root)
        os.write(report, b"ready")
        os.close(report)
        status = agent.run()
    except _REFUSALS as error:
        os.write(report, str(error).encode("utf-8", "replace"))
    except BaseException:
        from shunter_agent.trace import trace_exception

        trace_exception("agent")
    os._exit(status)


def _attach_output(log: str) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(null, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(null)
    os.close(out)
