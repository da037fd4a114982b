"""HTTP as it goes wrong: early refusals, closed connections, short bodies."""

from __future__ import annotations

import io
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from shunter_agent.exchange.link import Body, Link, LinkError
from shunter_agent.exchange.objects import Objects, Ref, Refused
from shunter_agent.keeping.launchfile import LaunchFile
from shunter_agent.keeping.tuning import Tuning

Talk = Callable[[socket.socket], None]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Link]]:
    """Answer one connection after another with the given functions; gives a link to there."""
    servers: list[socket.socket] = []
    links: list[Link] = []

    def start(*talks: Talk) -> Link:
        server = socket.create_server(("127.0.0.1", 0))
        servers.append(server)

        def accept() -> None:
            for talk in talks:
                connection, _ = server.accept()
                with connection:
                    talk(connection)

        threading.Thread(target=accept, daemon=True).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        (tmp_path / "launch.json").write_text(json.dumps({"node": "n", "sync_token": "t", "service_url": url}))
        links.append(Link(LaunchFile(str(tmp_path / "launch.json")), timeout_s=2))
        return links[-1]

    yield start
    for link in links:
        link.close()
    for server in servers:
        server.close()


def answer(text: bytes, times: int = 1) -> Talk:
    def talk(connection: socket.socket) -> None:
        for _ in range(times):
            data = b""
            while b"\r\n\r\n" not in data:
                data += connection.recv(1 << 16)
            connection.sendall(text)

    return talk


def test_a_refusal_before_the_body_was_read_is_heard(serve: Callable[..., Link]) -> None:
    refusal = answer(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    link = serve(*[refusal] * 3)
    body = Body(lambda: io.BytesIO(bytes(50 << 20)), 50 << 20, "0" * 64)

    with pytest.raises(LinkError) as raised:
        link.put("/v1/objects/x", body)

    assert raised.value.status == 413


def test_a_kept_connection_that_was_closed_meanwhile_is_replaced(serve: Callable[..., Link]) -> None:
    link = serve(answer(OK, times=2), answer(OK))

    answers = [link.call("/v1/node/sync", b"{}") for _ in range(3)]

    assert answers == [{}, {}, {}]


def test_a_download_that_is_cut_short_is_an_error_and_leaves_no_file(
    serve: Callable[..., Link], tmp_path: Path
) -> None:
    link = serve(*[answer(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")] * 2)

    with pytest.raises(LinkError, match="7 bytes did not come"):
        link.fetch("/v1/objects/x", lambda block: None)
    assert list(tmp_path.iterdir()) == [tmp_path / "launch.json"]


@pytest.mark.parametrize(
    "text", [b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n[", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]"]
)
def test_an_answer_that_is_no_object_is_an_error(serve: Callable[..., Link], text: bytes) -> None:
    with pytest.raises(LinkError, match=r"not JSON|not an object"):
        serve(answer(text)).call("/v1/node/sync", b"{}")


def test_only_http_addresses_are_opened(serve: Callable[..., Link]) -> None:
    with pytest.raises(LinkError, match="not an HTTP address"):
        serve().fetch("file:///etc/passwd", lambda block: None)


def test_a_key_without_a_grant_is_refused_for_good(serve: Callable[..., Link], tmp_path: Path) -> None:
    link = serve(answer(b'HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{"get": {}}'))
    objects = Objects(link, threading.Event(), Tuning())

    with pytest.raises(Refused, match="grants no URL"):
        objects.get(Ref("a", 1, "0" * 64, "key"), str(tmp_path / "a"))
