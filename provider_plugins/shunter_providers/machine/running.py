"""Starts a node's agent, and ends everything that belongs to the node."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping

from shunter_providers.contract import HANDLE_VARIABLE, Fault, Launch, NodeCondition, ProviderError, Scope
from shunter_providers.machine import processes
from shunter_providers.machine.folders import MARK, NodeFolder

_START_TIMEOUT_S = 20.0
_TERM_GRACE_S = 1.0
_KILL_GRACE_S = 2.0
_NOT_FOR_NODES = ("SHUNTER_", "CELERY", "FORKED_BY_MULTIPROCESSING", "_MP_")


async def start(folder: NodeFolder, launch: Launch) -> None:
    """Run the launch command to its end: the agent detaches itself before that and has left its `agent.json`.

    Raises:
        ProviderError: it did not start, or may not have.
    """
    argv = [part.replace("{python}", sys.executable) for part in launch.argv]
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            cwd=folder.path,
            env=_node_environment(os.environ, launch.environment, folder),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        _, said = await asyncio.wait_for(process.communicate(), _START_TIMEOUT_S)
    except TimeoutError as exc:
        raise ProviderError(
            Fault.AMBIGUOUS, f"the agent did not detach within {_START_TIMEOUT_S:.0f} s", may_have_created=True
        ) from exc
    except OSError as exc:
        raise ProviderError(Fault.TRANSIENT, f"{argv[0]}: {exc}", scope=Scope.ACCOUNT) from exc
    if process.returncode != 0 and folder.view().condition is not NodeCondition.RUNNING:  # a second starter is refused
        lines = said.decode(errors="replace").strip()[-2000:]
        raise ProviderError(
            Fault.TRANSIENT, f"the agent did not start (exit {process.returncode}): {lines}", scope=Scope.ACCOUNT
        )


def end(folder: NodeFolder) -> bool:
    """SIGTERM to the agent, then SIGKILL to whatever of the node is left. True: nothing is."""
    if not folder.path.is_dir():
        return True
    folder.release()
    agent = folder.agent()
    if agent is not None:
        processes.send(agent, signal.SIGTERM)
        _wait_until(lambda: not processes.is_alive(agent), _TERM_GRACE_S)
    give_up_at = time.monotonic() + _KILL_GRACE_S
    while left := folder.remains():  # looked at anew each time: what is being killed may still have forked
        for process in left:
            processes.send(process, signal.SIGKILL)
        if time.monotonic() > give_up_at:
            return False
        time.sleep(0.02)
    return True


def _node_environment(ours: Mapping[str, str], launch: Mapping[str, str], folder: NodeFolder) -> dict[str, str]:
    """The worker's environment without what belongs to the service itself."""
    kept = {name: value for name, value in ours.items() if not name.startswith(_NOT_FOR_NODES)}
    return {**kept, **launch, MARK: folder.mark, HANDLE_VARIABLE: folder.token}


def _wait_until(done: Callable[[], bool], timeout_s: float) -> None:
    give_up_at = time.monotonic() + timeout_s
    while not done() and time.monotonic() < give_up_at:
        time.sleep(0.01)
