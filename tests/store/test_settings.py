"""Settings come from arguments, the environment and a file in the data directory, in this order."""

from pathlib import Path

import pytest
from pydantic import ValidationError
from shunter_store.settings import DataSettings, ProviderSettings, default_data_dir


def test_everything_lies_in_the_data_directory_by_default(tmp_path: Path) -> None:
    settings = DataSettings(data_dir=tmp_path)

    assert settings.database_url == f"sqlite:///{tmp_path}/shunter.db"
    assert settings.objects_url == f"file://{tmp_path}/objects"
    assert settings.redis_url == f"redis+socket://{tmp_path}/run/redis.sock?virtual_host=0"
    assert settings.providers == {"local": ProviderSettings(plugin="local")}


def test_the_environment_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHUNTER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("SHUNTER_DATABASE_URL", "postgresql://db/shunter")
    monkeypatch.setenv("SHUNTER_PROVIDERS", '{"cloud": {"plugin": "acme", "settings": {"region": "x"}}}')
    monkeypatch.setenv("SHUNTER_PACE__QUIET_S", "7")

    settings = DataSettings()

    assert settings.data_dir == tmp_path / "data"
    assert settings.database_url == "postgresql://db/shunter"
    assert settings.providers == {"cloud": ProviderSettings(plugin="acme", settings={"region": "x"})}
    assert (settings.pace.quiet_s, settings.pace.watched_s) == (7.0, 1.0)


def test_a_file_in_the_data_directory_counts_after_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "shunter.toml"
    file.write_text('redis_url = "redis://file"\ndatabase_url = "postgresql://file"\n[providers.a]\nplugin = "acme"\n')
    monkeypatch.setenv("SHUNTER_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("SHUNTER_DATABASE_URL", "postgresql://environment")

    settings = DataSettings()

    assert (settings.redis_url, settings.database_url) == ("redis://file", "postgresql://environment")
    assert settings.providers == {"a": ProviderSettings(plugin="acme")}


def test_settings_do_not_change(tmp_path: Path) -> None:
    settings = DataSettings(data_dir=tmp_path)

    with pytest.raises(ValidationError):
        settings.database_url = "x"  # type: ignore[misc]


def test_the_data_directory_is_the_named_one_then_the_one_here_then_the_one_at_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHUNTER_DATA_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    at_home = default_data_dir()
    (tmp_path / ".shunter").mkdir()
    here = default_data_dir()
    monkeypatch.setenv("SHUNTER_DATA_DIR", str(tmp_path / "named"))

    assert at_home == tmp_path / "home" / ".shunter"
    assert here == tmp_path / ".shunter"
    assert default_data_dir() == tmp_path / "named"
