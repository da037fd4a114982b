"""Keys, addresses and environments with which no request can be made: one sentence, before anything is sent."""

import traceback
from pathlib import Path

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


@pytest.mark.parametrize(
    ("status", "slug", "why"),
    [(413, "too_large", "the body is longer than 1000 bytes"), (422, "invalid_bundle", "holds 9 entries; at most 5")],
)
def test_a_folder_that_the_service_does_not_take_is_told_with_its_largest_files(
    kind: Kind, tmp_path: Path, status: int, slug: str, why: str
) -> None:
    for name, size in (("a.py", 10), ("b.bin", 3 << 20), ("c.bin", 2 << 20), ("d.bin", 1 << 20)):
        (tmp_path / name).write_bytes(bytes(size))

    def refusing(request: httpx.Request) -> httpx.Response:
        if request.method == "HEAD":
            return httpx.Response(404, json={})
        return httpx.Response(status, json={"type": f"/v1/problems/{slug}", "detail": why})

    with (
        client_of(kind, "http://service.test", "k", handler=refusing) as client,
        pytest.raises(errors.BundleRefused, match=why) as refused,
    ):
        client.upload_bundle(tmp_path)

    assert str(tmp_path) in str(refused.value)
    assert "the largest files: b.bin (3.0 MiB), c.bin (2.0 MiB), d.bin (1.0 MiB)" in refused.value.hint


def test_a_traceback_shows_every_fault_and_the_way_out(kind: Kind) -> None:
    problem = {
        "type": "/v1/problems/invalid_document",
        "detail": "2 faults were found",
        "errors": [{"pointer": "", "detail": "`name` is missing"}, {"pointer": "/x", "detail": "unknown field"}],
    }

    def refusing(_: httpx.Request) -> httpx.Response:
        return httpx.Response(422, json=problem)

    with (
        client_of(kind, "http://service.test", "k", handler=refusing) as client,
        pytest.raises(errors.DocumentRefused) as refused,
    ):
        client.submit({"version": "1"})

    assert str(refused.value) == "2 faults were found, the first: `name` is missing"
    shown = "".join(traceback.format_exception(refused.value))
    assert "- `name` is missing\n- /x: unknown field\n" in shown
    hinted = ShunterError("it is so", hint="do that")
    assert traceback.format_exception(hinted)[-1] == "way out: do that\n"
