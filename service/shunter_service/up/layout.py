"""The files of a data directory that the supervisor knows."""

from __future__ import annotations

import os
import tempfile
import tomllib
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

_SOCKET_PATH_LIMIT_BYTES = 100
"""`sun_path` holds 108 bytes; some clients need a few of them."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths inside one data directory (absolute)."""

    data_dir: Path

    @property
    def lock(self) -> Path:
        return self.data_dir / "up.lock"

    @property
    def api_url(self) -> Path:
        return self.data_dir / "api-url"

    @property
    def api_key(self) -> Path:
        return self.data_dir / "api-key"

    @property
    def signing_key(self) -> Path:
        return self.data_dir / "signing-key"

    @property
    def logs(self) -> Path:
        return self.data_dir / "logs"

    @property
    def run(self) -> Path:
        return self.data_dir / "run"

    @property
    def redis(self) -> Path:
        return self.data_dir / "redis"

    @property
    def nodes(self) -> Path:
        return self.data_dir / "nodes"

    def make(self) -> None:
        """Create the folders, readable by their owner only."""
        for folder in (self.data_dir, self.logs, self.run, self.redis):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.run.chmod(0o700)
        self.redis.chmod(0o700)


def redis_socket(layout: Layout) -> Path:
    """Where the embedded server listens: `run/redis.sock`, or a short private folder when that path is too long.

    The short folder is a function of the data directory and of the user, so that a restart finds it again; a note
    beside the usual place says where it is.
    """
    usual = layout.run / "redis.sock"
    if len(os.fsencode(usual)) <= _SOCKET_PATH_LIMIT_BYTES:
        return usual
    mark = sha256(os.fsencode(layout.data_dir)).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"shunter-{os.getuid()}-{mark}"
    folder.mkdir(mode=0o700, exist_ok=True)
    owner = folder.lstat()
    if owner.st_uid != os.getuid() or owner.st_mode & 0o077 or folder.is_symlink():
        raise PermissionError(f"{folder} exists and is not a private folder of this user")
    (layout.run / "redis.sock.is-at").write_text(f"{folder / 'redis.sock'}\n")
    return folder / "redis.sock"


def configured_redis(layout: Layout) -> str | None:
    """The operator's own broker, if `shunter.toml` names one; what else is in that file is for the roles to judge."""
    try:
        configured = tomllib.loads((layout.data_dir / "shunter.toml").read_text()).get("redis_url")
    except (OSError, ValueError):
        return None
    return configured if isinstance(configured, str) and configured else None


def default_data_dir() -> Path:
    """`$SHUNTER_DATA_DIR`, else `./.shunter` if it exists, else `~/.shunter`: the store's and the SDK's rule too."""
    if named := os.environ.get("SHUNTER_DATA_DIR"):
        return Path(named).expanduser()
    here = Path(".shunter")
    return here if here.is_dir() else Path.home() / ".shunter"
