"""Opens connections to hosts whose keys are known beforehand. There is no trust on first use, and no agent or
configuration of the user who runs the service is looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import asyncssh

from shunter_providers.contract import SshEndpoint

CONNECT_WITHIN_S: Final = 15.0
CLOSE_WITHIN_S: Final = 2.0
ALIVE_EVERY_S: Final = 5.0
"""So often the other side shows that it lives; after three times in vain the connection counts as lost."""


class NotReached(Exception):
    """There is no connection; `kind` says why in a word.

    unreachable     nothing answers there (yet), or not in time
    host_key        another machine answers, or its host key was changed
    login           the user or the key is refused
    key             our own key cannot be read
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class JobKeys:
    """What was injected into a node: used where the endpoint names no keys of its own."""

    private_key: str
    """OpenSSH format; logs in."""
    host_public_key: str
    """`ssh-ed25519 AAAA…`; the node shows it."""


class Reached:
    """An open connection, and those through which it goes."""

    def __init__(self, connection: asyncssh.SSHClientConnection, via: Reached | None) -> None:
        self.connection = connection
        self._via = via

    @property
    def is_open(self) -> bool:
        """Whether it can be used; a lost one is noticed after some keep-alives."""
        return not self.connection.is_closed()

    async def wait_closed(self) -> None:
        """Until it is lost or closed."""
        await self.connection.wait_closed()

    def close(self) -> None:
        """Drop it; what was started on the host goes on."""
        self.connection.abort()
        if self._via is not None:
            self._via.close()

    async def aclose(self) -> None:
        """The same, and wait until the sockets are closed."""
        self.close()
        with suppress(TimeoutError, asyncssh.Error, OSError):
            async with asyncio.timeout(CLOSE_WITHIN_S):
                await self.connection.wait_closed()
                if self._via is not None:
                    await self._via.aclose()


async def connect(endpoint: SshEndpoint, keys: JobKeys | None = None, within_s: float = CONNECT_WITHIN_S) -> Reached:
    """A connection to the endpoint, through its jump hosts.

    Raises:
        NotReached: with the host's name and the cause in words.
    """
    via = None if endpoint.via is None else await connect(endpoint.via, None, within_s)
    try:
        async with asyncio.timeout(within_s):
            connection = await _open(endpoint, keys, via)
    except BaseException as exc:
        if via is not None:
            await via.aclose()
        told = _told(exc, endpoint, within_s)
        if told is None:
            raise
        raise told from exc
    return Reached(connection, via)


async def _open(endpoint: SshEndpoint, keys: JobKeys | None, via: Reached | None) -> asyncssh.SSHClientConnection:
    trusted, fingerprints = _trusted(endpoint, keys)
    return await asyncssh.connect(
        endpoint.host,
        endpoint.port,
        tunnel=via.connection if via is not None else (),
        username=endpoint.user,
        client_keys=[_identity(endpoint, keys)],
        known_hosts=(trusted, [], []),  # a tuple is never empty: no file of the user's is read instead
        client_factory=lambda: _Client(endpoint, bool(trusted), fingerprints),
        preferred_auth="publickey",
        config=None,
        agent_path=None,
        agent_forwarding=False,
        x11_forwarding=False,
        compression_algs=["none"],  # what is large is compressed already
        keepalive_interval=ALIVE_EVERY_S,
        keepalive_count_max=3,
    )


class _Client(asyncssh.SSHClient):
    """Trusts a key whose fingerprint the provider told, where there is one, and nothing else."""

    def __init__(self, endpoint: SshEndpoint, knows_keys: bool, fingerprints: frozenset[str]) -> None:
        self._endpoint = endpoint
        self._knows_keys = knows_keys
        self._fingerprints = fingerprints

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        """Asked for keys that are not among the known ones."""
        return key.get_fingerprint() in self._fingerprints


def _trusted(endpoint: SshEndpoint, keys: JobKeys | None) -> tuple[list[asyncssh.SSHKey], frozenset[str]]:
    known = list(endpoint.host_keys) or ([keys.host_public_key] if keys is not None else [])
    if not known and not endpoint.host_key_fingerprints:
        raise NotReached("host_key", f"{endpoint.host}: no host key is known, and none is trusted on first use")
    try:
        return [asyncssh.import_public_key(text) for text in known], frozenset(endpoint.host_key_fingerprints)
    except (asyncssh.KeyImportError, ValueError) as exc:
        raise NotReached("key", f"{endpoint.host}: a pinned host key cannot be read: {exc}") from exc


def _identity(endpoint: SshEndpoint, keys: JobKeys | None) -> asyncssh.SSHKey:
    try:
        if endpoint.identity_file is not None:
            return asyncssh.read_private_key(endpoint.identity_file)
        if keys is not None:
            return asyncssh.import_private_key(keys.private_key)
    except OSError as exc:
        raise NotReached("key", f"the key {endpoint.identity_file} cannot be read: {exc.strerror}") from exc
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError, ValueError) as exc:
        raise NotReached("key", f"the key {endpoint.identity_file} is no private key without passphrase") from exc
    raise NotReached("key", f"{endpoint.host}: there is no key to log in with")


def _told(exc: BaseException, endpoint: SshEndpoint, within_s: float) -> NotReached | None:
    """The cause in words, with the host's name; None: it is not about the connection.

    NotReached              as it is
    HostKeyNotVerifiable    the host shows another key than the pinned one
    KeyExchangeFailed       it has no key of the pinned one's kind, or no common algorithm
    PermissionDenied        the user or the key
    everything else of the network: nothing answers (yet)
    """
    where = f"{endpoint.host}:{endpoint.port}"
    if isinstance(exc, NotReached):
        return exc
    for kinds, kind, text in _WORDS:
        if isinstance(exc, kinds):
            return NotReached(kind, f"{where}: {text(endpoint, exc, within_s)}")
    return None


_Words = Callable[[SshEndpoint, BaseException, float], str]
_WORDS: Sequence[tuple[tuple[type[BaseException], ...], str, _Words]] = (
    (
        (asyncssh.HostKeyNotVerifiable,),
        "host_key",
        lambda endpoint, exc, within_s: (
            "the host shows another key than the one that is pinned for it: it was set up anew, or another machine "
            "answers in its place"
        ),
    ),
    (
        (asyncssh.KeyExchangeFailed,),
        "host_key",
        lambda endpoint, exc, within_s: f"the host has no key of the pinned one's kind ({exc})",
    ),
    (
        (asyncssh.PermissionDenied,),
        "login",
        lambda endpoint, exc, within_s: f"the host does not let {endpoint.user!r} in with this key",
    ),
    ((TimeoutError,), "unreachable", lambda endpoint, exc, within_s: f"no answer within {within_s:g} s"),
    (
        (asyncssh.Error, OSError),
        "unreachable",
        lambda endpoint, exc, within_s: str(getattr(exc, "strerror", None) or exc) or type(exc).__name__,
    ),
)
