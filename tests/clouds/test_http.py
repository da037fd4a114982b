"""The HTTP client of clouds: what is tried again, what may have made a node, what is refused, and how it is told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from shunter_providers.cloud_kit.faults import COMMON, Refused, Row, classify, retry_after_s
from shunter_providers.cloud_kit.http import Api, CloudHttp
from shunter_providers.cloud_kit.reading import Fields
from shunter_providers.contract import Fault, Instance, ProviderError, Rate, Scope
from shunter_providers.gpu_names import gpu_model, is_of, memory_gib
from shunter_providers.pacing import OwnPacer
from shunter_providers.testing import CloudFault, Reply, Request, Route, WireCloud


class Echo(WireCloud):
    """Answers one path."""

    def __init__(self) -> None:
        super().__init__()
        self.reply = Reply(200, {"a": 1})

    def routes(self) -> Sequence[Route]:
        return [
            Route("GET", "/v1/things", "list", lambda request: self.reply),
            Route("POST", "/v1/things", "create", lambda request: self.reply),
        ]

    def authorize(self, request: Request) -> None:
        return None

    def refusal(self, fault: CloudFault, delay_s: float) -> Reply:
        limited = fault is CloudFault.RATE_LIMITED
        headers = {"Retry-After": f"{delay_s:g}"} if limited else {}
        return Reply(429 if limited else 503, {"error": {"code": "oops", "message": "come again"}}, headers)

    def no_route(self, request: Request) -> Reply:
        return Reply(404, "nothing here")


@pytest.fixture
def cloud() -> Iterator[Echo]:
    with Echo() as running:
        yield running


def client(cloud: WireCloud | str, *pacing: Rate, pacer: OwnPacer | None = None) -> CloudHttp:
    url = cloud if isinstance(cloud, str) else f"{cloud.url}/v1"
    api = Api(url, pacing=pacing, headers={"Authorization": "Bearer hidden"}, timeout_s=1.0)
    return CloudHttp(Instance("acme", "acme", pacer=pacer), api, credential="hidden")


async def error_of(http: CloudHttp, method: str = "GET", path: str = "/things", **more: Any) -> ProviderError:
    with pytest.raises(ProviderError) as refused:
        await http.fields(method, path, **more)
    await http.close()
    return refused.value


@pytest.mark.parametrize("fault", [CloudFault.SERVER_ERROR, CloudFault.LOST_REPLY])
async def test_a_get_is_tried_again_on_passing_faults(cloud: Echo, fault: CloudFault) -> None:
    cloud.strike(fault, on="list", times=2)
    http = client(cloud)

    found = await http.fields("GET", "/things")

    await http.close()
    assert found.count("a") == 1
    assert len(cloud.calls) == 3


async def test_a_get_is_not_tried_for_ever(cloud: Echo) -> None:
    cloud.strike(CloudFault.SERVER_ERROR, on="list", times=9)

    error = await error_of(client(cloud))

    assert (error.fault, error.scope, len(cloud.calls)) == (Fault.TRANSIENT, Scope.PROVIDER, 3)
    assert error.detail == "503 oops: come again"


@pytest.mark.parametrize("fault", [CloudFault.SERVER_ERROR, CloudFault.LOST_REPLY, CloudFault.JUNK])
async def test_a_create_is_sent_once_and_may_have_made_something(cloud: Echo, fault: CloudFault) -> None:
    cloud.strike(fault, on="create", times=9)

    error = await error_of(client(cloud), "POST", creates=True)

    assert error.may_have_created
    assert len(cloud.calls) == 1


async def test_where_nothing_listens_nothing_was_made() -> None:
    with Echo() as gone:
        url = gone.url

    error = await error_of(client(url), "POST", creates=True)

    assert (error.fault, error.may_have_created) == (Fault.TRANSIENT, False)


async def test_a_wait_of_the_vendor_holds_off_everybody_who_uses_the_account(cloud: Echo) -> None:
    pacer, rate = OwnPacer(), Rate(100, 1.0)
    cloud.strike(CloudFault.RATE_LIMITED, on="create", delay_s=30)
    limited = await error_of(client(cloud, rate, pacer=pacer), "POST", creates=True)

    held = await error_of(client(cloud, rate, pacer=pacer))

    assert (limited.fault, limited.retry_after_s) == (Fault.RATE_LIMITED, 30)
    assert held.fault is Fault.RATE_LIMITED
    assert held.retry_after_s == pytest.approx(30, abs=2)
    assert len(cloud.calls) == 1


async def test_a_redirect_is_not_followed_with_the_credentials(cloud: Echo) -> None:
    cloud.reply = Reply(302, None, {"Location": "http://elsewhere.example/"})

    error = await error_of(client(cloud))

    assert error.fault is Fault.INVALID
    assert "redirects to http://elsewhere.example/: check base_url" in error.detail


async def test_an_error_that_is_no_json_is_told_as_it_is(cloud: Echo) -> None:
    error = await error_of(client(cloud), path="/other")

    assert (error.fault, error.detail) == (Fault.NOT_FOUND, "404 : nothing here")


@pytest.mark.parametrize(
    ("status", "creates", "fault", "unsure"),
    [
        (400, True, Fault.INVALID, False),
        (401, True, Fault.AUTH, False),
        (402, True, Fault.PAYMENT, False),
        (403, False, Fault.AUTH, False),
        (404, False, Fault.NOT_FOUND, False),
        (404, True, Fault.INVALID, False),
        (408, True, Fault.TRANSIENT, True),
        (409, True, Fault.CONFLICT, False),
        (418, True, Fault.INVALID, False),
        (429, True, Fault.RATE_LIMITED, False),
        (500, True, Fault.TRANSIENT, True),
        (503, False, Fault.TRANSIENT, False),
        (302, False, Fault.INVALID, False),
    ],
)
def test_every_status_has_a_meaning(status: int, creates: bool, fault: Fault, unsure: bool) -> None:
    error = classify(Refused(status, "", ""), (), creates=creates)

    assert (error.fault, error.may_have_created) == (fault, unsure)


def test_a_vendors_own_row_goes_before_the_common_ones_and_may_promise_that_nothing_was_made() -> None:
    row = Row(500, "insufficient", Fault.NO_CAPACITY, Scope.ZONE, makes_nothing=True)

    meant = classify(Refused(500, "InsufficientCapacity", "none left"), (row,), creates=True)
    other = classify(Refused(500, "Oops", ""), (row,), creates=True)

    assert (meant.fault, meant.scope, meant.may_have_created) == (Fault.NO_CAPACITY, Scope.ZONE, False)
    assert (other.fault, other.may_have_created) == (Fault.TRANSIENT, True)


def test_the_last_common_row_takes_whatever_is_left() -> None:
    assert (COMMON[-1].status, COMMON[-1].words) == (None, "")


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("3", 3), ("0.5", 0.5), ("-1", 0), ("99999", 3600), ("nan", None), ("soon", None), (None, None), ("", None)],
)
def test_retry_after_is_read_or_not_believed(header: str | None, seconds: float | None) -> None:
    assert retry_after_s(header) == seconds


def test_retry_after_may_be_a_date() -> None:
    assert retry_after_s("Thu, 01 Jan 2015 00:00:00 GMT") == 0


@pytest.mark.parametrize("price", [0, -1, "nan", "inf", "free", None, True, [], "1e999"])
def test_money_is_an_amount_above_nothing(price: Any) -> None:
    with pytest.raises(ProviderError, match=r"GET /x\.price"):
        Fields({"price": price}, "GET /x").money("price")


def test_money_may_be_written_as_text() -> None:
    assert Fields({"price": "2.50"}, "").money("price") == 2.5


@pytest.mark.parametrize("body", [[], None, "text", 3])
def test_what_should_be_an_object_and_is_not_may_have_made_a_node_when_it_answers_a_create(body: Any) -> None:
    with pytest.raises(ProviderError) as refused:
        Fields(body, "POST /x", creates=True)

    assert refused.value.may_have_created


def test_a_list_that_is_not_there_is_not_an_empty_one() -> None:
    with pytest.raises(ProviderError, match=r"GET /x\.pods: nothing where a list should be"):
        Fields({}, "GET /x").items("pods")


@pytest.mark.parametrize(
    ("name", "model", "memory"),
    [
        ("NVIDIA H100 80GB HBM3", "H100", 80),
        ("NVIDIA A100-SXM4-80GB", "A100", 80),
        ("A100-40GB-SXM", "A100", 40),
        ("A10 (24 GB PCIe)", "A10", 24),
        ("nvidia_h200", "H200", None),
        ("A10G", "A10G", None),
        ("NVIDIA GeForce RTX 4090", "RTX-4090", None),
        ("RTX_3090_Ti", "RTX-3090-Ti", None),
        ("RTX5090", "RTX-5090", None),
        ("NVIDIA RTX A6000", "RTX-A6000", None),
        ("A6000", "RTX-A6000", None),
        ("NVIDIA RTX 6000 Ada Generation", "RTX-6000-Ada", None),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX-PRO-6000", None),
        ("RTXPRO6000-MaxQ", "RTX-PRO-6000", None),
        ("Tesla V100 (16 GB)", "V100", 16),
        ("L40S", "L40S", None),
        ("AMD Instinct MI300X OAM", "MI300X", None),
        ("Something New", "Something-New", None),
    ],
)
def test_a_gpu_has_one_name_whatever_the_vendor_calls_it(name: str, model: str, memory: float | None) -> None:
    assert (gpu_model(name), memory_gib(name)) == (model, memory)


@pytest.mark.parametrize(
    ("model", "shown", "fits"),
    [
        ("H100", "NVIDIA H100 80GB HBM3", True),
        ("RTX-4090", "NVIDIA GeForce RTX 4090", True),
        ("RTX-A6000", "NVIDIA RTX A6000", True),
        ("RTX-4000-Ada", "NVIDIA RTX 4000 SFF Ada Generation", True),
        ("H100", "NVIDIA A100-SXM4-80GB", False),
        ("RTX-4000-Ada", "NVIDIA RTX A4000", False),
        ("L40S", "NVIDIA L40", False),
        ("H100", "", False),
        ("", "NVIDIA L40", True),
    ],
)
def test_a_gpu_is_of_a_model_whose_words_it_shows_in_their_order(model: str, shown: str, fits: bool) -> None:
    assert is_of(model, shown) is fits
