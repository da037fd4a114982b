"""What the store refuses, as one small tree.

StoreError
├── NotFound             no such row
├── Conflict             the row's state does not allow it; `slug` names why
│   ├── SlotsTaken       another node holds one of the slots of a shared host
│   ├── KeyTaken         the Idempotency-Key was stored by somebody else meanwhile: read it again
│   └── ObjectExists     an object is written once, and this key holds other bytes
├── RevisionChanged      the row is not what the user saw any more; nothing was written
├── StaleStep            the job's fence moved: another worker has the job, nothing was written
├── Overtaken            something was told while a step decided on an end: nothing was written, decide anew
├── IdempotencyMismatch  the key was used for another body
└── UnusableDatabase     the database or its library cannot be used; the text says what to do
"""

from __future__ import annotations


class StoreError(Exception):
    """Base of everything that the store raises by itself."""


class NotFound(StoreError):
    """The row does not exist."""

    def __init__(self, kind: str, key: str) -> None:
        super().__init__(f"there is no {kind} {key}")
        self.kind = kind
        self.key = key


class Conflict(StoreError):
    """The row's present state does not allow the change."""

    def __init__(self, slug: str, detail: str) -> None:
        super().__init__(detail)
        self.slug = slug
        self.detail = detail


class SlotsTaken(Conflict):
    """One of the slots was reserved by another node; nothing of the intent was written."""

    def __init__(self, instance: str, taken: list[int]) -> None:
        super().__init__("slots_taken", f"slots {taken} of {instance} are taken")
        self.instance = instance
        self.taken = taken


class KeyTaken(Conflict):
    """Somebody stored an answer under this Idempotency-Key first: roll back, read it and replay it."""

    def __init__(self, key: str) -> None:
        super().__init__("idempotency_key_taken", f"the Idempotency-Key {key!r} is taken")


class ObjectExists(Conflict):
    """An object is written once; the key holds other bytes."""

    def __init__(self, key: str) -> None:
        super().__init__("object_exists", f"the object {key} exists and holds other bytes")
        self.key = key


class RevisionChanged(StoreError):
    """The job changed since the user read it; nothing was written."""

    def __init__(self, job_id: str, revision: int) -> None:
        super().__init__(f"{job_id} has revision {revision} by now: read it again")
        self.revision = revision


class StaleStep(StoreError):
    """The fence moved: another worker claimed the job, or the job ended. Drop the result."""

    def __init__(self, job_id: str, fence: int) -> None:
        super().__init__(f"the claim {fence} on {job_id} is stale")
        self.job_id = job_id
        self.fence = fence


class Overtaken(StoreError):
    """Something was told since the step claimed the job, and what it decided would pass over a success: roll back and
    look again. The claim still stands."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"{job_id} was woken while a step decided on an end or a new start")
        self.job_id = job_id


class ClockSetBack(StoreError):
    """The database's clock was set back after the step claimed the job: claim it anew. The claim still stands."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"the database's clock was set back while a step looked at {job_id}")
        self.job_id = job_id


class IdempotencyMismatch(StoreError):
    """The Idempotency-Key belongs to a request with another body."""

    def __init__(self, key: str) -> None:
        super().__init__(f"the Idempotency-Key {key!r} was used with another body")
        self.key = key


class UnusableDatabase(StoreError):
    """The database cannot be used as it is."""
