"""What a machine is told at its first boot of its own end."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from shunter_agent.keeping.clock import boot_id
from shunter_providers.cloud_kit.boot import cloud_init
from shunter_providers.contract import Intent, Launch, Offer, Price

INTENT = Intent(
    "shn-a-b", {}, Offer("a", "here", "DE", Price()), Launch((), {}), rank=0, gang_size=1, public_key="ssh-ed25519 A"
)


def told(alone_s: float | None, spared_boot_id: str) -> list[str]:
    """Commands of a machine's first boot."""
    text = cloud_init(replace(INTENT, alone_s=alone_s, spared_boot_id=spared_boot_id))
    assert text is not None
    return [command[2] for command in json.loads(text.partition("\n")[2]).get("runcmd", [])]


@pytest.mark.parametrize(
    ("spared", "running", "ends"),
    [
        ("another machine's", "sshd", True),
        ("another machine's", "python3\0agent.pyz\0start", False),
        (boot_id(), "sshd", False),
    ],
    ids=["nobody came", "an agent runs", "the worker's own"],
)
def test_a_machine_to_which_nobody_came_ends_itself(spared: str, running: str, ends: bool, tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1/cmdline").write_text(running)
    power_off = tmp_path / "poweroff"
    power_off.write_text(f"#!/bin/sh\ntouch {tmp_path}/off\n")
    power_off.chmod(0o755)
    [command] = told(0.0, spared)

    # The command goes on in the background, and the end of its output is its own.
    subprocess.run(
        ["sh", "-c", command.replace("/proc/[0-9]", f"{tmp_path}/[0-9]")],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        check=True,
    )

    assert (tmp_path / "off").exists() is ends


@pytest.mark.parametrize(("alone_s", "spared"), [(None, "another machine's"), (60.0, "")])
def test_it_is_told_nothing_of_the_kind_where_that_would_save_nothing_or_might_hit_the_worker(
    alone_s: float | None, spared: str
) -> None:
    assert told(alone_s, spared) == []
