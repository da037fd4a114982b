"""The scheduler of the fake cluster: node affinity, taints, resources, pods near to and far from each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

GPU = "nvidia.com/gpu"
_UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "m": 0.001, "k": 1000}

Json = Mapping[str, Any]


def node(name: str, kind: str, cpus: int, memory_gib: int, **more: Any) -> dict[str, Any]:
    """A node that is ready. `more`: `gpus`, `product`, `region`, `labels`, `taints`, `extended`."""
    labels = {"kubernetes.io/hostname": name, **more.get("labels", {})}
    if kind:
        labels["node.kubernetes.io/instance-type"] = kind
    if "region" in more:
        labels["topology.kubernetes.io/region"] = more["region"]
    if "product" in more:
        labels["nvidia.com/gpu.product"] = more["product"]
    has = {"cpu": str(cpus), "memory": f"{memory_gib}Gi", "pods": "110", "ephemeral-storage": "1000Gi"}
    if more.get("gpus"):
        has[GPU] = str(more["gpus"])
    has |= more.get("extended", {})
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": more["taints"]} if "taints" in more else {},
        "status": {"allocatable": has, "capacity": has, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def place(pod: Json, nodes: Sequence[Json], standing: Sequence[Json]) -> tuple[str | None, str]:
    """The node for a pod, or None and what the scheduler says of it."""
    refusals: Counter[str] = Counter()
    for one in sorted(nodes, key=lambda one: -_liked(pod["spec"], one)):
        why = _why_not(pod, one, nodes, standing)
        if why is None:
            return one["metadata"]["name"], ""
        refusals[why] += 1
    listed = ", ".join(f"{count} {why}" for why, count in sorted(refusals.items()))
    return None, f"0/{len(nodes)} nodes are available: {listed}. preemption: 0/{len(nodes)} nodes are available."


def quantity(text: str) -> float:
    """Of the suffixes that clusters write."""
    suffix = next((one for one in _UNITS if text.endswith(one)), "")
    return float(text.removesuffix(suffix)) * _UNITS.get(suffix, 1)


def _why_not(pod: Json, one: Json, nodes: Sequence[Json], standing: Sequence[Json]) -> str | None:
    spec = pod["spec"]
    if one["spec"].get("unschedulable"):
        return "node(s) were unschedulable"
    for taint in one["spec"].get("taints", ()):
        if not any(_tolerates(toleration, taint) for toleration in spec["tolerations"]):
            return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
    if not _selected(spec, one):
        return "node(s) didn't match Pod's node affinity/selector"
    for name, wanted in spec["containers"][0]["resources"]["requests"].items():
        if quantity(wanted) > _free(name, one, standing):
            return f"Insufficient {name}"
    return None if _gets_along(pod, one, nodes, standing) else "node(s) didn't match pod affinity rules"


def _selected(spec: Json, one: Json) -> bool:
    labels, name = one["metadata"]["labels"], one["metadata"]["name"]
    if any(labels.get(key) != value for key, value in spec["nodeSelector"].items()):
        return False
    required = (spec["affinity"].get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return True
    return any(
        all(_matches(rule, labels.get(rule["key"])) for rule in term["matchExpressions"])
        and all(_matches(rule, name) for rule in term["matchFields"])
        for term in required["nodeSelectorTerms"]
    )


def _liked(spec: Json, one: Json) -> int:
    wishes = (spec["affinity"].get("nodeAffinity") or {}).get("preferredDuringSchedulingIgnoredDuringExecution", ())
    labels = one["metadata"]["labels"]
    fitting = [
        wish
        for wish in wishes
        if all(_matches(rule, labels.get(rule["key"])) for rule in wish["preference"]["matchExpressions"])
    ]
    return sum(wish["weight"] for wish in fitting)


def _matches(rule: Json, value: str | None) -> bool:
    if rule["operator"] in ("Exists", "DoesNotExist"):
        return (value is not None) is bool(rule["operator"] == "Exists")
    return (value in rule["values"]) is bool(rule["operator"] == "In")


def _tolerates(toleration: Json, taint: Json) -> bool:
    if toleration["effect"] not in ("", taint["effect"]) or toleration["key"] not in ("", taint["key"]):
        return False
    return bool(toleration["operator"] == "Exists" or toleration["value"] == taint.get("value", ""))


def _free(name: str, one: Json, standing: Sequence[Json]) -> float:
    here = [pod for pod in standing if pod["spec"].get("nodeName") == one["metadata"]["name"]]
    held = [
        quantity(container["resources"]["requests"].get(name, "0")) for pod in here for container in _containers(pod)
    ]
    return quantity(one["status"]["allocatable"].get(name, "0")) - sum(held)


def _containers(pod: Json) -> Sequence[Json]:
    found: Sequence[Json] = pod["spec"]["containers"]
    return found


def _gets_along(pod: Json, one: Json, nodes: Sequence[Json], standing: Sequence[Json]) -> bool:
    where = {other["metadata"]["name"]: other["metadata"]["labels"] for other in nodes}
    affinity = pod["spec"]["affinity"]
    for rule in _rules(affinity, "podAffinity"):
        key, labels = rule["topologyKey"], one["metadata"]["labels"]
        alike = [other for other in standing if _has(other, rule)]
        near = [other for other in alike if _at(other, where, key) == labels.get(key)]
        if key not in labels or (alike and not near):
            return False
    return not any(
        _has(other, rule)
        and _at(other, where, rule["topologyKey"]) == one["metadata"]["labels"].get(rule["topologyKey"])
        for rule in _rules(affinity, "podAntiAffinity")
        for other in standing
    )


def _rules(affinity: Json, kind: str) -> Sequence[Json]:
    found: Sequence[Json] = (affinity.get(kind) or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or ()
    return found


def _has(pod: Json, rule: Json) -> bool:
    labels = pod["metadata"].get("labels", {})
    wanted = rule["labelSelector"]["matchLabels"]
    return "nodeName" in pod["spec"] and all(labels.get(key) == value for key, value in wanted.items())


def _at(pod: Json, where: Mapping[str, Json], key: str) -> str | None:
    value: str | None = where.get(pod["spec"].get("nodeName", ""), {}).get(key)
    return value
