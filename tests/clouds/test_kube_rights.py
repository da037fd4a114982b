"""The manifest of rights gives what the plugin uses, and no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from shunter_providers.testing.conformance import until_terminated
from support.clouds.kube_account import TOKEN, an_intent, kubernetes
from support.clouds.kubernetes import KubernetesCluster

MANIFEST = Path(__file__).parents[2] / "deploy" / "kubernetes" / "rights.yaml"


async def test_the_rights_that_an_operator_applies_are_those_that_the_plugin_uses() -> None:
    with KubernetesCluster(TOKEN, namespace="shunter") as cluster:
        provider = kubernetes(cluster, namespace="shunter")
        await provider.whoami()
        handle = await provider.create(await an_intent(provider))
        await provider.get(handle)
        await until_terminated(provider, handle)
        await provider.close()

    granted = {(kind, verb, resource) for kind, verb, resource in rights()}

    assert cluster.used == granted


def rights() -> list[tuple[str, str, str]]:
    found = []
    documents: list[dict[str, Any]] = list(yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8")))
    for document in documents:
        for rule in document.get("rules", ()):
            found += [(document["kind"], verb, what) for verb in rule["verbs"] for what in rule["resources"]]
    return found
