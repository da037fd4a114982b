"""The Celery application. A message is a hint that some job is due: it carries nothing, and may be lost or doubled."""

from __future__ import annotations

import logging
from typing import Any, Final

from celery import Celery, signals

from shunter_workers import process
from shunter_workers.hints import QUEUE, TASK
from shunter_workers.settings import WorkerSettings

_TRANSPORT: Final = {
    # A plain BRPOP: with acknowledgements emulated, a killed broker left workers silent for ever or dead.
    "ack_emulation": False,
    "visibility_timeout": 300,
    "socket_timeout": 10,
    "socket_connect_timeout": 2,
    "socket_keepalive": True,
    "health_check_interval": 10,
    "global_keyprefix": "shunter:",
}
_CONFIGURATION: Final[dict[str, Any]] = {
    "task_ignore_result": True,
    "result_backend": None,
    "task_acks_late": False,
    "worker_prefetch_multiplier": 1,
    "task_soft_time_limit": 20,
    "task_time_limit": 25,
    "worker_max_tasks_per_child": None,  # a child is more than its tasks: it holds leases and timers
    "worker_max_memory_per_child": 400_000,
    "worker_enable_remote_control": False,
    "worker_send_task_events": False,
    "worker_cancel_long_running_tasks_on_connection_loss": True,
    "worker_soft_shutdown_timeout": 0,
    "worker_hijack_root_logger": False,
    "worker_redirect_stdouts": False,
    "broker_connection_retry_on_startup": True,
    "broker_connection_max_retries": None,
    # A broker that answers and refuses (its disk or memory is full, it became a replica) is one that is away.
    "broker_channel_error_retry": True,
    "worker_consumer": "shunter_workers.consuming:PatientConsumer",
    "broker_connection_timeout": 2,
    "broker_transport_options": _TRANSPORT,
    "task_publish_retry": False,
    "accept_content": ["json"],
    "task_serializer": "json",
    "result_serializer": "json",
    "event_serializer": "json",
    "task_default_queue": QUEUE,
    "enable_utc": True,
}

_log = logging.getLogger(__name__)


def make_app(settings: WorkerSettings) -> Celery:
    """The application for these settings. Each child makes its own process of it after the fork."""
    app = Celery("shunter", broker=settings.redis_url, set_as_current=False)
    app.conf.update(_CONFIGURATION)

    app.task(_due, name=TASK, ignore_result=True)
    signals.worker_process_init.connect(lambda **_: process.begin(settings, app), weak=False)
    signals.worker_process_shutdown.connect(lambda **_: process.end(), weak=False)
    return app


def _due(*_: object, **__: object) -> None:
    """Whatever the message says: look what is due."""
    process.take_hint()
