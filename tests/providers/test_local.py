"""The `local` plugin with real agent processes: the conformance kit, and what is its own."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from shunter_providers.contract import Fault, Instance, Intent, Launch, NodeCondition, OfferQuery, ProviderError
from shunter_providers.local import LocalProvider
from shunter_providers.local.devices import Machine, make_offers, parse_gpus
from shunter_providers.local.settings import read_settings
from shunter_providers.machine import folders
from shunter_providers.machine.processes import identify, is_alive
from shunter_providers.testing import ProviderConformance
from shunter_schemas.ids import new_node_token
from shunter_schemas.node_sync import LaunchFile
from shunter_workers.packing import pack_launch


def instance(tmp_path: Path, name: str = "local", **settings: Any) -> Instance:
    return Instance(name, "local", settings, str(tmp_path))


@pytest.fixture
def provider(tmp_path: Path) -> LocalProvider:
    return LocalProvider(instance(tmp_path))


@pytest.fixture
def launch() -> Launch:
    """The real agent, with a service that nobody answers for."""
    return pack_launch(LaunchFile(node="shn-test", sync_token="secret", service_url="http://127.0.0.1:9"))


class TestLocalProvider(ProviderConformance):
    @pytest.fixture
    def provider(self, tmp_path: Path) -> LocalProvider:
        return LocalProvider(instance(tmp_path))

    @pytest.fixture
    def launch(self) -> Launch:
        return pack_launch(LaunchFile(node="shn-test", sync_token="secret", service_url="http://127.0.0.1:9"))

    async def test_a_node_outlives_whoever_asked_for_it(
        self, provider: LocalProvider, tmp_path: Path, intent: Intent
    ) -> None:
        await provider.create(intent)

        agent = folders.find(tmp_path / "nodes", intent.token).agent()

        assert agent is not None
        assert os.getsid(agent.pid) != os.getsid(0)
        assert os.getpgid(agent.pid) != os.getpgid(0)

    async def test_launch_files_are_for_their_owner_only(
        self, provider: LocalProvider, tmp_path: Path, intent: Intent
    ) -> None:
        await provider.create(intent)

        folder = folders.find(tmp_path / "nodes", intent.token).path

        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / "launch.json").stat().st_mode) == 0o600

    async def test_a_killed_agent_is_a_node_that_is_gone(
        self, provider: LocalProvider, tmp_path: Path, deployment: str, intent: Intent
    ) -> None:
        handle = await provider.create(intent)
        agent = folders.find(tmp_path / "nodes", handle).agent()
        assert agent is not None

        os.kill(agent.pid, signal.SIGKILL)

        await _until(lambda: not is_alive(agent))
        assert (await provider.get(handle)).condition is NodeCondition.GONE
        assert await provider.list_owned(deployment) == []

    async def test_a_dead_node_is_not_made_again_under_its_token(
        self, provider: LocalProvider, tmp_path: Path, intent: Intent
    ) -> None:
        handle = await provider.create(intent)
        await provider.terminate(handle)

        again = await provider.create(intent)

        assert again == handle
        assert (await provider.get(handle)).condition is NodeCondition.GONE

    async def test_instances_do_not_see_each_others_nodes(
        self, provider: LocalProvider, tmp_path: Path, deployment: str, intent: Intent
    ) -> None:
        await provider.create(intent)

        other = LocalProvider(instance(tmp_path, "second"))

        assert await other.list_owned(deployment) == []

    async def test_a_crash_before_the_start_leaves_a_node_that_ends_by_itself_and_can_be_started(
        self, provider: LocalProvider, tmp_path: Path, deployment: str, intent: Intent
    ) -> None:
        half_made = folders.find(tmp_path / "nodes", intent.token)
        folders.make(tmp_path / "nodes", "local", intent)

        seen_at_once = await provider.list_owned(deployment)
        os.utime(half_made.path, (time.time() - 60, time.time() - 60))
        seen_later = await provider.list_owned(deployment)
        await provider.create(intent)

        assert [view.condition for view in seen_at_once] == [NodeCondition.PENDING]
        assert seen_later == []
        assert (await provider.get(intent.token)).condition is NodeCondition.RUNNING


@pytest.fixture
def runaway(tmp_path: Path) -> Launch:
    """A launch whose `agent` starts a process that leaves the session and ignores SIGTERM."""
    script = tmp_path / "agent.py"
    script.write_text(
        "import json, os, signal, subprocess, sys, time\n"
        "if os.fork(): sys.exit(0)\n"
        "os.setsid()\n"
        "for fd in (0, 1, 2): os.close(fd); os.open(os.devnull, os.O_RDWR)\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "subprocess.Popen([sys.executable, '-c', 'import os, signal, time; signal.signal(15, signal.SIG_IGN);"
        ' open("child", "w").write(str(os.getpid())); time.sleep(600)\'], start_new_session=True)\n'
        "fields = open('/proc/self/stat').read().rpartition(')')[2].split()\n"
        "boot = open('/proc/sys/kernel/random/boot_id').read().strip()\n"
        "while not os.path.exists('child') or not open('child').read(): time.sleep(0.01)\n"
        "open('.agent', 'w').write(json.dumps({'pid': os.getpid(), 'start_time': int(fields[19]), 'boot_id': boot}))\n"
        "os.rename('.agent', 'agent.json')\n"
        "time.sleep(600)\n"
    )
    return Launch(argv=("{python}", str(script)), files={})


async def test_terminate_finds_what_left_the_session_and_ignores_signals(
    provider: LocalProvider, runaway: Launch, tmp_path: Path
) -> None:
    token = new_node_token("abcdef")
    offer = (await provider.offers(OfferQuery()))[0]
    handle = await provider.create(Intent(token, {}, offer, runaway, 0, 1))
    folder = folders.find(tmp_path / "nodes", handle)
    await _until(lambda: (folder.path / "agent.json").exists())
    child = identify(int((folder.path / "child").read_text()))
    assert child is not None

    ended = await provider.terminate(handle)

    assert ended is True
    assert not is_alive(child)
    assert folder.remains() == []


async def test_a_launch_that_fails_is_told_with_its_last_words(provider: LocalProvider) -> None:
    launch = Launch(argv=("{python}", "-c", "import sys; sys.exit('no disk')"), files={})
    offer = (await provider.offers(OfferQuery()))[0]

    with pytest.raises(ProviderError, match="no disk") as caught:
        await provider.create(Intent(new_node_token("abcdef"), {}, offer, launch, 0, 1))

    assert caught.value.fault is Fault.TRANSIENT
    assert not caught.value.may_have_created


async def test_agents_inherit_no_setting_of_the_service(
    provider: LocalProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHUNTER_DATABASE_URL", "postgresql://u:secret@db/shunter")
    monkeypatch.setenv("CELERY_LOG_LEVEL", "20")
    monkeypatch.setenv("HARMLESS", "yes")
    launch = Launch(argv=("{python}", "-c", "import os; open('env', 'w').write(repr(dict(os.environ)))"), files={})
    token = new_node_token("abcdef")

    await provider.create(Intent(token, {}, (await provider.offers(OfferQuery()))[0], launch, 0, 1))

    seen = (folders.find(tmp_path / "nodes", token).path / "env").read_text()
    assert "HARMLESS" in seen
    assert "secret" not in seen
    assert "CELERY" not in seen
    assert f"'LOCAL_SHUNTER_NODE': '{token}'" in seen


async def test_a_launch_file_cannot_leave_its_folder(provider: LocalProvider, tmp_path: Path) -> None:
    launch = Launch(argv=("true",), files={"../escaped": b"x"})

    with pytest.raises(ProviderError, match="outside"):
        await provider.create(
            Intent(new_node_token("abcdef"), {}, (await provider.offers(OfferQuery()))[0], launch, 0, 1)
        )

    assert not (tmp_path / "nodes" / "escaped").exists()


async def test_old_folders_of_dead_nodes_are_removed(provider: LocalProvider, tmp_path: Path) -> None:
    launch = Launch(argv=("true",), files={"file": b"x"})
    offer = (await provider.offers(OfferQuery()))[0]
    old, new = new_node_token("abcdef"), new_node_token("abcdef")
    for token in (old, new):
        await provider.create(Intent(token, {}, offer, launch, 0, 1))
    long_ago = time.time() - 100_000
    for path in (*folders.find(tmp_path / "nodes", old).path.iterdir(), folders.find(tmp_path / "nodes", old).path):
        os.utime(path, (long_ago, long_ago))

    folders.tidy(tmp_path / "nodes", keep_s=86_400)

    assert not folders.find(tmp_path / "nodes", old).path.exists()
    assert folders.find(tmp_path / "nodes", new).path.exists()


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"cpu_slots": 0}, "cpu_slots"),
        ({"cpu_slots": "many"}, "cpu_slots"),
        ({"cpus": 4}, "cpus"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ProviderError, match=named) as caught:
        LocalProvider(instance(tmp_path, **settings))

    assert caught.value.fault is Fault.INVALID


NVIDIA_SMI = """\
0, NVIDIA H100 80GB HBM3, 81559
1, NVIDIA H100 80GB HBM3, 81559
2, NVIDIA GeForce RTX 4090, 24564
3, Tesla T4, 15360
4, NVIDIA A100-SXM4-40GB, 40960
a line of warning
"""


def test_gpus_are_read_by_their_nominal_size() -> None:
    gpus = parse_gpus(NVIDIA_SMI)

    assert [(gpu.index, gpu.model, gpu.memory_gib) for gpu in gpus] == [
        (0, "H100", 80.0),
        (1, "H100", 80.0),
        (2, "RTX-4090", 24.0),
        (3, "T4", 16.0),
        (4, "A100", 40.0),
    ]


def test_each_gpu_model_is_an_offer_of_its_own_slots(tmp_path: Path) -> None:
    machine = Machine(cpus=16, memory_gib=64.0, disk_gib=500.0, gpus=parse_gpus(NVIDIA_SMI))
    settings = read_settings(instance(tmp_path, cpu_slots=4))

    offers = make_offers(machine, settings)

    assert [(offer.instance_type, offer.gpus, offer.cpu_slots, tuple(offer.slot_indices)) for offer in offers] == [
        ("cpu", 0, 4, ()),
        ("gpu-A100", 1, 0, (4,)),
        ("gpu-H100", 2, 0, (0, 1)),
        ("gpu-RTX-4090", 1, 0, (2,)),
        ("gpu-T4", 1, 0, (3,)),
    ]


def test_gpus_can_be_kept_out(tmp_path: Path) -> None:
    machine = Machine(cpus=16, memory_gib=64.0, disk_gib=500.0, gpus=parse_gpus(NVIDIA_SMI))

    offers = make_offers(machine, read_settings(instance(tmp_path, use_gpus=False)))

    assert [offer.instance_type for offer in offers] == ["cpu"]


def test_a_reused_pid_is_another_process() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    known = identify(process.pid)
    assert known is not None

    imposter = replace(known, start_time=known.start_time - 1)

    assert is_alive(known)
    assert not is_alive(imposter)
    process.communicate(b"\n")


def test_a_zombie_is_dead() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    known = identify(process.pid)
    assert known is not None
    assert process.stdin is not None

    process.stdin.close()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    assert not is_alive(known)
    process.wait()


async def _until(done: Any, within_s: float = 5.0) -> None:
    give_up_at = time.monotonic() + within_s
    while not done():
        assert time.monotonic() < give_up_at
        await asyncio.sleep(0.01)
