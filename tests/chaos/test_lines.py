"""The line between two processes, and the weather on it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from support.faulty_line import CLEAR, FAR, HALF_OPEN, RESET, SILENT, SLOW, FaultyLine, Weather, faulty_line


class Echo:
    """Answers every byte with itself, and remembers what came."""

    def __init__(self) -> None:
        self.came = b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while data := connection.recv(4096):
                self.came += data
                connection.sendall(data)


@pytest.fixture
def echo() -> Iterator[Echo]:
    service = Echo()
    yield service
    service.close()


@pytest.fixture
def line(echo: Echo) -> Iterator[FaultyLine]:
    with faulty_line(echo.port) as made:
        yield made


@pytest.fixture
def client(line: FaultyLine) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", line.port), timeout=5) as connection:
        connection.sendall(b"hello")
        assert connection.recv(5) == b"hello"
        yield connection


def test_a_silent_line_keeps_what_is_sent_and_delivers_it_when_it_clears(
    line: FaultyLine, client: socket.socket, echo: Echo
) -> None:
    line.turn(SILENT)
    client.sendall(b"more")
    client.settimeout(0.3)
    with pytest.raises(TimeoutError):
        client.recv(4)
    before = echo.came

    line.turn(CLEAR)

    client.settimeout(5)
    assert client.recv(4) == b"more"
    assert before == b"hello"


def test_behind_a_half_open_line_requests_arrive_and_answers_do_not(
    line: FaultyLine, client: socket.socket, echo: Echo
) -> None:
    line.turn(HALF_OPEN)

    client.sendall(b"more")

    client.settimeout(0.3)
    with pytest.raises(TimeoutError):
        client.recv(4)
    assert echo.came == b"hellomore"


def test_a_reset_breaks_connections_that_stand_and_new_ones(line: FaultyLine, client: socket.socket) -> None:
    line.turn(RESET)

    with pytest.raises(ConnectionResetError):
        client.recv(1)
    assert is_reset(line.port)


def is_reset(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as fresh:
            fresh.sendall(b"x")
            fresh.recv(1)
    except ConnectionError:
        return True
    return False


@pytest.mark.parametrize("weather", [FAR, SLOW], ids=lambda weather: weather.name)
def test_delays_make_an_answer_late_and_no_worse(weather: Weather, line: FaultyLine, client: socket.socket) -> None:
    line.turn(weather)
    began = time.monotonic()

    client.sendall(b"x" * 1000)

    came = b""
    while len(came) < 1000:
        came += client.recv(1000)
    assert time.monotonic() - began > 0.1
    assert came == b"x" * 1000


def test_a_target_that_is_down_is_passed_over(echo: Echo) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = closed.getsockname()[1]
    with faulty_line(nobody, echo.port) as line:
        for _ in range(4):
            with socket.create_connection(("127.0.0.1", line.port), timeout=5) as connection:
                connection.sendall(b"x")
                assert connection.recv(1) == b"x"
