"""What a shell completes: commands, options, states, and the ids of jobs."""

import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from shunter import Client
from support.api_process import ApiProcess
from support.documents import tiny_lm
from support.screens import Screen
from support.waiting import wait_until


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """An environment in which `shunter` is a program on the path."""
    program = tmp_path / "bin" / "shunter"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m shunter "$@"\n')
    program.chmod(0o700)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SHUNTER_")}
    return {**kept, "PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}


def completed(environment: dict[str, str], *words: str) -> list[str]:
    """What bash offers for the last word, by the script that `shunter completion bash` prints."""
    bash = shutil.which("bash")
    assert bash
    script = (
        'eval "$(shunter completion bash)"\n'
        f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}\n"
        'complete -p shunter >/dev/null && _shunter_completion shunter; printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run([bash, "-c", script], env=environment, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.split()


def test_commands_options_and_states_are_completed(shell: dict[str, str]) -> None:
    assert completed(shell, "shunter", "ca") == ["cancel"]
    assert completed(shell, "shunter", "jobs", "--stat") == ["--state"]
    assert completed(shell, "shunter", "jobs", "--state", "r") == ["running", "recovering"]


def test_ids_of_jobs_are_completed_from_the_service(
    shell: dict[str, str], api: ApiProcess, blocking_client: Client
) -> None:
    job_id = blocking_client.submit(tiny_lm()).id

    offered = completed({**shell, "SHUNTER_DATA_DIR": str(api.data_dir)}, "shunter", "watch", job_id[:-3])

    assert job_id in offered


def test_without_a_service_nothing_is_completed_and_nothing_is_said(shell: dict[str, str], tmp_path: Path) -> None:
    assert completed({**shell, "SHUNTER_DATA_DIR": str(tmp_path)}, "shunter", "watch", "job_") == []


def test_fish_completes_commands_and_states(shell: dict[str, str]) -> None:
    script = 'shunter completion fish | source; complete -C "shunter ca"; complete -C "shunter jobs --state r"'

    done = subprocess.run([program("fish"), "-c", script], env=shell, capture_output=True, text=True, timeout=90)

    words = [line.split("\t")[0] for line in done.stdout.splitlines()]
    assert words == ["cancel", "recovering", "running"], done.stderr


def test_zsh_completes_a_command_on_a_terminal(shell: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / ".zshrc").write_text(
        'PS1="ready> "\nautoload -U compinit\ncompinit -u\neval "$(shunter completion zsh)"\n'
    )
    master, slave = pty.openpty()
    environment = {**shell, "TERM": "dumb", "ZDOTDIR": str(tmp_path)}
    with subprocess.Popen([program("zsh"), "-i"], env=environment, stdin=slave, stdout=slave, stderr=slave) as zsh:
        os.close(slave)
        screen = Screen(master)
        wait_until(lambda: "ready> " in screen.read(), timeout_s=30, description="zsh asks for a command")

        os.write(master, b"shunter ca\t")

        wait_until(lambda: "shunter cancel " in screen.read(), timeout_s=30, description="the command is completed")
        zsh.kill()
    os.close(master)


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed; the longer suites install it")
    return found
