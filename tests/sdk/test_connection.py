from pathlib import Path

import pytest
from shunter.connection import find_connection
from shunter.errors import NotConfigured


def data_dir(root: Path, url: str = "http://127.0.0.1:8000", key: str = "shk_local") -> Path:
    root.mkdir(parents=True, exist_ok=True)
    (root / "api-url").write_text(url + "\n")
    (root / "api-key").write_text(key + "\n")
    return root


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def test_arguments_win_over_the_environment_and_the_environment_over_files(tmp_path: Path) -> None:
    data_dir(tmp_path / "work" / ".shunter")
    environ = {"SHUNTER_URL": "https://env:1", "SHUNTER_API_KEY": "shk_env"}

    by_argument = find_connection("https://arg:1/", "shk_arg", environ=environ)
    by_environment = find_connection(environ=environ)
    by_files = find_connection(environ={})

    assert (by_argument.url, by_argument.api_key) == ("https://arg:1", "shk_arg")
    assert (by_environment.url, by_environment.api_key) == ("https://env:1", "shk_env")
    assert (by_files.url, by_files.api_key) == ("http://127.0.0.1:8000", "shk_local")
    assert by_files.origin == str(tmp_path / "work" / ".shunter")


def test_the_nearest_data_directory_with_an_address_is_used(tmp_path: Path) -> None:
    (tmp_path / "work" / ".shunter").mkdir()
    data_dir(tmp_path / "home" / ".shunter", key="shk_home")

    assert find_connection(environ={}).api_key == "shk_home"


def test_a_data_directory_of_ones_own_is_found_from_a_folder_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_dir(tmp_path / "work" / ".shunter", key="shk_project")
    (tmp_path / "work" / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work" / "deep" / "er")

    assert find_connection(environ={}).api_key == "shk_project"


def test_a_data_directory_above_that_is_somebody_elses_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_dir(tmp_path / ".shunter", key="shk_planted")
    monkeypatch.setattr("os.getuid", lambda: 4711)

    with pytest.raises(NotConfigured):
        find_connection(environ={})


def test_a_chosen_data_directory_is_the_only_one(tmp_path: Path) -> None:
    data_dir(tmp_path / "work" / ".shunter")
    chosen = tmp_path / "chosen"

    with pytest.raises(NotConfigured, match=f"no api-url and api-key in {chosen}\n"):
        find_connection(environ={"SHUNTER_DATA_DIR": str(chosen)})
    data_dir(chosen, key="shk_chosen")
    assert find_connection(environ={"SHUNTER_DATA_DIR": str(chosen)}).api_key == "shk_chosen"


def test_a_data_directory_given_as_an_argument_wins_over_the_environment(tmp_path: Path) -> None:
    chosen = data_dir(tmp_path / "chosen", key="shk_chosen")

    found = find_connection(data_dir=chosen, environ={"SHUNTER_URL": "https://env:1", "SHUNTER_API_KEY": "shk_env"})

    assert (found.url, found.api_key) == ("http://127.0.0.1:8000", "shk_chosen")


def test_the_local_key_is_not_sent_to_another_host(tmp_path: Path) -> None:
    data_dir(tmp_path / "home" / ".shunter")

    with pytest.raises(NotConfigured, match=r"no key for https://elsewhere\.example"):
        find_connection("https://elsewhere.example", environ={})


@pytest.mark.parametrize("url", ["http://localhost:9", "http://127.0.0.1:9", "http://[::1]:9"])
def test_the_local_key_opens_another_port_of_this_machine(tmp_path: Path, url: str) -> None:
    data_dir(tmp_path / "home" / ".shunter")

    found = find_connection(url, environ={})

    assert (found.url, found.api_key) == (url, "shk_local")
    assert found.is_loopback


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://host", "http://", "http://[::1", "http://host:99999"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(NotConfigured, match="is not the address of a service"):
        find_connection(url, "shk_x", environ={})


def test_with_nothing_to_go_by_the_way_out_is_named() -> None:
    with pytest.raises(NotConfigured, match="no service found") as raised:
        find_connection(environ={})

    assert "shunter up" in raised.value.hint


def test_a_key_is_not_shown_when_a_connection_is_printed() -> None:
    assert "shk_arg" not in repr(find_connection("http://h", "shk_arg", environ={}))
