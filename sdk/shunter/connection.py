"""Where the service is and which key opens it: from arguments, the environment, or a data directory.

`shunter up` leaves two files in its data directory: `api-url` and `api-key` (mode 0600). Whoever can read them needs
no configuration. The key of a data directory is sent to the address that stands beside it or to this machine, never
to another host that an argument or a variable names.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from shunter.errors import NotConfigured

_NAME = ".shunter"
_HOW = "start one with `shunter up`, or give --url and --api-key (SHUNTER_URL, SHUNTER_API_KEY)"


@dataclass(frozen=True, slots=True)
class Connection:
    """An address (no slash at the end) and a key. `origin` says where they were found, for messages."""

    url: str
    api_key: str = field(repr=False)
    origin: str = "arguments"

    @property
    def is_loopback(self) -> bool:
        """Whether the service is on this machine."""
        return _is_loopback(self.url)


def find_connection(
    url: str | None = None,
    api_key: str | None = None,
    data_dir: str | Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Connection:
    """The connection to use: arguments first, then `SHUNTER_URL` and `SHUNTER_API_KEY`, then the data directories.

    Args:
        data_dir: a data directory; it stands in place of the environment and of every other data directory.

    Raises:
        NotConfigured: something is missing, not an http(s) address or no key; the message says what, and where it was
            sought.
    """
    if not data_dir:
        url = url or environ.get("SHUNTER_URL") or None
        api_key = api_key or environ.get("SHUNTER_API_KEY") or None
    if url:
        url = _checked(url)
    if api_key:
        _check_key(api_key)
    if url and api_key:
        return Connection(url, api_key)
    folders = data_dirs(data_dir, environ)
    for folder in folders:
        found_url, found_key = _read(folder / "api-url"), _read(folder / "api-key")
        if url and found_key and (_is_loopback(url) or url == found_url):
            return Connection(url, found_key, str(folder))
        if not url and found_url and (api_key or found_key):
            return Connection(_checked(found_url), api_key or found_key, str(folder))
    sought = ", ".join(str(folder) for folder in folders)
    if url:
        raise NotConfigured(f"no key for {url}: none was given, and none in {sought} belongs to it", hint=_HOW)
    raise NotConfigured(f"no service found: no api-url and api-key in {sought}", hint=_HOW)


def data_dirs(data_dir: str | Path | None = None, environ: Mapping[str, str] = os.environ) -> list[Path]:
    """The folders where a running service may have left its address, in the order in which they are asked."""
    if data_dir:
        return [Path(data_dir)]
    if chosen := environ.get("SHUNTER_DATA_DIR"):
        return [Path(chosen)]
    here = Path.cwd() / _NAME
    return list(dict.fromkeys((here, *_above(here), Path.home() / _NAME)))


def _above(here: Path) -> Iterator[Path]:
    """Those of the folders above, so that commands work inside of a project; only one's own, since anybody may put
    one into a folder that all may write."""
    for folder in here.parent.parents:
        try:
            if (folder / _NAME).stat().st_uid == os.getuid():
                yield folder / _NAME
        except OSError:
            continue


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        spaced = any(character.isspace() for character in url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and not spaced
    except ValueError:
        usable = False
    if not usable:
        raise NotConfigured(f"{url!r} is not the address of a service", hint="it looks like http://127.0.0.1:8000")
    return url.rstrip("/")


def _check_key(api_key: str) -> None:
    """A header carries it; what no header can carry is no key."""
    if not (api_key.isascii() and api_key.isprintable()) or " " in api_key:
        raise NotConfigured(
            "the key holds a character that no key has", hint="it looks like shk_…; was it copied whole?"
        )


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
