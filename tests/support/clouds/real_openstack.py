"""A real Keystone and a real nova, OpenStack's identity and compute services, in an environment of their own."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from support.documents import REPOSITORY

REGION: Final = "GRA11"
USER: Final = "user-of-ours"
PROJECT: Final = "6f70656e737461636b20342065766572"
"""The one that nova's stand-ins for other services know."""
_ADMIN_PASSWORD: Final = "the-admin's-own"
_DATA: Final = REPOSITORY / "tests/data/openstack"
_REQUIREMENTS: Final = _DATA / "requirements.txt"
_INSTALLS_WITHIN_S: Final = 900
_ANSWERS_WITHIN_S: Final = 60.0


@dataclass(slots=True)
class Keystone:
    """Who may do what, and where services are."""

    url: str
    http: httpx.Client
    _endpoints: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Id and URL by kind."""
    _admin: str = ""

    def admin(self) -> str:
        """A token of the administrator's."""
        self._admin = self._admin or self.token("admin", _ADMIN_PASSWORD)
        return self._admin

    def token(self, user: str, password: str) -> str:
        """One for the project."""
        who = {"user": {"name": user, "password": password, "domain": {"id": "default"}}}
        identity = {"methods": ["password"], "password": who}
        body = {"auth": {"identity": identity, "scope": {"project": {"id": PROJECT}}}}
        answer = self.http.post(f"{self.url}/v3/auth/tokens", json=body)
        assert answer.is_success, answer.text
        return answer.headers["X-Subject-Token"]

    def revoke(self, token: str) -> None:
        """It is good for nothing from now on."""
        self._call("DELETE", "/auth/tokens", None, {"X-Subject-Token": token})

    def make_user(self, password: str) -> None:
        """`USER`, a member of the project."""
        user = {"name": USER, "password": password, "domain_id": "default"}
        made = self._call("POST", "/users", {"user": user}).json()["user"]["id"]
        for role in self._call("GET", "/roles?name=member").json()["roles"]:
            self._call("PUT", f"/projects/{PROJECT}/users/{made}/roles/{role['id']}")

    def publish(self, kind: str, url: str) -> None:
        """Say where a service is now."""
        known, published = self._endpoints.get(kind, ("", ""))
        if published == url:
            return
        if known:
            self._call("PATCH", f"/endpoints/{known}", {"endpoint": {"url": url}})
            self._endpoints[kind] = known, url
            return
        service = self._call("POST", "/services", {"service": {"type": kind, "name": kind}}).json()["service"]["id"]
        for interface, at in (("admin", "https://nowhere.invalid"), ("public", url)):
            body = {"service_id": service, "interface": interface, "url": at, "region": REGION}
            made = self._call("POST", "/endpoints", {"endpoint": body}).json()["endpoint"]["id"]
        self._endpoints[kind] = made, url

    def ask(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> httpx.Response:
        """As it comes."""
        return self.http.request(method, f"{self.url}{path}", content=body, headers=headers)

    def _call(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        by = {"X-Auth-Token": self.admin(), **(headers or {})}
        answer = self.http.request(method, f"{self.url}/v3{path}", json=body, headers=by)
        assert answer.is_success, (method, path, answer.status_code, answer.text)
        return answer


@dataclass(frozen=True, slots=True)
class Nova:
    """Where it is, and what its stand-ins for other services have."""

    url: str
    http: httpx.Client
    keystone: Keystone
    image: str
    """The id of an image that servers boot."""
    network: str
    """The id of a network that is called `Ext-Net`."""
    _changed: set[str] = field(default_factory=set)

    def ask(self, method: str, path: str, body: Any = None, *, token: str) -> tuple[int, Any]:
        """Status and answer, as JSON where it is some.

        Args:
            path: after the version, as `/servers`.
            body: JSON, or bytes as they are.
        """
        content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        headers = {"X-Auth-Token": token, "Content-Type": "application/json"}
        answer = self.http.request(method, f"{self.url}/v2.1{path}", headers=headers, content=content)
        try:
            return answer.status_code, answer.json() if answer.content else None
        except ValueError:
            return answer.status_code, answer.text

    def as_admin(self, method: str, path: str, body: Any = None) -> Any:
        """The answer to what must go well."""
        status, answer = self.ask(method, path, body, token=self.keystone.admin())
        assert status < 300, (method, path, status, answer)
        return answer

    def control(self, **wanted: Any) -> None:
        """See `tests/data/openstack/compute.py`."""
        self._changed.add("control")
        self.http.put(f"{self.url}/control", json=wanted).raise_for_status()

    def limit(self, **quotas: int) -> None:
        """Set quotas of the project: `cores`, `ram` (MiB), `instances`; -1: none."""
        self._changed.add("limit")
        self.as_admin("PUT", f"/os-quota-sets/{PROJECT}", {"quota_set": {**quotas, "force": True}})

    def settle(self) -> None:
        """Whatever waits goes on, and there is no quota."""
        if "control" in self._changed:
            self.control(release=True)
        if "limit" in self._changed:
            self.limit(cores=-1, ram=-1, instances=-1)
        self._changed.clear()

    def servers(self) -> list[Mapping[str, Any]]:
        """Everything that exists, over all pages."""
        found: list[Mapping[str, Any]] = []
        while True:
            after = f"&marker={found[-1]['id']}" if found else ""
            page = self.as_admin("GET", f"/servers/detail?all_tenants=1{after}")
            found += page["servers"]
            if "servers_links" not in page:
                return found


def environment(config: pytest.Config) -> Path:
    """The Python of an environment that has both; made once, for as long as their versions stay the same."""
    assert config.cache is not None
    folder = config.cache.mkdir(f"openstack-{hashlib.sha256(_REQUIREMENTS.read_bytes()).hexdigest()[:12]}")
    python = folder / "venv" / "bin" / "python"
    if not (folder / "ready").exists():
        venv.create(folder / "venv", with_pip=True, clear=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "-r", str(_REQUIREMENTS)]
        ran = subprocess.run(install, capture_output=True, text=True, timeout=_INSTALLS_WITHIN_S, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        (folder / "ready").touch()
    return python


@contextmanager
def running(python: Path, folder: Path, password: str) -> Iterator[Nova]:
    """Both with nothing in them but our user, from ready to ended; databases and logs lie in the folder."""
    with (
        httpx.Client(trust_env=False, timeout=_ANSWERS_WITHIN_S) as http,
        _started(python, "identity.py", folder, PROJECT, REGION, _ADMIN_PASSWORD) as identity,
        _started(python, "compute.py", folder, identity["url"], _ADMIN_PASSWORD) as compute,
    ):
        keystone = Keystone(identity["url"], http)
        keystone.make_user(password)
        keystone.publish("identity", keystone.url)
        yield Nova(compute["url"], http, keystone, compute["image"], compute["network"])


@contextmanager
def _started(python: Path, script: str, folder: Path, *arguments: str) -> Iterator[Mapping[str, str]]:
    """What it says of itself; it is ended in the end."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("OS_", "PYTHON"))}
    environ["TMPDIR"] = str(folder)
    command = [str(python), "-W", "ignore", str(_DATA / script), *arguments]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    log = folder / f"{script}.log"
    with log.open("wb") as stderr, subprocess.Popen(command, env=environ, stderr=stderr, **pipes) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, log.read_text(errors="replace")[-4000:]
            yield json.loads(line)
        finally:
            process.kill()
