"""A job's own SSH keys: one pair to log in with, one host key that its nodes show. Kept sealed, destroyed at its end.

Sealed with AES-256-GCM under a key derived from the installation's secret, bound to the job: a copy of the database
alone opens no node.
"""

from __future__ import annotations

import base64
import json
import os
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from shunter_store.node import reaching
from shunter_store.sql.database import Database
from sqlalchemy import Connection

_NONCE_BYTES: Final = 12


@dataclass(frozen=True, slots=True)
class KeyPair:
    """OpenSSH's forms of both halves."""

    private: str
    public: str


@dataclass(frozen=True, slots=True)
class KeysOfJob:
    """What is injected into the job's nodes."""

    login: KeyPair
    host: KeyPair


class JobKeys:
    """The keys of all jobs, by the database and the installation's secret."""

    def __init__(self, database: Database, secret: bytes) -> None:
        self._database = database
        self._cipher = AESGCM(HKDF(SHA256(), 32, salt=None, info=b"shunter job keys").derive(secret))

    async def of(self, job_id: str) -> KeysOfJob:
        """The job's keys; made when they are first needed."""
        kept = await self._database.aread(lambda conn: reaching.sealed_keys(conn, job_id))
        if kept is None:
            drawn = self._seal(job_id, KeysOfJob(_make_pair(), _make_pair()))
            kept = await self._database.awrite(lambda conn: reaching.keep_keys(conn, job_id, drawn))
        return self._unseal(job_id, kept)

    async def known(self, job_id: str) -> KeysOfJob | None:
        """The job's keys, if it has some."""
        kept = await self._database.aread(lambda conn: reaching.sealed_keys(conn, job_id))
        return None if kept is None else self._unseal(job_id, kept)

    async def forget(self) -> int:
        """Destroy the keys of jobs that are over; how many went."""

        def forget(conn: Connection) -> int:
            return reaching.forget_keys(conn)

        return await self._database.awrite(forget)

    def _seal(self, job_id: str, keys: KeysOfJob) -> str:
        plain = json.dumps([[pair.private, pair.public] for pair in (keys.login, keys.host)]).encode()
        nonce = os.urandom(_NONCE_BYTES)
        return base64.b64encode(nonce + self._cipher.encrypt(nonce, plain, job_id.encode())).decode()

    def _unseal(self, job_id: str, sealed: str) -> KeysOfJob:
        raw = base64.b64decode(sealed)
        try:
            plain = self._cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], job_id.encode())
        except InvalidTag as exc:
            raise ValueError(
                f"the keys of {job_id} were sealed with another secret (`signing-key` was changed)"
            ) from exc
        login, host = (KeyPair(*pair) for pair in json.loads(plain))
        return KeysOfJob(login, host)


def _make_pair() -> KeyPair:
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()
    return KeyPair(private, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode())
