"""Accepting jobs, any number in one transaction: with their rows, events and hints, and the answers to their requests.

One that is refused hurts no other: nothing of it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError

from shunter_store.errors import KeyTaken
from shunter_store.job import idempotency, jobs
from shunter_store.job.idempotency import Kept
from shunter_store.job.jobs import JobRow, NewJob
from shunter_store.sql.database import Database


@dataclass(frozen=True, slots=True)
class Answer:
    """What the request for a job is answered."""

    status: int
    headers: dict[str, str]
    body: str


@dataclass(frozen=True, slots=True)
class Offer:
    """A job that shall be accepted."""

    job: NewJob
    answer: Callable[[JobRow], Answer]
    """Makes the answer; pure."""
    request: tuple[str, str, str] | None = None
    """Path, Idempotency-Key and the hash of the body; None: the answer is not kept."""
    check: Callable[[Connection], None] | None = None
    """Raises what the offer is refused with; reads only."""


Outcome = Answer | Exception


def accept(db: Database, offers: Sequence[Offer]) -> list[Outcome]:
    """The answer to each, durable when this returns, or what it is refused with: `KeyTaken`, or what its check raised.

    Raises:
        DBAPIError: the database failed; whether it holds the jobs is known only where it answers again.
    """
    try:
        return db.write(lambda conn: accept_in(conn, offers))
    except Exception as error:
        if len(offers) == 1 or _is_of_the_database(error):
            raise
    return [_accepted_alone(db, offer) for offer in offers]


def accept_in(conn: Connection, offers: Sequence[Offer]) -> list[Outcome]:
    """`accept` within one transaction, which an error of the database fails as a whole."""
    at = jobs.now(conn)
    outcomes = [_checked(conn, offer) or offer.answer(jobs.as_accepted(offer.job, at)) for offer in offers]
    keys = [
        (place, _kept(offer, outcome))
        for place, (offer, outcome) in enumerate(zip(offers, outcomes, strict=True))
        if offer.request is not None and isinstance(outcome, Answer)
    ]
    firsts = idempotency.store_all(conn, [kept for _, kept in keys], at)
    for (place, kept), is_first in zip(keys, firsts, strict=True):
        if not is_first:
            outcomes[place] = KeyTaken(kept.key)
    accepted = [offer.job for offer, outcome in zip(offers, outcomes, strict=True) if isinstance(outcome, Answer)]
    jobs.insert_all(conn, accepted, at)
    return outcomes


def _is_of_the_database(error: Exception) -> bool:
    """Whether it would fail alike without the row that is to blame."""
    return isinstance(error, DBAPIError) and not isinstance(error, DataError | IntegrityError)


def _accepted_alone(db: Database, offer: Offer) -> Outcome:
    try:
        return db.write(lambda conn: accept_in(conn, [offer]))[0]
    except Exception as error:
        return error


def _checked(conn: Connection, offer: Offer) -> Exception | None:
    try:
        if offer.check is not None:
            offer.check(conn)
    except DBAPIError:
        raise
    except Exception as refusal:
        return refusal
    return None


def _kept(offer: Offer, answer: Answer) -> Kept:
    assert offer.request is not None
    path, key, body_hash = offer.request
    return Kept(offer.job.project, path, key, body_hash, answer.status, answer.headers, answer.body)
