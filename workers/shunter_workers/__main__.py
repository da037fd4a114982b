"""`python -m shunter_workers`: the worker role. Stops in good order on SIGTERM: steps that run are finished."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import warnings
from collections.abc import Sequence

from shunter_store import migrate
from shunter_store.errors import UnusableDatabase
from shunter_store.installation.exit_codes import UNUSABLE, WRONG_SETTINGS
from shunter_store.installation.settings import in_words
from shunter_store.sql.database import Database

from shunter_workers.settings import WorkerSettings, signing_secret

_log = logging.getLogger("shunter_workers")


def main(arguments: Sequence[str] = ()) -> int:
    """Run until told to stop; the exit code. Where it cannot begin (`exit_codes`), the text on stderr says why."""
    argparse.ArgumentParser(
        prog="shunter worker",
        description="Run a worker. It takes no options: SHUNTER_… variables and shunter.toml say everything.",
    ).parse_args(arguments)
    try:
        settings = WorkerSettings()
        _log_to_stderr(settings.log_level)
    except ValueError as exc:
        return _fail(in_words(exc), WRONG_SETTINGS)
    try:
        for text in settings.unknown_variables(os.environ):
            _log.warning("%s", text)
        settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        signing_secret(settings.data_dir)
        _bring_up_to_date(settings.database_url)
    except (UnusableDatabase, OSError, ValueError) as exc:
        return _fail(str(exc), UNUSABLE)
    _serve(settings)
    return 0


def _fail(text: str, code: int) -> int:
    sys.stderr.write(f"shunter worker: {text}\n")
    return code


def _serve(settings: WorkerSettings) -> None:
    # Imported only once the settings are good: a wrong setting is told in a moment.
    from celery.platforms import SecurityWarning

    from shunter_workers import runtime  # noqa: F401 - before the fork, so that children share its pages
    from shunter_workers.app import make_app

    # Root is usual in containers; messages are JSON only and carry nothing.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    app = make_app(settings)
    app.Worker(
        pool_cls="prefork",
        concurrency=settings.worker_children,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        loglevel=settings.log_level,
        hostname=f"shunter@{os.getpid()}",
        quiet=True,
    ).start()


def _bring_up_to_date(url: str) -> None:
    """Migrate if needed, in a process of its own: what that imports would stay in every worker's memory."""
    database = Database.connect(url, readers=1)
    try:
        current = database.read(migrate.current_revision)
    finally:
        database.close()
    if current == migrate.head_revision():
        return
    pid = os.fork()
    if pid == 0:
        _migrate_and_exit(url)
    _, status = os.waitpid(pid, 0)
    if status:
        raise UnusableDatabase("the database could not be brought to the newest schema; see above")


def _migrate_and_exit(url: str) -> None:
    code = 1
    try:
        migrate.upgrade(url)
        code = 0
    except Exception:
        _log.exception("migration failed")
    finally:
        os._exit(code)


def _log_to_stderr(level: str) -> None:
    """One line an event; text from users and nodes never holds a control character by now."""
    logging.basicConfig(
        level=level.upper(),
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s",
    )
    for noisy in ("celery.worker.strategy", "celery.app.trace", "httpx"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
