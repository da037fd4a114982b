"""The supervisor with its real roles. One start serves several tests where they leave it as they found it."""

import os
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from support.documents import tiny_lm
from support.up_process import COMMAND, Up, children_of, command_of, descendants_of, lives, resident_mib, running_up
from support.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running_up(tmp_path_factory.mktemp("up") / "data") as running:
        yield running


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def apis(up: Up) -> list[int]:
    """The processes that serve the API."""
    return [pid for pid in children_of(up.process.pid) if "shunter_service\0api" in command_of(pid)]


def is_whole(up: Up) -> bool:
    """Whether every role works."""
    try:
        answer = up.readiness()
    except httpx.TransportError:
        return False
    checks = answer.json()["checks"]
    return (
        answer.status_code == 200 and checks["workers"]["ok"] and None not in map(up.child, ("api", "worker", "redis"))
    )


def test_it_says_where_everything_is(up: Up) -> None:
    said = up.said

    assert up.url in said
    assert str(up.data_dir / "api-key") in said
    assert str(up.data_dir) in said


def test_only_the_owner_can_read_what_is_secret(up: Up) -> None:
    private = {name: mode_of(up.data_dir / name) for name in ("api-key", "signing-key", "run", "redis", "logs")}

    assert private == {"api-key": 0o600, "signing-key": 0o600, "run": 0o700, "redis": 0o700, "logs": 0o700}
    assert mode_of(up.data_dir) == 0o700
    assert mode_of(up.data_dir / "run" / "redis.sock") == 0o700


def test_the_key_in_the_file_opens_the_api(up: Up) -> None:
    key = (up.data_dir / "api-key").read_text().strip()

    answer = httpx.get(f"{up.url}/v1/me", headers={"Authorization": f"Bearer {key}"}, trust_env=False)

    assert key.startswith("shk_")
    assert answer.json()["name"] == "local"


def test_it_listens_on_loopback_only(up: Up) -> None:
    assert up.url.startswith("http://127.0.0.1:")


def test_a_second_one_on_the_same_data_directory_is_refused(up: Up) -> None:
    second = subprocess.run(
        [*COMMAND, "--data-dir", str(up.data_dir)], capture_output=True, text=True, timeout=30, check=False
    )

    assert second.returncode == 1
    assert str(up.process.pid) in second.stderr
    assert up.url in second.stderr
    wait_until(lambda: is_whole(up), timeout_s=30, description="the first one goes on")


@pytest.mark.parametrize("name", ["api", "redis", "worker"])
def test_a_role_that_is_killed_is_started_again(up: Up, name: str) -> None:
    wait_until(lambda: is_whole(up), timeout_s=30, description="all roles work before")
    before = up.child(name)
    assert before is not None

    os.kill(before, signal.SIGKILL)

    wait_until(lambda: up.child(name) not in (None, before), timeout_s=20, description="it is started again")
    wait_until(lambda: is_whole(up), timeout_s=30, description="all roles work again")
    assert f"{name} ended with signal 9" in up.said
    wait_until(lambda: f"{name} works again" in up.said, description="it says so")


def test_a_disk_that_is_full_loses_what_it_says_and_stops_nothing(tmp_path: Path) -> None:
    unheard = ("sh", "-c", 'exec "$@" >/dev/full 2>&1', "sh", *COMMAND)
    with running_up(tmp_path / "data", ready=False, command=unheard) as up:
        wait_until((up.data_dir / "api-url").exists, timeout_s=60, description="it has an address")
        wait_until(lambda: is_whole(up), timeout_s=60, description="all roles work")
        before = up.child("worker")
        assert before is not None

        os.kill(before, signal.SIGKILL)

        wait_until(lambda: up.child("worker") not in (None, before), timeout_s=20, description="it is started again")
        assert up.stop() == 0


def test_a_request_during_a_restart_of_the_api_waits_instead_of_failing(up: Up) -> None:
    wait_until(lambda: is_whole(up), timeout_s=30, description="all roles work before")
    before = up.child("api")
    assert before is not None

    os.kill(before, signal.SIGKILL)
    answers = [up.readiness().status_code for _ in range(3)]

    assert answers == [200, 200, 200]


def test_the_processes_stay_small(up: Up) -> None:
    wait_until(lambda: is_whole(up), timeout_s=30, description="all roles work")
    api = up.child("api")
    assert api is not None

    assert resident_mib(api) <= 120
    assert resident_mib(up.process.pid) <= 32


def test_several_processes_serve_the_api_and_the_end_of_one_is_not_noticed(tmp_path: Path) -> None:
    with running_up(tmp_path / "data", "--api-processes", "2") as up:
        before = apis(up)
        os.kill(before[0], signal.SIGKILL)
        answers = [up.readiness().status_code for _ in range(5)]

        wait_until(lambda: len(apis(up)) == 2, timeout_s=30, description="another one takes its place")

        assert len(before) == 2
        assert answers == [200] * 5
        assert before[1] in apis(up)
        wait_until(lambda: " works again" in up.said, timeout_s=30, description="it says so")
        assert up.stop() == 0
        assert not any(map(lives, before))


def test_a_stop_leaves_no_process_and_the_next_start_has_the_same_address_key_and_jobs(tmp_path: Path) -> None:
    document = {**tiny_lm(), "resources": {"cpu_processes": 2}, "placement": {"providers": ["elsewhere"]}}
    providers = {"SHUNTER_PROVIDERS": '{"elsewhere": {"plugin": "local", "paused": true}}'}
    with running_up(tmp_path / "data", environ=providers) as up:
        headers = {"Authorization": f"Bearer {(up.data_dir / 'api-key').read_text().strip()}"}
        url, started = up.url, descendants_of(up.process.pid)
        job = httpx.post(f"{url}/v1/jobs", json=document, headers=headers, trust_env=False).json()

        code = up.stop()

        assert code == 0
        assert up.said.endswith("stopping\nstopped\n")
        assert [pid for pid in started if lives(pid)] == []

    with running_up(tmp_path / "data", environ=providers) as again:
        assert again.url == url
        found = httpx.get(f"{url}/v1/jobs/{job['id']}", headers=headers, trust_env=False)
        assert found.json()["state"] == "queued"


def test_after_a_kill_nothing_but_agents_lives_on_and_a_new_one_starts(tmp_path: Path) -> None:
    with running_up(tmp_path / "data") as up:
        started = descendants_of(up.process.pid)

        up.stop(signal.SIGKILL)

        wait_until(lambda: not any(map(lives, started)), description="all children died with it")

    with running_up(tmp_path / "data") as again:
        wait_until(lambda: is_whole(again), timeout_s=30, description="all roles work, once the old leases ran out")


def test_ctrl_c_is_a_clean_stop(tmp_path: Path) -> None:
    with running_up(tmp_path / "data") as up:
        assert up.stop(signal.SIGINT) == 0


def test_it_can_be_stopped_before_it_is_ready(tmp_path: Path) -> None:
    with running_up(tmp_path / "data", ready=False) as up:
        wait_until(lambda: children_of(up.process.pid), description="it has begun")
        started = descendants_of(up.process.pid)

        code = up.stop()

        assert code == 0
        wait_until(lambda: not any(map(lives, started)), description="nothing is left")


def test_a_port_that_was_asked_for_and_is_taken_is_an_error(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        running_up(tmp_path / "data", "--port", str(taken.getsockname()[1]), ready=False) as up,
    ):
        assert up.process.wait(20) == 1
        assert "cannot listen on 127.0.0.1" in up.said
        assert "give another --port or --host" in up.said


def test_a_data_directory_that_cannot_be_made_is_named_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with running_up(tmp_path / "file", ready=False) as up:
        assert up.process.wait(20) == 1
        assert up.said.startswith(f"shunter up: {tmp_path / 'file'} cannot be a data directory: ")
        assert "--data-dir" in up.said


@pytest.mark.parametrize(
    ("variables", "toml", "words"),
    [
        ({"SHUNTER_DATABASE_URL": "mysql://nowhere/x"}, "", "mysql is not supported: use sqlite or postgresql"),
        ({"SHUNTER_SERVICE_KEEP_ALIVE_S": "never"}, "", "keep_alive_s: Input should be a valid number, "),
        ({}, "worker_children = 0\n", "worker_children: Input should be greater than or equal to 1"),
        ({}, "[pase]\nquiet_s = 1\n", "shunter.toml: unknown setting `pase`; did you mean `pace`?"),
    ],
)
def test_settings_that_cannot_be_used_end_it_with_the_cause_and_nothing_else(
    tmp_path: Path, variables: dict[str, str], toml: str, words: str
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "shunter.toml").write_text(toml)

    with running_up(tmp_path / "data", ready=False, environ=variables) as up:
        code = up.process.wait(60)

        told = [line for line in up.said.splitlines() if line.startswith("shunter up: ")]
        assert code == 1
        assert len(told) == 1, up.said
        assert told[0].startswith(f"shunter up: {words}")
        assert "Traceback" not in up.said


def test_a_redis_of_the_operators_own_is_used_instead(tmp_path: Path, up: Up) -> None:
    url = f"redis+socket://{up.data_dir / 'run' / 'redis.sock'}?virtual_host=3"
    with running_up(tmp_path / "data", environ={"SHUNTER_REDIS_URL": url}) as other:
        assert other.child("redis") is None
        assert other.child("worker") is not None
        assert other.stop() == 0


def test_a_data_directory_with_a_long_path_works(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120) / "data"
    deep.parent.mkdir()
    with running_up(deep) as up:
        wait_until(lambda: is_whole(up), timeout_s=30, description="all roles work")
        place = Path((deep / "run" / "redis.sock.is-at").read_text().strip())
        assert up.stop() == 0
    assert mode_of(place.parent) == 0o700
    place.unlink(missing_ok=True)
    place.parent.rmdir()
