"""What a running API process holds: made when it starts, handed to every handler, closed when it ends."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shunter_store.installation.settings import DataSettings
from shunter_store.job import job_lists
from shunter_store.job.intake import Answer, Offer, accept
from shunter_store.job.job_lists import Counts
from shunter_store.report.pairs import Past
from shunter_store.sql.database import Database
from shunter_store.storage.objects import ObjectStore

from shunter_service.auth import KeyRing
from shunter_service.job_reading import JobReader, job_reader
from shunter_service.node.exchanges import Exchanges
from shunter_service.node.gathering import Gathering
from shunter_service.node.listeners import Listeners
from shunter_service.node.tempo import Tempo
from shunter_service.settings import ServiceSettings
from shunter_service.streams.looking import Lookers
from shunter_service.streams.sharing import Sharing
from shunter_service.streams.tailer import Tailer
from shunter_service.up import secret_files
from shunter_service.web.transfers import Transfers

_ACCEPTED_AT_ONCE: Final = 8
"""Jobs of one transaction."""


@dataclass(frozen=True, slots=True)
class Service:
    """The parts, none of which knows the others."""

    data: DataSettings
    settings: ServiceSettings
    db: Database
    objects: ObjectStore
    transfers: Transfers
    keys: KeyRing
    tailer: Tailer
    lookers: Lookers
    sharing: Sharing
    intake: Gathering[Offer, Answer]
    """Accepts jobs, all that wait in one transaction."""
    reader: JobReader
    """Reads jobs, all that are asked for in one transaction."""
    exchanges: Exchanges
    """Takes what agents send."""
    listeners: Listeners
    """Agents that are told at once when something else is wanted of their nodes."""
    counter: Gathering[str, Counts]
    """Counts the jobs of projects; whoever asks while it counts shares the next count."""
    past: Past
    """What past runs say of predictions."""
    signing_key: bytes

    async def close(self) -> None:
        """End streams, then transfers, then the database."""
        await self.tailer.close()
        await self.listeners.close()
        await self.lookers.close()
        await self.intake.close()
        await self.reader.close()
        await self.counter.close()
        await self.exchanges.close()
        await self.transfers.close()
        self.db.close()


def open_service(data: DataSettings, settings: ServiceSettings) -> Service:
    """Open everything that one process needs; connects to nothing yet."""
    db = Database.connect(data.database_url)
    signing_key = _signing_key(data.data_dir / "signing-key")
    return Service(
        data=data,
        settings=settings,
        db=db,
        objects=ObjectStore(data.objects_url),
        transfers=Transfers(data.data_dir / "uploads", threads=settings.upload_threads),
        keys=KeyRing(db, keep_s=settings.key_cache_s),
        tailer=Tailer(db, every_s=settings.tail_every_s),
        lookers=Lookers(db, for_s=data.timing.watch_s),
        sharing=Sharing(),
        intake=_intake(db),
        reader=job_reader(db),
        exchanges=Exchanges(db, Tempo(data.pace)),
        listeners=Listeners(db, signing_key, every_s=settings.tail_every_s),
        counter=_counter(db),
        past=Past(db, wanted=data.correct_predictions),
        signing_key=signing_key,
    )


def _intake(db: Database) -> Gathering[Offer, Answer]:
    """A few at a time, so that some documents are checked while others are written."""

    def run(offers: Sequence[Offer]) -> Awaitable[Sequence[Answer | Exception]]:
        return db.in_writer(lambda store: accept(store, offers))

    return Gathering(run, largest=_ACCEPTED_AT_ONCE, at_once=1 if db.dialect == "sqlite" else 2)


def _counter(db: Database) -> Gathering[str, Counts]:
    """The one answer of the service that takes longer the more jobs there are: one count at a time."""

    async def run(projects: Sequence[str]) -> Sequence[Counts]:
        counts = await db.aread(lambda conn: {name: job_lists.counts(conn, name) for name in set(projects)})
        return [counts[name] for name in projects]

    return Gathering(run)


def _signing_key(path: Path) -> bytes:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    secret_files.ensure(path)
    return path.read_bytes().strip()
