"""How a cluster is reached, and as whom: a kubeconfig, the service account of the pod that we run in, or an address.

Reads what `kubectl` reads, as far as clusters still take it: tokens and their files, client certificates, and programs
that print a token (`exec`, as the managed clusters of the large clouds have it).
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import httpx
import yaml

from shunter_providers.contract import Fault, ProviderError, Scope

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_EXEC_WITHIN_S: Final = 20.0
_READ_AGAIN_AFTER_S: Final = 60.0
"""Tokens in files are renewed by whoever wrote them."""
_RENEW_BEFORE_S: Final = 60.0
_LASTS_UNLESS_TOLD_S: Final = 600.0
_TOLD_TO_PROGRAMS: Final = ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url")


@dataclass(frozen=True, slots=True)
class Access:
    """One way into one cluster."""

    server: str
    namespace: str | None
    """The one that the source names; None: it names none."""
    who: str = field(repr=False)
    """Tells credentials apart; it is never shown."""
    auth: httpx.Auth | None = field(default=None, repr=False)
    certificates: Callable[[], ssl.SSLContext] | None = None
    """None: the authorities that everybody trusts."""
    proxy: str | None = None


class BearerToken(httpx.Auth):
    """Sends the token that a source gives, and once a fresh one where the cluster refuses it.

    A refusal with 401 did nothing, so that sending again makes nothing twice.
    """

    def __init__(self, source: TokenSource, server_name: str | None = None) -> None:
        """`server_name`: whom the server's certificate is made out to, where that is not its address."""
        self._source = source
        self._server_name = server_name

    async def async_auth_flow(self, request: httpx.Request) -> AsyncIterator[httpx.Request]:  # type: ignore[override]  # httpx wants its generator's send type, which nothing here uses
        """See httpx."""
        if self._server_name is not None:
            request.extensions["sni_hostname"] = self._server_name
        token = await self._source.token()
        if token:
            request.headers["Authorization"] = f"Bearer {token}"
        response = yield request
        if response is not None and response.status_code == 401 and self._source.can_renew:
            fresh = await self._source.token(renew=True)
            if fresh != token:
                request.headers["Authorization"] = f"Bearer {fresh}"
                yield request


class TokenSource:
    """A fixed token; subclasses fetch one."""

    can_renew = False

    def __init__(self, token: str = "") -> None:
        self._token = token

    async def token(self, *, renew: bool = False) -> str:
        """The token now."""
        return self._token


class TokenFile(TokenSource):
    """A token in a file that somebody renews."""

    can_renew = True

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._read_at = float("-inf")

    async def token(self, *, renew: bool = False) -> str:
        """See `TokenSource`."""
        if renew or time.monotonic() - self._read_at > _READ_AGAIN_AFTER_S:
            try:
                self._token = (await asyncio.to_thread(self._path.read_text)).strip()
            except OSError as exc:
                raise _no_credentials(f"the token file {self._path} cannot be read: {exc.strerror}") from None
            self._read_at = time.monotonic()
        return self._token


class TokenProgram(TokenSource):
    """A program of the kubeconfig that prints an `ExecCredential`."""

    can_renew = True

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], info: Mapping[str, Any]) -> None:
        """`info`: the `ExecCredential` that the program is asked by."""
        super().__init__()
        self._command = list(command)
        self._environment = {**environment, "KUBERNETES_EXEC_INFO": json.dumps(info)}
        self._good_until = float("-inf")
        self._one_at_a_time = asyncio.Lock()

    async def token(self, *, renew: bool = False) -> str:
        """See `TokenSource`."""
        async with self._one_at_a_time:
            if renew or time.time() > self._good_until - _RENEW_BEFORE_S:
                self._token, self._good_until = self._read(await self._run())
            return self._token

    async def _run(self) -> bytes:
        name = self._command[0]
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                env={**os.environ, **self._environment},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as exc:
            raise _no_credentials(f"the kubeconfig's program {name} does not start: {exc.strerror}") from None
        try:
            async with asyncio.timeout(_EXEC_WITHIN_S):
                printed, said = await process.communicate()
        except TimeoutError:
            raise _no_credentials(f"the kubeconfig's program {name} did not end in {_EXEC_WITHIN_S:g} s") from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if process.returncode != 0:
            last = said.decode("utf-8", "replace").strip()[-300:]
            raise _no_credentials(f"the kubeconfig's program {name} ended with {process.returncode}: {last}")
        return printed

    def _read(self, printed: bytes) -> tuple[str, float]:
        status = _mapping(_parsed_json(printed), "status")
        token, expires = status.get("token"), status.get("expirationTimestamp")
        if not isinstance(token, str) or not token:
            detail = f"the kubeconfig's program {self._command[0]} printed no ExecCredential with a token"
            raise _no_credentials(detail)
        return token, _moment(expires) if isinstance(expires, str) else time.time() + _LASTS_UNLESS_TOLD_S


def from_kubeconfig(texts: Sequence[str], context: str, folder: Path) -> Access:
    """The context of that name (empty: the current one) of kubeconfigs, of which the first that says a thing is right.

    Args:
        folder: what relative paths in them start from.

    Raises:
        ValueError: in words for an operator, without anything of the content.
    """
    files = [_kubeconfig(text) for text in texts]
    name = context or next((str(one["current-context"]) for one in files if one.get("current-context")), "")
    if not name:
        raise ValueError("the kubeconfig has no current-context: name one in `context`")
    chosen = _named(files, "contexts", "context", name)
    cluster = _named(files, "clusters", "cluster", str(chosen.get("cluster", "")))
    user = _named(files, "users", "user", str(chosen["user"])) if chosen.get("user") else {}
    server = cluster.get("server")
    if not isinstance(server, str) or not server.startswith(("https://", "http://")):
        raise ValueError(f"the cluster of the context {name!r} has no server that begins with https://")
    authority = _bytes_of(cluster, "certificate-authority", folder)
    certificate, key = (_bytes_of(user, part, folder) for part in ("client-certificate", "client-key"))
    if (certificate is None) != (key is None):
        raise ValueError(f"the user of the context {name!r} has a client-certificate or a client-key, not both")
    unchecked = bool(cluster.get("insecure-skip-tls-verify"))
    identity = (certificate, key) if certificate is not None and key is not None else None
    return Access(
        server=server.rstrip("/"),
        namespace=str(chosen["namespace"]) if chosen.get("namespace") else None,
        who=f"{server} {chosen.get('user')}",
        auth=BearerToken(_token_source(user, cluster, folder, name), cluster.get("tls-server-name")),
        certificates=lambda: context_of(authority, identity, unchecked=unchecked),
        proxy=str(cluster["proxy-url"]) if cluster.get("proxy-url") else None,
    )


def in_cluster(environment: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> Access | None:
    """As the service account of the pod that this process runs in; None: it runs in none."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (folder / "token").exists():
        return None
    shown = f"[{host}]" if ":" in host else host
    namespace = folder / "namespace"
    return Access(
        server=f"https://{shown}:{port}",
        namespace=namespace.read_text().strip() if namespace.exists() else None,
        who="in-cluster",
        auth=BearerToken(TokenFile(folder / "token")),
        certificates=lambda: context_of((folder / "ca.crt").read_bytes()),
    )


def at_address(server: str, source: TokenSource, who: str, authority: bytes | None = None) -> Access:
    """With a token, at an address."""
    certificates = (lambda: context_of(authority)) if authority is not None else None
    return Access(server.rstrip("/"), None, who, BearerToken(source), certificates)


def context_of(
    authority: bytes | None = None, identity: tuple[bytes, bytes] | None = None, *, unchecked: bool = False
) -> ssl.SSLContext:
    """What the server is checked by, and the client's own certificate and key.

    Raises:
        ProviderError: `AUTH`: it is none.
    """
    try:
        context = ssl.create_default_context(cadata=authority.decode() if authority is not None else None)
        if identity is not None:
            _load(context, *identity)
    except (ssl.SSLError, ValueError) as exc:
        raise _no_credentials(f"the certificates of the kubeconfig cannot be used: {exc}") from None
    if unchecked:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _load(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Python reads them from files only."""
    with tempfile.TemporaryDirectory() as folder:
        pair = Path(folder, "pair.pem")
        pair.touch(0o600)
        pair.write_bytes(certificate + b"\n" + key)
        context.load_cert_chain(pair)


def _kubeconfig(text: str) -> Mapping[str, Any]:
    try:
        read = yaml.safe_load(text)
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark is not None else ""
        raise ValueError(f"the kubeconfig is no YAML{where}") from None
    if not isinstance(read, Mapping):
        raise ValueError("the kubeconfig is no mapping")
    return read


def _named(files: Sequence[Mapping[str, Any]], plural: str, singular: str, name: str) -> Mapping[str, Any]:
    entries = [one for file in files for one in file.get(plural) or () if isinstance(one, Mapping)]
    found = next((one.get(singular) for one in entries if one.get("name") == name), None)
    if not isinstance(found, Mapping):
        known = ", ".join(str(one.get("name")) for one in entries) or "none"
        raise ValueError(f"the kubeconfig has no {singular} {name!r} (it has: {known})")
    return found


def _token_source(user: Mapping[str, Any], cluster: Mapping[str, Any], folder: Path, name: str) -> TokenSource:
    if user.get("tokenFile"):
        return TokenFile(folder / Path(str(user["tokenFile"])).expanduser())
    if user.get("token"):
        return TokenSource(str(user["token"]))
    program = user.get("exec")
    if isinstance(program, Mapping) and program.get("command"):
        return _program(program, cluster, folder)
    if user.get("auth-provider") or user.get("username"):
        raise ValueError(
            f"the user of the context {name!r} signs in as no cluster allows any more: use exec or a token"
        )
    return TokenSource()


def _program(program: Mapping[str, Any], cluster: Mapping[str, Any], folder: Path) -> TokenProgram:
    command = str(program["command"])
    if "/" in command:
        command = str(folder / Path(command).expanduser())
    variables = {str(one["name"]): str(one["value"]) for one in program.get("env") or () if isinstance(one, Mapping)}
    arguments = [str(one) for one in program.get("args") or ()]
    spec: dict[str, Any] = {"interactive": False}
    if program.get("provideClusterInfo"):
        told = {name: cluster[name] for name in _TOLD_TO_PROGRAMS if cluster.get(name)}
        authority = _bytes_of(cluster, "certificate-authority", folder)
        if authority is not None:
            told["certificate-authority-data"] = base64.b64encode(authority).decode()
        spec["cluster"] = told
    version = str(program.get("apiVersion") or "client.authentication.k8s.io/v1")
    return TokenProgram(
        [command, *arguments], variables, {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    )


def _bytes_of(entry: Mapping[str, Any], name: str, folder: Path) -> bytes | None:
    """What stands in `NAME-data`, else in the file `NAME`."""
    try:
        if entry.get(f"{name}-data"):
            return base64.b64decode(str(entry[f"{name}-data"]), validate=True)
        return (folder / Path(str(entry[name])).expanduser()).read_bytes() if entry.get(name) else None
    except ValueError:
        raise ValueError(f"{name}-data of the kubeconfig is no base64") from None
    except OSError as exc:
        raise ValueError(f"the file of {name} of the kubeconfig cannot be read: {exc.strerror}") from None


def _parsed_json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _mapping(value: Any, name: str) -> Mapping[str, Any]:
    inner = value.get(name) if isinstance(value, Mapping) else None
    return inner if isinstance(inner, Mapping) else {}


def _moment(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return time.time() + _LASTS_UNLESS_TOLD_S


def _no_credentials(detail: str) -> ProviderError:
    return ProviderError(Fault.AUTH, detail, scope=Scope.ACCOUNT)
