"""Logs of the API process: one JSON object a line on stderr, without bodies, keys or query strings."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import TextIO, cast

import structlog

_STAMPED: list[structlog.typing.Processor] = [
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.format_exc_info,
]


def set_up(level: int = logging.INFO) -> None:
    """Let structlog and the standard library write the same lines."""
    stream = unfailing(sys.stderr)
    structlog.configure(
        processors=[*_STAMPED, structlog.processors.JSONRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=stream),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_STAMPED,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)


def unfailing(stream: TextIO) -> TextIO:
    """The stream, for whom a line that cannot be written is lost and no more: on a full disk a request, or the answer
    that there is no room, must not fail for its own line in the log."""
    return cast(TextIO, _Unfailing(stream))


class _Unfailing:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()
