"""Kubernetes: pods of any cluster, one for each node, over its API as every release since 1.27 has it.

A pod and the secret with its launch bear the node's token as their name, which the cluster takes once: a create call
that is sent again makes nothing. The cluster tells what is free, and no price: that is the operator's to set.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar, Final

from shunter_providers.cloud_kit.http import Api, CloudHttp
from shunter_providers.cloud_kit.naming import token_of
from shunter_providers.cloud_kit.options import read_options
from shunter_providers.cloud_kit.reading import Fields
from shunter_providers.cloud_kit.rest import RestCloud
from shunter_providers.clouds.kubernetes.nodes import Kind, configured_price, kinds_of, offers_of
from shunter_providers.clouds.kubernetes.pods import SELECTOR, pod_of, secret_of
from shunter_providers.clouds.kubernetes.settings import KubernetesOptions, KubernetesSettings, access_of
from shunter_providers.clouds.kubernetes.words import FAULTS, moment_of, view, words_of
from shunter_providers.contract import (
    Capabilities,
    Fault,
    Identity,
    Instance,
    Intent,
    NodeCondition,
    NodeView,
    Offer,
    OfferQuery,
    Price,
    ProviderError,
    Scope,
    SelfStop,
)
from shunter_providers.plugin_settings import read_settings

_PAGE: Final = 500
_ENDED_WITHIN_S: Final = 15
"""What a pod may take that we end ourselves: its job has ended before."""
_ORPHAN_AFTER_S: Final = 300.0
"""A secret that has no pod by then was left over by a process that died: longer than any create call takes."""
_METADATA: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_STRICT: Final[Mapping[str, str]] = {"fieldValidation": "Strict", "fieldManager": "shunter"}


class KubernetesProvider(RestCloud):
    """Pods of one namespace."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        bootstrap="launch",
        idempotency="unique_name",
        kinds=("container",),
        capacities=("on_demand", "spot"),
        price_source="none",
        fabric="ethernet",
        options=tuple(KubernetesOptions.model_fields),
        self_stop=SelfStop.ENDS_BILLING,
        power_off="kill -TERM $PPID",  # the agent, with which its pod ends
        visibility_delay_s=2.0,
        readiness_deadline_s=1200.0,  # large images are pulled for that long
        scan_interval_s=10.0,
        bills=False,
        runs_images=True,
    )
    handle_pattern = r"[a-z0-9][a-z0-9-]{0,62}"

    def __init__(self, instance: Instance) -> None:
        self._open(instance, read_settings(instance, KubernetesSettings))

    def _open(self, instance: Instance, settings: KubernetesSettings) -> None:
        """For subclasses with settings of their own."""
        access = access_of(instance, settings)
        self._settings = settings
        self._namespace = settings.namespace or access.namespace or "default"
        self._pods = f"/api/v1/namespaces/{self._namespace}/pods"
        self._secrets = f"/api/v1/namespaces/{self._namespace}/secrets"
        api = Api(
            base_url=access.server,
            faults=FAULTS,
            words_of=words_of,
            auth=access.auth,
            certificates=access.certificates,
            proxy=access.proxy,
            timeout_s=settings.timeout_s,
        )
        account = f"{access.server}/{self._namespace}"
        super().__init__(instance, api, credential=access.who, account=account, times=settings)
        self._metadata = CloudHttp(instance, replace(api, headers={"Accept": _METADATA}), credential=access.who)
        if settings.prices or settings.spot_prices:
            billed = replace(self.capabilities, bills=True, price_source="live")
            object.__setattr__(self, "capabilities", billed)

    async def whoami(self) -> Identity:
        """The cluster and the namespace are the account: whoever may see it sees the same pods. The credentials are
        proven by the listing that everything depends on, which is empty where there is no such namespace."""
        await self._list()
        await self._find_namespace()
        return Identity(self._account, {"user": await self._user()})

    async def offers(self, query: OfferQuery) -> Sequence[Offer]:
        """Kinds of nodes, whole and in parts, with what is free of them."""
        nodes = await self._all("/api/v1/nodes")
        pods = await self._every_pod()
        kinds = kinds_of(nodes, pods, self._settings)
        return offers_of(kinds, self._settings, self._price_of, all_seen=pods is not None)

    async def create(self, intent: Intent) -> str:
        """See the contract. The secret comes first, so that a pod that is there lacks nothing."""
        options = read_options(intent, KubernetesOptions, self.instance.name)
        secret, pod = secret_of(intent), pod_of(intent, self._settings, options, time.time())
        try:
            await self._make(self._secrets, secret)
        except ProviderError as exc:
            if exc.fault is not Fault.CONFLICT:
                raise
        try:
            await self._make(self._pods, pod, creates=True)
        except ProviderError as exc:
            if exc.fault is Fault.CONFLICT:
                return await self._adopt(intent.token)
            if not exc.may_have_created:
                await self._sweep(intent.token)
            raise
        self._note_made(intent.token, intent.token)
        return intent.token

    async def close(self) -> None:
        """See the contract."""
        await super().close()
        await self._metadata.close()

    async def _order(self, intent: Intent) -> str:
        return await self.create(intent)

    async def _look(self, handle: str) -> NodeView:
        pod = await self.http.fields("GET", f"{self._pods}/{handle}")
        return self._view(pod)

    async def _list(self) -> Sequence[NodeView]:
        """Pods, and secrets that were left over."""
        pods = await self._all(self._pods, labelSelector=SELECTOR)
        views = [self._view(pod) for pod in pods]
        secrets = await self._all(self._secrets, self._metadata, labelSelector=SELECTOR)
        with_pods = {one.handle for one in views}
        return [*views, *(one for secret in secrets if (one := _orphan(secret, with_pods, time.time())) is not None)]

    def _view(self, pod: Fields) -> NodeView:
        return view(pod, time.time(), self._settings.unschedulable_after_s, self._settings.image)

    async def _end(self, handle: str) -> None:
        ends = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": self._ends_within_s()}
        missing = [
            await _is_missing(self.http.ask("DELETE", f"{self._pods}/{handle}", json=ends)),
            await _is_missing(self.http.ask("DELETE", f"{self._secrets}/{handle}")),
        ]
        if all(missing):
            raise ProviderError(Fault.NOT_FOUND, f"there is no pod {handle} in {self._namespace}", scope=Scope.OFFER)

    def _ends_within_s(self) -> int:
        return min(_ENDED_WITHIN_S, self._settings.grace_s)

    def _price_of(self, kind: Kind, jurisdiction: str) -> Price | None:
        if not self.capabilities.bills:
            return Price(billed=False)
        usd = configured_price(kind, self._settings)
        return None if usd is None else Price(gpu_usd_per_hour=usd)

    async def _make(self, path: str, body: Mapping[str, Any], *, creates: bool = False) -> None:
        await self.http.fields("POST", path, params=_STRICT, json=body, creates=creates)

    async def _adopt(self, token: str) -> str:
        """A pod of that name is there: ours, or somebody else's, which is told."""
        if (await self._look(token)).token == token:
            self._note_made(token, token)
            return token
        detail = f"a pod {token} stands in {self._namespace} that is not ours: its label says another token"
        raise ProviderError(Fault.INVALID, detail, scope=Scope.ACCOUNT)

    async def _sweep(self, token: str) -> None:
        """The launch of a pod that was refused. What is left all the same is found by listings."""
        with suppress(ProviderError):
            await self.http.ask("DELETE", f"{self._secrets}/{token}")

    async def _find_namespace(self) -> None:
        """Credentials that may not look are believed."""
        try:
            await self.http.ask("GET", f"/api/v1/namespaces/{self._namespace}")
        except ProviderError as exc:
            if exc.detail.startswith("404 "):
                name = f"providers.{self.instance.name}"
                detail = f"{name}: the cluster has no namespace {self._namespace!r}: make it, or set namespace"
                raise ProviderError(Fault.INVALID, detail, scope=Scope.ACCOUNT) from None
            if exc.fault is not Fault.AUTH or " cannot get resource " not in exc.detail:
                raise

    async def _user(self) -> str:
        """Empty: the cluster does not tell (before 1.28)."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        try:
            answer = await self.http.fields("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", json=body)
        except ProviderError as exc:
            if exc.fault is Fault.NOT_FOUND:
                return ""
            raise
        return answer.inside("status").inside("userInfo").text("username", "")

    async def _every_pod(self) -> list[Fields] | None:
        """Of all namespaces; None: these credentials may not see them."""
        try:
            return await self._all("/api/v1/pods", fieldSelector="status.phase!=Succeeded,status.phase!=Failed")
        except ProviderError as exc:
            if exc.fault is Fault.AUTH and " cannot list resource " in exc.detail:
                return None
            raise

    async def _all(self, path: str, http: CloudHttp | None = None, **params: str) -> list[Fields]:
        """All pages of a listing. One that grew too old while it was read is begun again, once."""
        for _ in range(2):
            found: list[Fields] = []
            more = ""
            while True:
                asked = {**params, "limit": str(_PAGE), **({"continue": more} if more else {})}
                try:
                    page = await (http or self.http).fields("GET", path, params=asked)
                except ProviderError as exc:
                    if more and exc.detail.startswith("410 "):
                        break
                    raise
                found += page.items("items")
                more = page.inside("metadata").text("continue", "")
                if not more:
                    return found
        detail = f"GET {path}: the listing grew too old while it was read, twice"
        raise ProviderError(Fault.TRANSIENT, detail)


async def _is_missing(call: Any) -> bool:
    try:
        await call
    except ProviderError as exc:
        if exc.fault is not Fault.NOT_FOUND:
            raise
        return True
    return False


def _orphan(secret: Fields, with_pods: set[str], now: float) -> NodeView | None:
    """What a process left that died between the secret and the pod."""
    meta = secret.inside("metadata")
    name, made_at = meta.text("name"), moment_of(meta.text("creationTimestamp", ""), now)
    if name in with_pods or token_of(name) is None or now - made_at < _ORPHAN_AFTER_S:
        return None
    return NodeView(name, token_of(name), NodeCondition.STOPPED, "only the secret of its launch is left")
