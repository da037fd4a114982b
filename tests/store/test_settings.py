"""Settings come from arguments, the environment and a file in the data directory, in this order."""

from pathlib import Path

import pytest
from pydantic import ValidationError
from shunter_store.installation.setting_names import UnknownSetting
from shunter_store.installation.settings import DataSettings, ProviderSettings, default_data_dir


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


def test_an_unknown_key_of_the_file_is_refused_with_the_nearest_known_one(tmp_path: Path) -> None:
    file = tmp_path / "shunter.toml"
    file.write_text(
        'databse_url = "x"\nworker_children = 3\n[pace]\nquite_s = 1\n[providers.a]\nplugin = "a"\npause = 1\n'
    )

    with pytest.raises(UnknownSetting) as refused:
        DataSettings(data_dir=tmp_path)

    assert str(refused.value) == (
        "shunter.toml: unknown setting `databse_url`; did you mean `database_url`?"
        "; unknown setting `pace.quite_s`; did you mean `quiet_s`?"
        "; unknown setting `providers.a.pause`; did you mean `paused`?"
    )


def test_settings_of_the_other_roles_may_stand_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "shunter.toml").write_text("worker_children = 3\n[service]\ntail_every_s = 1\n[pace]\nquiet_s = 9\n")

    assert DataSettings(data_dir=tmp_path).pace.quiet_s == 9


def test_a_file_that_is_no_toml_is_named(tmp_path: Path) -> None:
    (tmp_path / "shunter.toml").write_text("redis_url: x")

    with pytest.raises(ValueError, match=r"shunter\.toml: Expected '='"):
        DataSettings(data_dir=tmp_path)


def test_variables_that_look_like_settings_and_are_none_are_told() -> None:
    environ = {
        "SHUNTER_DATABSE_URL": "x",
        "SHUNTER_PACES__QUIET_S": "1",
        "SHUNTER_PORT_8080_TCP": "tcp://10.0.0.1:8080",
        "SHUNTER_PACE__QUIET_S": "1",
        "SHUNTER_WORKER_CHILDREN": "1",
        "SHUNTER_SERVICE_TAIL_EVERY_S": "1",
        "SHUNTER_URL": "x",
        "SHUNTER_TEST_POSTGRES_URL": "x",
        "shunter_redis_url": "x",
    }

    told = DataSettings.unknown_variables(environ)

    assert told == [
        "SHUNTER_DATABSE_URL is no setting that is known, and does nothing; did you mean `SHUNTER_DATABASE_URL`?",
        "SHUNTER_PACES__QUIET_S is no setting that is known, and does nothing; did you mean `SHUNTER_PACE`?",
        "SHUNTER_PORT_8080_TCP is no setting that is known, and does nothing",
    ]


def test_an_instance_without_a_plugin_has_the_one_of_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "shunter.toml").write_text('[providers.runpod]\n[providers.mine]\nplugin = "runpod"\n')

    found = DataSettings(data_dir=tmp_path).providers

    assert {name: one.plugin for name, one in found.items()} == {"runpod": "runpod", "mine": "runpod"}


def test_a_variable_speaks_of_the_instance_whose_name_has_a_hyphen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shunter.toml").write_text(
        '[providers.runpod-eu]\nplugin = "runpod"\n[providers.runpod-eu.settings]\ncloud = "SECURE"\ndisk_gib = 1\n'
    )
    monkeypatch.setenv("SHUNTER_PROVIDERS__RUNPOD_EU__SETTINGS__DISK_GIB", "7")
    monkeypatch.setenv("SHUNTER_PROVIDERS__OTHER_ONE__PLUGIN", "lambda")

    found = DataSettings(data_dir=tmp_path).providers

    assert set(found) == {"runpod-eu", "other_one"}
    assert found["runpod-eu"].plugin == "runpod"
    assert {name: str(value) for name, value in found["runpod-eu"].settings.items()} == {
        "cloud": "SECURE",
        "disk_gib": "7",
    }


@pytest.mark.parametrize(
    ("setting", "words", "everything"),
    [("paused", "the operator has paused it", True), ("spend_frozen", "the operator has frozen its spending", False)],
)
def test_an_operator_holds_an_instance_with_a_word(tmp_path: Path, setting: str, words: str, everything: bool) -> None:
    (tmp_path / "shunter.toml").write_text(f"[providers.local]\n{setting} = true\n")

    hold = DataSettings(data_dir=tmp_path).providers["local"].hold

    assert hold is not None
    assert (hold.words, hold.of_everything) == (words, everything)


def test_settings_of_an_instance_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / "shunter.toml").write_text('[providers.runpod.settings]\napi_key = "s3cret-of-runpod"\n')

    assert "s3cret" not in repr(DataSettings(data_dir=tmp_path))


def test_a_variable_with_the_credentials_of_an_instance_is_no_typing_error(tmp_path: Path) -> None:
    told = DataSettings.unknown_variables({"SHUNTER_RUNPOD_API_KEY": "x", "SHUNTER_LAMBDA_EU_API_KEY": "x"})

    assert told == []
