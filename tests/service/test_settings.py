"""Settings of the service: its table of the file, and typing errors that are seen."""

from pathlib import Path

import pytest
from shunter_service.settings import BadSettings, ServiceSettings, load_settings, unknown_settings
from shunter_store.installation.setting_names import WORKER_NAMES
from shunter_store.installation.settings import DataSettings
from shunter_workers.settings import WorkerSettings
from support.up_process import running_up


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`shunter.toml` of the data directory that the environment names."""
    monkeypatch.setenv("SHUNTER_DATA_DIR", str(tmp_path))
    return tmp_path / "shunter.toml"


def test_the_table_of_the_service_counts_after_the_environment(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("[service]\ntail_every_s = 2\ngrant_s = 60\n[service.bundle_limits]\nmax_entries = 5\n")
    monkeypatch.setenv("SHUNTER_SERVICE_GRANT_S", "30")

    settings = load_settings()[1]

    assert (settings.tail_every_s, settings.grant_s) == (2, 30)
    assert settings.bundle_limits.max_entries == 5
    assert settings.max_document_bytes == ServiceSettings().max_document_bytes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[service]\ntail_evry_s = 2\n", "shunter.toml: unknown setting `tail_evry_s`; did you mean `tail_every_s`?"),
        ("service = 2\n", "shunter.toml: `service` is a table: [service]"),
        ("[service]\ntail_every_s = 0\n", "tail_every_s: Input should be greater than 0"),
        ("[service.bundle_limits]\nmax_entry = 5\n", "bundle_limits.max_entry: Unexpected keyword argument"),
        ("redis = 1\n", "shunter.toml: unknown setting `redis`; did you mean `redis_url`?"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(file: Path, text: str, words: str) -> None:
    file.write_text(text)

    with pytest.raises(BadSettings) as refused:
        load_settings()

    assert str(refused.value) == words


def test_a_variable_of_the_service_that_nobody_knows_is_told(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHUNTER_SERVICE_TAIL_EVRY_S", "1")
    monkeypatch.setenv("SHUNTER_SERVICE_TAIL_EVERY_S", "1")

    told = [text for text in unknown_settings() if "TAIL" in text]

    assert told == [
        "SHUNTER_SERVICE_TAIL_EVRY_S is no setting that is known, and does nothing; "
        "did you mean `SHUNTER_SERVICE_TAIL_EVERY_S`?"
    ]


def test_the_names_of_the_workers_settings_are_those_of_their_model() -> None:
    assert set(WORKER_NAMES) == WorkerSettings.model_fields.keys() - DataSettings.model_fields.keys()


@pytest.mark.slow
def test_up_tells_a_variable_that_nobody_knows_where_it_is_seen(tmp_path: Path) -> None:
    with running_up(tmp_path / "data", environ={"SHUNTER_DATABSE_URL": "x"}) as up:
        assert "warning  SHUNTER_DATABSE_URL is no setting that is known" in up.said
