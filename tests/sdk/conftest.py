from collections.abc import Iterator
from pathlib import Path

import pytest
from shunter import Client
from support.api_process import ApiProcess, running_api
from support.both_clients import KINDS, Kind, client_of


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    """One API process for the whole run; tests make their own jobs in it."""
    with running_api(tmp_path_factory.mktemp("api")) as process:
        yield process


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Blocking, or for an event loop."""
    kind: Kind = request.param
    return kind


@pytest.fixture
def client(api: ApiProcess, kind: Kind) -> Iterator[Client]:
    """Both kinds of client, one after the other."""
    with client_of(kind, api.url, api.key) as client:
        yield client


@pytest.fixture
def blocking_client(api: ApiProcess) -> Iterator[Client]:
    with Client(api.url, api.key) as client:
        yield client


@pytest.fixture
def cli_environment(api: ApiProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ApiProcess:
    """The command line of this process finds the API by its data directory, and nothing else."""
    for name in ("SHUNTER_URL", "SHUNTER_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SHUNTER_DATA_DIR", str(api.data_dir))
    monkeypatch.chdir(tmp_path)
    return api
