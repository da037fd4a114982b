"""What the kube API, the scheduler and the kubelet say, in the contract's words. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from shunter_providers.cloud_kit.faults import Row
from shunter_providers.cloud_kit.naming import token_of
from shunter_providers.cloud_kit.reading import Fields
from shunter_providers.clouds.kubernetes.pods import TOKEN
from shunter_providers.contract import Fault, NodeCondition, NodeView, Scope

# fmt: off
FAULTS: Final = (
    Row(403, r"exceeded quota|maximum .* per (Pod|Container) is|minimum .* per (Pod|Container) is",
        Fault.QUOTA, Scope.OFFER),
    Row(403, r"is being terminated|NamespaceTerminating",   Fault.TRANSIENT, Scope.ACCOUNT),
    Row(403, r" cannot \w+ resource ",                      Fault.AUTH,      Scope.ACCOUNT),
    # The pod itself is refused: by a webhook, by Pod Security, for a priority class or service account that is not.
    Row(403, r"denied the request|violates PodSecurity|no PriorityClass|serviceaccount .* not found|must specify|"
             r"pods \".*\" is forbidden",                   Fault.INVALID,   Scope.OFFER),
    Row((400, 499), r"denied the request",                  Fault.INVALID,   Scope.OFFER),
    Row(404, r"namespaces? \".*\" not found",              Fault.INVALID,   Scope.ACCOUNT),
    Row(500, r"failed calling webhook|failed to call webhook",
        Fault.TRANSIENT, Scope.ACCOUNT, makes_nothing=True),
)
_DISRUPTIONS: Final[Mapping[str, str]] = {
    "PreemptionByScheduler":  "preempted by a pod of higher priority",
    "DeletionByTaintManager": "its node was tainted, which a drained or broken node is",
    "EvictionByEvictionAPI":  "evicted: its node is drained",
    "DeletionByPodGC":        "its node is gone",
    "TerminationByKubelet":   "ended by its node, which shuts down or is short of something",
}
_ENDED_BY: Final[Mapping[str, str]] = {
    "Evicted":      "evicted by its node",
    "Preempted":    "preempted by its node",
    "Preempting":   "preempted by its node",
    "NodeLost":     "its node does not answer any more",
    "NodeShutdown": "its node was shut down",
    "Shutdown":     "its node was shut down",
    "Terminated":   "its node was shut down",
    "DeadlineExceeded": "its time is over",
    "UnexpectedAdmissionError": "its node has no such device free any more",
}
# fmt: on
_NEVER_PULLED: Final = re.compile(
    r"not found|manifest unknown|does not exist|denied|unauthorized|forbidden|no match for platform|"
    r"no matching manifest|invalid reference|couldn't parse image|repository name must|authentication required",
    re.IGNORECASE,
)
"""What is wrong with an image for good; a registry that is slow or busy is asked again by the node."""
_PULLING: Final = ("ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ImageInspectError")
_NEVER_STARTS: Final = (
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "StartError",
)
_PASSES: Final = re.compile(r"deadline exceeded|timeout|timed out|connection refused|try again", re.IGNORECASE)
_NO_IMAGE: Final = ("InvalidImageName", "ErrImageNeverPull")
_WRONG: Final = re.compile(r"executable file not found|no such file or directory|runAsNonRoot", re.IGNORECASE)
"""Of a container that cannot be started: what another node would not change."""
_ENDS: Final[Mapping[str, NodeCondition]] = {"Failed": NodeCondition.FAILED, "Succeeded": NodeCondition.STOPPED}


def words_of(body: Any, text: str) -> tuple[str, str]:
    """Of a `Status`: its reason and message."""
    if not isinstance(body, Mapping) or body.get("kind") != "Status":
        return "", text[:300]
    return str(body.get("reason") or ""), str(body.get("message") or "")


def moment_of(text: str, default: float) -> float:
    """A time of the API as seconds since the epoch; the default where it is none."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return default


class _State(NamedTuple):
    condition: NodeCondition
    reason: str = ""
    fault: Fault | None = None


def view(pod: Fields, now: float, unschedulable_after_s: float, own_image: str = "") -> NodeView:
    """The node that a pod is.

    Args:
        now: seconds since the epoch.
        own_image: that of the settings; if it is wrong, it is not the job that is.
    """
    meta, spec, status = pod.inside("metadata"), pod.inside("spec"), pod.inside("status")
    name = meta.text("name")
    state = _state(meta, status, now, unschedulable_after_s)
    addresses = {"private": status.text("podIP", "-"), "machine": spec.text("nodeName", "-")}
    ours = meta.inside("labels").text(TOKEN, "-") == name
    return NodeView(
        handle=name,
        token=token_of(name) if ours else None,
        condition=state.condition,
        reason=state.reason,
        addresses={key: value for key, value in addresses.items() if value != "-"},
        fault=state.fault,
        scope=Scope.ACCOUNT if state.fault is Fault.INVALID and _image(spec) == own_image else Scope.OFFER,
    )


def _image(spec: Fields) -> str:
    containers = spec.items("containers") if "containers" in spec else []
    return containers[0].text("image", "") if containers else ""


def _state(meta: Fields, status: Fields, now: float, unschedulable_after_s: float) -> _State:
    phase = status.text("phase", "Pending")
    why = _why_it_goes(status)
    if phase in _ENDS:
        return _State(_ENDS[phase], "; ".join(part for part in (why, _how_it_ended(status)) if part))
    if "deletionTimestamp" in meta:
        return _State(NodeCondition.STOPPED, f"it is being ended: {why}" if why else "it is being ended")
    if phase == "Running":
        return _State(NodeCondition.RUNNING)
    if phase == "Pending":
        return _pending(status, now, unschedulable_after_s)
    return _State(NodeCondition.UNKNOWN, f"phase {phase}: its node does not answer")


def _pending(status: Fields, now: float, unschedulable_after_s: float) -> _State:
    """What has no node yet is in a queue: that of a queue's manager, or the scheduler's own."""
    scheduled = _condition_of(status, "PodScheduled")
    if scheduled is not None and scheduled.text("status", "") == "False":
        reason, message = scheduled.text("reason", ""), scheduled.text("message", "")
        if reason == "SchedulingGated":
            return _State(NodeCondition.QUEUED, "a queue has not let it in yet")
        waited_s = now - moment_of(scheduled.text("lastTransitionTime", ""), now)
        if reason != "Unschedulable":
            return _State(NodeCondition.PENDING, message)
        if waited_s >= unschedulable_after_s:
            return _State(NodeCondition.FAILED, f"no capacity: {message}", Fault.NO_CAPACITY)
        return _State(NodeCondition.QUEUED, message)
    return _starting(status)


def _starting(status: Fields) -> _State:
    waiting = next((one.inside("state").inside("waiting") for one in _containers(status)), None)
    if waiting is None:
        return _State(NodeCondition.PENDING)
    reason, message = waiting.text("reason", ""), waiting.text("message", "")
    said = f"{reason}: {message}".rstrip(": ")
    if reason in _NO_IMAGE or (reason in _PULLING and _NEVER_PULLED.search(message)):
        return _State(NodeCondition.FAILED, f"the image cannot be pulled: {said}", Fault.INVALID)
    if reason in _NEVER_STARTS and not _PASSES.search(message):
        wrong = reason == "CreateContainerConfigError" or _WRONG.search(message)
        fault = Fault.INVALID if wrong else None
        return _State(NodeCondition.FAILED, f"the container cannot be started: {said}", fault)
    return _State(NodeCondition.PENDING, said)


def _why_it_goes(status: Fields) -> str:
    """Who took it away; empty: nobody, as far as is known."""
    disruption = _condition_of(status, "DisruptionTarget")
    parts = []
    if disruption is not None and disruption.text("status", "") == "True":
        reason = disruption.text("reason", "")
        parts = [_DISRUPTIONS.get(reason, reason), disruption.text("message", "")]
    elif "reason" in status:
        reason = status.text("reason", "")
        parts = [_ENDED_BY.get(reason, reason), status.text("message", "")]
    return ": ".join(part for part in parts if part)


def _how_it_ended(status: Fields) -> str:
    """The end of the container, and the last that it said."""
    ended = next((one.inside("state").inside("terminated") for one in _containers(status)), None)
    if ended is None or "exitCode" not in ended:
        return ""
    code, reason = ended.count("exitCode"), ended.text("reason", "")
    how = "it ran out of memory" if reason == "OOMKilled" else f"its program ended with {code}"
    said = ended.text("message", "").strip()[-400:]
    return f"{how}: {said}" if said else how


def _containers(status: Fields) -> list[Fields]:
    return status.items("containerStatuses") if "containerStatuses" in status else []


def _condition_of(status: Fields, kind: str) -> Fields | None:
    found = status.items("conditions") if "conditions" in status else []
    return next((one for one in found if one.text("type", "") == kind), None)
