"""The surface of the command line: which commands there are, and that all of them take the common options."""

import json
from pathlib import Path

import pytest
from shunter.cli import roles
from shunter.cli.main import app
from support.api_process import ApiProcess
from support.command_line import shunter, written
from typer.main import get_command

ROLES = set(roles.ROLES)
COMMANDS = get_command(app).commands  # type: ignore[attr-defined]  # a group
OURS = sorted(COMMANDS.keys() - ROLES - {"completion"})


def test_the_commands_are_a_closed_list() -> None:
    assert set(COMMANDS) == {
        *("submit", "run", "jobs", "job", "why", "watch", "cancel", "retry", "pause", "resume", "checkpoint", "update"),
        *("move", "receipt", "billing", "costs", "reaping", "backup", "restore", "migrate"),
        *(
            "delete",
            "validate",
            "plan",
            "rehearse",
            "diff",
            "schema",
            "init",
            "logs",
            "events",
            "metrics",
            "checkpoints",
            "artifacts",
            "ssh",
            "debug",
        ),
        *("providers", "offers", "doctor", "completion", "up", "service", "worker", "keys", "provider", "activity"),
    }


@pytest.mark.parametrize("name", OURS)
def test_every_command_takes_the_common_options_and_explains_itself(name: str) -> None:
    options = {option for parameter in COMMANDS[name].params for option in parameter.opts}

    assert {"--url", "--api-key", "--data-dir", "--json", "--output", "--verbose"} <= options
    assert COMMANDS[name].help


@pytest.mark.parametrize("name", OURS)
def test_every_option_of_a_command_has_a_help_text(name: str) -> None:
    silent = [parameter.name for parameter in COMMANDS[name].params if not parameter.help]

    assert silent == []


def test_output_json_is_json_and_wide_shows_more(cli_environment: ApiProcess, tmp_path: Path) -> None:
    job_id = shunter("submit", written(tmp_path)).stdout.strip()
    part = cli_environment.worker_part(job_id)
    part.run()
    part.print("hello\n")
    part.leave("a.txt", b"a")

    for command in (["jobs"], ["job", job_id], ["logs", job_id], ["artifacts", job_id], ["providers"]):
        plain, wide = shunter(*command).stdout, shunter(*command, "-o", "wide").stdout

        assert json.loads(shunter(*command, "--output", "json").stdout) is not None
        assert len(wide) >= len(plain)
    assert "[1.0 0 stdout] hello" in shunter("logs", job_id, "-o", "wide").stdout
    assert "FINISHED" in shunter("jobs", "-o", "wide").stdout
    assert "CAPABILITIES" in shunter("providers", "-o", "wide").stdout
