"""Keys, addresses and environments with which no request can be made: one sentence, before anything is sent."""

import httpx
import pytest
from shunter import Client, ShunterError, errors
from shunter.connection import find_connection
from support.both_clients import Kind, client_of


@pytest.mark.parametrize("key", ["ключ", "shk_a\nb", "shk a", "shk_\x00", "shk_é"])
def test_a_key_that_no_header_carries_is_refused(key: str) -> None:
    with pytest.raises(errors.NotConfigured, match="holds a character that no key has") as refused:
        find_connection("http://service.test", key)

    assert key not in str(refused.value) + refused.value.hint


@pytest.mark.parametrize("url", ["http://a b", "http://a\n", "http://a/ b"])
def test_an_address_with_spaces_is_none(url: str) -> None:
    with pytest.raises(errors.NotConfigured, match="is not the address of a service"):
        find_connection(url, "shk_x")


@pytest.mark.parametrize(
    ("variable", "value"), [("ALL_PROXY", "socks9://127.0.0.1:1"), ("HTTP_PROXY", "ftp://127.0.0.1")]
)
def test_a_proxy_that_cannot_be_used_is_told_with_its_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)

    with pytest.raises(errors.NotConfigured) as refused:
        Client("http://service.test", "shk_x")

    assert variable in refused.value.hint


def test_a_proxy_does_not_matter_for_a_service_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks9://127.0.0.1:1")

    Client("http://127.0.0.1:1", "shk_x").close()


def test_an_idempotency_key_that_no_header_carries_is_refused(kind: Kind) -> None:
    def nobody(_: httpx.Request) -> httpx.Response:
        raise AssertionError("nothing is sent")

    with (
        client_of(kind, "http://service.test", "k", handler=nobody) as client,
        pytest.raises(ShunterError, match="no header carries"),
    ):
        client.retry("job_1", idempotency_key="ключ")


def test_an_empty_id_is_told_before_anything_is_sent(kind: Kind) -> None:
    def nobody(_: httpx.Request) -> httpx.Response:
        raise AssertionError("nothing is sent")

    with (
        client_of(kind, "http://service.test", "k", handler=nobody) as client,
        pytest.raises(ShunterError, match="the id of the job is empty"),
    ):
        client.get("")
