"""The API's log: what happens where it cannot be written."""

import io
import logging
from contextlib import suppress

import structlog
from shunter_service.log_setup import unfailing


def test_a_full_disk_loses_lines_of_the_log_and_fails_no_request() -> None:
    full = open("/dev/full", "w", buffering=1, encoding="utf-8")  # noqa: SIM115  # closing it fails too
    try:
        logger = structlog.WriteLoggerFactory(file=unfailing(full))()
        handler = logging.StreamHandler(unfailing(full))

        for _ in range(3):
            logger.info("x" * 10_000)
            handler.handle(logging.makeLogRecord({"msg": "y" * 10_000}))
    finally:
        with suppress(OSError):
            full.close()


def test_lines_are_written_where_there_is_room() -> None:
    text = io.StringIO()

    structlog.WriteLoggerFactory(file=unfailing(text))().info("hello")

    assert text.getvalue() == "hello\n"
