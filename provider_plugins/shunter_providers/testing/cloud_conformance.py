"""The kit's faults: what a plugin must make of everything that goes wrong with a cloud, proven against a fake of it.

    class TestAcme(CloudConformance):
        @pytest.fixture
        def cloud(self) -> Iterator[WireCloud]:
            with AcmeCloud() as cloud:
                yield cloud

        @pytest.fixture
        def provider(self, cloud: WireCloud) -> Provider:
            settings = {"base_url": cloud.url, "api_key": self.secret, "timeout_s": 1}
            return AcmeProvider(Instance("acme", "acme", settings, pacer=Unpaced()))

Give the plugin a time-out of a second: the fake answers later than that on purpose; and no pace, or it keeps to the
waits that the fake names. Beside the tests here, all of
`ProviderConformance` runs, and after each test the fake itself must hold no node.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import ClassVar, Final

import pytest
import pytest_asyncio

from shunter_providers.contract import Fault, Intent, Launch, NodeCondition, OfferQuery, Provider, ProviderError, Scope
from shunter_providers.testing.conformance import (
    ProviderConformance,
    listed,
    make_intent,
    runs_in_a_loop,
    terminate_all,
    until_terminated,
    wait_for,
)
from shunter_providers.testing.faults import CloudFault
from shunter_providers.testing.wire import WireCloud

FOR_EVER: Final = 1000
SLOWER_THAN_THE_TIMEOUT_S: Final = 1.6
_IMAGE: Final = "registry.example/acme/train:1"


@runs_in_a_loop
class CloudConformance(ProviderConformance):
    """Fixtures to give: `cloud`, `provider`. The fake's secret is `secret`."""

    secret: ClassVar[str] = "not-to-be-shown-4711"  # noqa: S105 - no secret at all
    """The credential that `provider` has and `cloud` takes."""
    crowd: ClassVar[int] = 3
    """Nodes of the listing test: more than one page, where the vendor has pages."""

    @pytest.fixture
    def launch(self) -> Launch:
        """What starts the agent; a fake runs nothing."""
        return Launch(argv=("{python}", "agent.pyz"), files={"agent.pyz": b"#!", "launch.json": b"{}"})

    @pytest_asyncio.fixture(autouse=True)
    async def _leave_the_cloud_empty(
        self, _leave_nothing: None, provider: Provider, deployment: str, cloud: WireCloud
    ) -> AsyncIterator[None]:
        yield
        cloud.calm()
        await _until_all_show(cloud)
        await terminate_all(provider, deployment)
        assert cloud.nodes() == []

    async def test_after_a_lost_reply_the_node_is_found_and_not_made_again(
        self, provider: Provider, cloud: WireCloud, deployment: str, intent: Intent
    ) -> None:
        error = await _create_under(provider, cloud, intent, CloudFault.LOST_REPLY)

        assert error.may_have_created
        (found,) = await listed(provider, deployment, 1)
        assert found.token == intent.token
        assert await provider.create(intent) == found.handle
        assert len(cloud.nodes()) == 1

    @pytest.mark.parametrize("fault", [CloudFault.FAILED_AFTER, CloudFault.JUNK])
    async def test_an_answer_that_says_nothing_may_have_made_a_node(
        self, provider: Provider, cloud: WireCloud, deployment: str, intent: Intent, fault: CloudFault
    ) -> None:
        error = await _create_under(provider, cloud, intent, fault)

        assert error.may_have_created
        assert [view.token for view in await listed(provider, deployment, 1)] == [intent.token]

    async def test_a_create_that_takes_too_long_may_have_made_a_node(
        self, provider: Provider, cloud: WireCloud, deployment: str, intent: Intent
    ) -> None:
        error = await _create_under(provider, cloud, intent, CloudFault.SLOW, delay_s=SLOWER_THAN_THE_TIMEOUT_S)

        assert error.may_have_created
        assert [view.token for view in await listed(provider, deployment, 1)] == [intent.token]

    async def test_a_node_that_shows_late_is_found_when_it_shows(
        self, provider: Provider, cloud: WireCloud, deployment: str, intent: Intent
    ) -> None:
        _need(cloud, CloudFault.LATE)
        cloud.strike(CloudFault.LATE, delay_s=0.4)
        handle = await provider.create(intent)

        unseen = await provider.list_owned(deployment)

        assert list(unseen) == []
        assert [view.handle for view in await listed(provider, deployment, 1)] == [handle]

    async def test_a_node_that_shows_late_is_not_gone_when_it_is_ended_before(
        self, provider: Provider, cloud: WireCloud, intent: Intent
    ) -> None:
        _need(cloud, CloudFault.LATE)
        cloud.strike(CloudFault.LATE, delay_s=0.4)
        handle = await provider.create(intent)

        at_once = await provider.terminate(handle)
        await until_terminated(provider, handle)

        assert at_once is False or cloud.nodes() == []
        assert cloud.nodes() == []

    async def test_twins_are_both_listed_and_both_can_be_ended(
        self, provider: Provider, cloud: WireCloud, deployment: str, intent: Intent
    ) -> None:
        _need(cloud, CloudFault.TWIN)
        cloud.strike(CloudFault.TWIN)
        await provider.create(intent)

        views = await listed(provider, deployment, 2)

        assert [view.token for view in views] == [intent.token] * 2
        assert len({view.handle for view in views}) == 2

    async def test_a_wait_that_the_cloud_names_is_passed_on_and_nothing_is_made(
        self, provider: Provider, cloud: WireCloud, intent: Intent
    ) -> None:
        error = await _create_under(provider, cloud, intent, CloudFault.RATE_LIMITED, delay_s=7)

        assert (error.fault, error.scope, error.retry_after_s) == (Fault.RATE_LIMITED, Scope.ACCOUNT, 7)
        assert not error.may_have_created
        assert cloud.nodes() == []

    async def test_a_limit_without_a_wait_is_known_as_one(
        self, provider: Provider, cloud: WireCloud, intent: Intent
    ) -> None:
        error = await _create_under(provider, cloud, intent, CloudFault.RATE_LIMITED_SILENT)

        assert error.fault is Fault.RATE_LIMITED
        assert not error.may_have_created

    async def test_a_reading_call_gets_over_a_passing_fault_by_itself(
        self, provider: Provider, cloud: WireCloud, deployment: str, intent: Intent
    ) -> None:
        await provider.create(intent)
        await listed(provider, deployment, 1)
        cloud.strike(CloudFault.SERVER_ERROR, on="list")

        assert len(await provider.list_owned(deployment)) == 1

    @pytest.mark.parametrize(
        ("fault", "expected"),
        [(CloudFault.SERVER_ERROR, Fault.TRANSIENT), (CloudFault.JUNK, Fault.TRANSIENT), (CloudFault.AUTH, Fault.AUTH)],
    )
    async def test_a_listing_that_fails_is_an_error_and_never_empty(
        self, provider: Provider, cloud: WireCloud, deployment: str, fault: CloudFault, expected: Fault
    ) -> None:
        cloud.strike(fault, on="list", times=FOR_EVER)

        error = await _error_of(lambda: provider.list_owned(deployment))

        assert error.fault is expected

    async def test_revoked_credentials_are_known_at_every_verb_and_never_shown(
        self, provider: Provider, cloud: WireCloud, deployment: str, intent: Intent
    ) -> None:
        handle = await provider.create(intent)
        await listed(provider, deployment, 1)
        cloud.strike(CloudFault.AUTH, times=FOR_EVER)

        errors = [
            await _error_of(provider.whoami),
            await _error_of(lambda: provider.offers(OfferQuery())),
            await _error_of(lambda: provider.create(make_intent(deployment, intent.offer, intent.launch))),
            await _error_of(lambda: provider.get(handle)),
            await _error_of(lambda: provider.terminate(handle)),
        ]

        assert {(error.fault, error.scope, error.may_have_created) for error in errors} == {
            (Fault.AUTH, Scope.ACCOUNT, False)
        }
        assert [error.detail for error in errors if self.secret in f"{error.detail} {error!r}"] == []
        assert self.secret not in repr(provider)

    @pytest.mark.parametrize(
        ("fault", "expected", "scopes"),
        [
            (CloudFault.PAYMENT, Fault.PAYMENT, (Scope.ACCOUNT,)),
            (CloudFault.QUOTA, Fault.QUOTA, (Scope.OFFER, Scope.REGION, Scope.ACCOUNT)),
            (CloudFault.NO_CAPACITY, Fault.NO_CAPACITY, (Scope.OFFER, Scope.ZONE, Scope.REGION)),
        ],
    )
    async def test_a_refusal_has_its_name_and_its_reach_and_words_for_an_operator(
        self,
        provider: Provider,
        cloud: WireCloud,
        intent: Intent,
        fault: CloudFault,
        expected: Fault,
        scopes: tuple[Scope, ...],
    ) -> None:
        error = await _create_under(provider, cloud, intent, fault)

        assert error.fault is expected
        assert error.scope in scopes
        assert not error.may_have_created
        assert len(error.detail) > 10
        assert cloud.nodes() == []

    async def test_a_node_that_never_boots_stays_pending_and_can_be_ended(
        self, provider: Provider, cloud: WireCloud, deployment: str, intent: Intent
    ) -> None:
        _need(cloud, CloudFault.NEVER_BOOTS)
        cloud.strike(CloudFault.NEVER_BOOTS)
        handle = await provider.create(intent)
        await listed(provider, deployment, 1)

        view = await provider.get(handle)
        await until_terminated(provider, handle)

        assert view.condition in (NodeCondition.PENDING, NodeCondition.QUEUED)
        assert cloud.nodes() == []

    async def test_a_job_s_own_image_takes_the_place_of_the_plugin_s(
        self, provider: Provider, cloud: WireCloud, intent: Intent
    ) -> None:
        if not provider.capabilities.runs_images or provider.capabilities.runs_images_by_docker:
            pytest.skip("its nodes boot no container images")

        await provider.create(replace(intent, image=_IMAGE))

        (node,) = cloud.nodes()
        assert _IMAGE in json.dumps(node.order, default=str)

    async def test_an_image_that_does_not_exist_is_the_job_s_fault_and_the_plugin_s_own_is_the_operator_s(
        self, provider: Provider, cloud: WireCloud, deployment: str, intent: Intent
    ) -> None:
        if not provider.capabilities.runs_images or provider.capabilities.runs_images_by_docker:
            pytest.skip("its nodes boot no container images")
        _need(cloud, CloudFault.NO_IMAGE)
        cloud.strike(CloudFault.NO_IMAGE, times=2)
        asked = replace(intent, image=_IMAGE)
        named = await provider.create(asked)
        unnamed = await provider.create(make_intent(deployment, intent.offer, intent.launch))

        job_s, own = [await wait_for(provider, one, NodeCondition.FAILED, 10) for one in (named, unnamed)]

        assert (job_s.fault, job_s.scope, own.fault) == (Fault.INVALID, Scope.OFFER, Fault.INVALID)
        assert own.scope in (Scope.ACCOUNT, Scope.PROVIDER)
        assert len(job_s.reason) > 10
        assert _IMAGE in job_s.reason

    async def test_an_end_that_takes_long_is_not_yet_done_and_the_node_stays_listed(
        self, provider: Provider, cloud: WireCloud, deployment: str, intent: Intent
    ) -> None:
        _need(cloud, CloudFault.STUCK)
        handle = await provider.create(intent)
        await listed(provider, deployment, 1)
        cloud.strike(CloudFault.STUCK, delay_s=0.6)

        asked = await provider.terminate(handle)
        still_there = await provider.list_owned(deployment)

        assert asked is False
        assert [view.handle for view in still_there] == [handle]
        await until_terminated(provider, handle)

    async def test_a_node_that_bills_more_than_was_offered_says_so(
        self, provider: Provider, cloud: WireCloud, deployment: str, intent: Intent
    ) -> None:
        _need(cloud, CloudFault.DEARER)
        if not cloud.shows_rate:
            pytest.skip("this vendor does not tell what a node is billed")
        cloud.strike(CloudFault.DEARER)
        await provider.create(intent)

        (view,) = await listed(provider, deployment, 1)

        offered = intent.offer.price.gpu_usd_per_hour
        assert view.billed_usd_per_hour is not None
        assert view.billed_usd_per_hour > 1.2 * offered

    async def test_a_node_that_is_taken_away_no_longer_runs_and_says_why(
        self, provider: Provider, cloud: WireCloud, intent: Intent
    ) -> None:
        handle = await provider.create(intent)
        await wait_for(provider, handle, NodeCondition.RUNNING, 10)
        cloud.preempt(handle)

        view = await provider.get(handle)

        assert view.condition in (NodeCondition.FAILED, NodeCondition.STOPPED, NodeCondition.GONE)
        assert view.condition is NodeCondition.GONE or view.reason

    async def test_a_listing_is_complete_over_all_of_its_pages(
        self, provider: Provider, cloud: WireCloud, deployment: str, intent: Intent
    ) -> None:
        made = [await provider.create(make_intent(deployment, intent.offer, intent.launch)) for _ in range(self.crowd)]

        views = await listed(provider, deployment, self.crowd)

        assert sorted(view.handle for view in views) == sorted(made)


async def _create_under(
    provider: Provider, cloud: WireCloud, intent: Intent, fault: CloudFault, delay_s: float = 0.3
) -> ProviderError:
    _need(cloud, fault)
    cloud.strike(fault, on="create", delay_s=delay_s)
    return await _error_of(lambda: provider.create(intent))


async def _error_of(call: Callable[[], Awaitable[object]]) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await call()
    return caught.value


async def _until_all_show(cloud: WireCloud) -> None:
    while not all(node.is_visible() for node in cloud.nodes()):  # noqa: ASYNC110 - the fake has its own clock
        await asyncio.sleep(0.02)


def _need(cloud: WireCloud, fault: CloudFault) -> None:
    if fault in cloud.lacks:
        pytest.skip(f"this vendor shows no {fault}")
