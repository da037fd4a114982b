"""No word of a user ever becomes part of a command: the host's side is started by a real shell and checked there."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shunter_providers.ssh.calling import command_line, prologue

HOSTILE = [
    "$(touch HIT)",
    "`touch HIT`",
    "; touch HIT",
    "'; touch HIT; '",
    '"; touch HIT; "',
    "\n touch HIT\n",
    "| touch HIT",
]
WORDS = st.one_of(
    st.sampled_from(HOSTILE), st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]))
)
NAMES = st.from_regex(r"[A-Z_][A-Z0-9_]{0,20}", fullmatch=True)
TELL = "import json, os, sys; json.dump([sys.argv[1:], dict(os.environ)], open('told', 'w'))"


def call(request: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The host's side as sshd would start it: the command line in a shell, everything else on standard input."""
    done = subprocess.run(
        ["/bin/sh", "-c", command_line(sys.executable)],
        input=prologue({"base": str(folder / "base"), **request}),
        cwd=folder,
        capture_output=True,
        timeout=60,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.split(b"shunter-answer ")[-1])
    return found


def launch(folder: Path, argv: list[str], environment: dict[str, str], files: dict[str, str]) -> dict[str, Any]:
    return call(
        {
            "op": "launch",
            "token": "shn-abc-1",
            "handle": "shn-abc-1@host",
            "own_machine": True,
            "files": {name: {"content": base64.b64encode(text.encode()).decode()} for name, text in files.items()},
            "argv": ["{python}", "-I", "-c", TELL, *argv],
            "environment": environment,
        },
        folder,
    )


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(argv=st.lists(WORDS, max_size=4), values=st.dictionaries(NAMES, WORDS, max_size=4))
def test_arguments_and_variables_arrive_as_they_are(argv: list[str], values: dict[str, str]) -> None:
    with TemporaryDirectory() as made:
        folder = Path(made)
        values = {
            name: value for name, value in values.items() if not name.startswith(("SHUNTER", "SSH", "LC_", "PYTHON"))
        }

        answer = launch(folder, argv, values, {})

        node = folder / "base" / "nodes" / "shn-abc-1"
        assert "ok" in answer, answer
        told_argv, told_environment = json.loads((node / "told").read_text())
        assert told_argv == [word.replace("{python}", sys.executable) for word in argv]
        assert {name: told_environment.get(name) for name in values} == values
        assert not list(folder.rglob("HIT"))


@pytest.mark.parametrize(
    "name", ["../out", "/tmp/out", "a/b", "", ".", "..", ".hidden", "-x", "a\nb", "x" * 300, "$(touch HIT)"]
)
def test_a_launch_file_cannot_lie_outside_its_folder(tmp_path: Path, name: str) -> None:
    answer = launch(tmp_path, [], {}, {name: "content"})

    assert answer["refused"] == "invalid"
    assert "outside its folder" in answer["detail"]
    assert not list(tmp_path.rglob("out"))
    assert not list(tmp_path.rglob("HIT"))


@pytest.mark.parametrize("token", ["../x", "/etc", "A", "a b", "a;b", "x" * 41, "", "a\n"])
@pytest.mark.parametrize("op", ["view", "end", "launch", "point"])
def test_a_word_that_is_no_token_becomes_no_path(tmp_path: Path, op: str, token: str) -> None:
    answer = call({"op": op, "token": token, "url": "x", "files": {}, "argv": [], "environment": {}}, tmp_path)

    assert answer["refused"] == "invalid"
    assert sorted(path.name for path in (tmp_path / "base" / "nodes").iterdir()) == []


@pytest.mark.parametrize("digest", ["../lock", "0" * 63, "g" * 64, "0" * 64 + "/x", ""])
def test_a_word_that_is_no_digest_becomes_no_path(tmp_path: Path, digest: str) -> None:
    answer = call({"op": "have", "digests": [digest]}, tmp_path)

    assert answer["refused"] == "invalid"


def test_a_key_with_options_or_lines_of_its_own_is_refused(tmp_path: Path) -> None:
    (tmp_path / "base/nodes/shn-abc-1").mkdir(parents=True)
    good = "ssh-ed25519 " + "A" * 68
    keys = tmp_path / "keys"
    request = {"op": "allow", "token": "shn-abc-1", "expires_at": 2e9, "authorized_keys": str(keys)}

    for bad in (f'command="touch HIT" {good}', f"{good}\n{good}", f"{good} comment", "", "ssh-ed25519 x", f"{good}\0"):
        assert call({**request, "public_key": bad}, tmp_path)["refused"] == "invalid"
    granted = call({**request, "public_key": good}, tmp_path)

    assert "ok" in granted, granted
    (line,) = keys.read_text().splitlines()
    assert line.startswith('restrict,pty,expiry-time="2')
    assert line.endswith(f"{good} shunter-access:shn-abc-1")
    assert keys.stat().st_mode & 0o777 == 0o600


def test_keys_that_were_there_before_stay_when_ours_go(tmp_path: Path) -> None:
    (tmp_path / "base/nodes/shn-abc-1").mkdir(parents=True)
    keys = tmp_path / "keys"
    keys.write_text("ssh-ed25519 OWN me@home\n")
    request = {"token": "shn-abc-1", "authorized_keys": str(keys)}

    call({"op": "allow", "public_key": "ssh-ed25519 " + "A" * 68, "expires_at": 2e9, **request}, tmp_path)
    during = keys.read_text()
    call({"op": "revoke", **request}, tmp_path)

    assert len(during.splitlines()) == 2
    assert keys.read_text() == "ssh-ed25519 OWN me@home\n"


def test_the_command_line_holds_nothing_but_the_path_of_python_quoted() -> None:
    line = command_line("/opt/my python'; touch HIT; '/bin/python3")

    done = subprocess.run(["/bin/sh", "-c", line], input=b"", capture_output=True, timeout=30, check=False)

    assert done.returncode == 127
    assert command_line("python3").startswith("python3 -I -c 'import sys;exec(")
    assert "\n" not in command_line("python3")
    assert "!" not in command_line("python3")
