"""The README's section on one's own hosts works as it is written, against a host in namespaces."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from shunter_providers.contract import Instance
from shunter_providers.ssh.settings import read_settings
from support.control_plane import plain
from support.documents import REPOSITORY
from support.hosts import Pool, make_pool
from support.up_process import running_up

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    with make_pool(tmp_path_factory.mktemp("pool"), 1) as made:
        yield made


def test_a_reader_of_the_readme_runs_a_job_on_a_host(pool: Pool, tmp_path: Path) -> None:
    (host,) = pool.hosts
    (write,), (use,) = blocks("own hosts"), blocks("on own hosts")
    write = write.replace("10.0.0.11", host.address).replace("ssh-ed25519 AAAA...", host.host_key)
    write = write.replace("~/.ssh/id_ed25519", str(pool.client_key))
    (tmp_path / "job.yaml").write_text(json.dumps(plain("hostname")))  # JSON is YAML

    wrote = in_bash(write, tmp_path)
    with running_up(tmp_path / ".shunter"):
        used = in_bash(use, tmp_path)

    assert wrote.returncode == 0, wrote.stderr
    assert used.returncode == 0, used.stderr
    assert "pool" in used.stdout
    assert host.name in used.stdout + used.stderr


def test_the_settings_of_the_page_are_those_that_the_plugin_takes(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs/operating/own-hosts.md").read_text()
    (shown,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    written = tomllib.loads(shown)["providers"]["pool"]

    settings = read_settings(Instance("pool", written["plugin"], written["settings"], str(tmp_path)))

    assert [host.name for host in settings.hosts] == ["gpu-1", "gpu-2"]
    assert settings.endpoint(settings.hosts[1]).via is not None
    for model in (type(settings), type(settings.hosts[0])):
        for name in model.model_fields:
            assert f"`{name}`" in page or f"{name} =" in shown or name in ("hosts", "jump_hosts"), name


def blocks(mark: str) -> list[str]:
    page = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"<!-- run: {mark} -->\n```sh\n(.*?)```", page, re.DOTALL)


def in_bash(block: str, folder: Path) -> subprocess.CompletedProcess[str]:
    bash = shutil.which("bash")
    assert bash
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SHUNTER_")}
    environment = {**kept, "PATH": f"{Path(sys.executable).parent}:{kept['PATH']}"}
    argv = [bash, "-euo", "pipefail", "-c", block]
    return subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=200, check=False)
