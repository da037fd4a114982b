"""AWS against moto's server, which somebody else wrote from EC2's documents: what our own fake may have wrong with us.

moto makes a twin of what is sent again, always has room, and knows no reservations; a small layer before it mends that.
Needs the extra `vendors`.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import parse_qsl

import pytest
from shunter_providers.clouds.aws.provider import AwsProvider
from shunter_providers.contract import (
    Fault,
    Instance,
    Intent,
    Launch,
    NodeCondition,
    OfferQuery,
    ProviderError,
    Scope,
)
from shunter_providers.testing import Unpaced, make_intent
from shunter_providers.testing.conformance import until_terminated, wait_for
from shunter_schemas.ids import new_deployment_id

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(300)]

ACCOUNT: Final = "123456789012"
_XML: Final = [("Content-Type", "text/xml")]
_NO_RESERVATIONS: Final = (
    b'<DescribeCapacityReservationsResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
    b"<capacityReservationSet/></DescribeCapacityReservationsResponse>"
)
_REFUSAL: Final = "<Response><Errors><Error><Code>{}</Code><Message>{}</Message></Error></Errors></Response>"


class Tokens:
    """WSGI: a launch that is sent again is answered as it was, or refused where it is another one."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._known: dict[str, tuple[bytes, bytes]] = {}
        self._lock = threading.Lock()
        self.is_full = False

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """See PEP 3333."""
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        form = dict(parse_qsl(body.decode("utf-8", "replace")))
        if form.get("Action") == "DescribeCapacityReservations":
            start_response("200 OK", _XML)
            return [_NO_RESERVATIONS]
        if form.get("Action") != "RunInstances":
            return list(self._inner(environ, start_response))
        with self._lock:
            return self._launch(form["ClientToken"], body, environ, start_response)

    def _launch(self, token: str, body: bytes, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        if token in self._known:
            sent, answer = self._known[token]
            if sent != body:
                start_response("400 Bad Request", _XML)
                return [_REFUSAL.format("IdempotentParameterMismatch", "inconsistent arguments").encode()]
            start_response("200 OK", _XML)
            return [answer]
        if self.is_full:
            start_response("500 Internal Server Error", _XML)
            return [_REFUSAL.format("InsufficientInstanceCapacity", "We currently have no capacity").encode()]
        answer = b"".join(self._inner(environ, start_response))
        self._known[token] = body, answer
        return [answer]


@contextmanager
def moto_server() -> Iterator[tuple[str, Tokens]]:
    pytest.importorskip("moto", reason="needs the extra `vendors`")
    from moto.moto_server.werkzeug_app import (  # pyright: ignore[reportMissingImports]
        DomainDispatcherApplication,
        create_backend_app,
    )
    from werkzeug.serving import make_server

    tokens = Tokens(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, tokens, threaded=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", tokens
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def aws(url: str) -> AwsProvider:
    settings = {
        "access_key_id": "AKIAIOSFODNN7EXAMPLE",
        "secret_access_key": "a-secret-of-some-length",
        "regions": ["eu-central-1"],
        "base_url": url,
        "image_name": "ubuntu/images/hvm-ssd/ubuntu-xenial-16.04-amd64-server-*",
        "image_owner": "099720109477",
        "usd_per_hour": {"m5.large": 0.115, "g6.xlarge": 1.0, "p4d.24xlarge": 40.0},
    }
    return AwsProvider(Instance("aws", "aws", settings, pacer=Unpaced()))


async def an_intent(provider: AwsProvider) -> Intent:
    offers = await provider.offers(OfferQuery())
    offer = next(one for one in offers if (one.instance_type, one.capacity) == ("m5.large", "on_demand"))
    return make_intent(new_deployment_id(), offer, Launch(("true",), {}))


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, Tokens]]:
    with moto_server() as running:
        yield running


async def test_a_node_lives_and_dies_there_and_a_create_that_is_sent_again_makes_no_other(
    server: tuple[str, Tokens],
) -> None:
    first, second = aws(server[0]), aws(server[0])
    intent = await an_intent(first)
    deployment = intent.tags["deployment"]

    handle = await first.create(intent)
    again = await second.create(intent)
    view = await wait_for(first, handle, NodeCondition.RUNNING, 20)
    listed = await second.list_owned(deployment)
    await until_terminated(first, handle)
    left = await second.list_owned(deployment)
    who = await first.whoami()

    await first.close()
    await second.close()
    assert again == handle
    assert view.token == intent.token
    assert view.ssh is not None
    assert [(one.handle, one.token) for one in listed] == [(handle, intent.token)]
    assert left == []
    assert who.account == ACCOUNT


async def test_no_room_is_no_room_although_it_comes_with_500_and_the_next_offer_is_had(
    server: tuple[str, Tokens],
) -> None:
    url, tokens = server
    provider = aws(url)
    intent = await an_intent(provider)
    tokens.is_full = True

    with pytest.raises(ProviderError) as refused:
        await provider.create(intent)
    tokens.is_full = False
    handle = await provider.create(intent)

    await until_terminated(provider, handle)
    await provider.close()
    error = refused.value
    assert (error.fault, error.scope, error.may_have_created) == (Fault.NO_CAPACITY, Scope.OFFER, False)


async def test_gpu_types_of_its_catalogue_are_read_as_they_are(server: tuple[str, Tokens]) -> None:
    provider = aws(server[0])

    offers = await provider.offers(OfferQuery())

    await provider.close()
    shown = {(one.instance_type, one.gpu_model, one.gpus) for one in offers if one.gpus}
    assert {("p4d.24xlarge", "A100", 8), ("g6.xlarge", "L4", 1)} <= shown
    assert all(one.jurisdiction == "DE" for one in offers)
