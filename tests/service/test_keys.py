"""Keys are listed, made and revoked on the machine of the database, whether the service runs or not."""

import json
from pathlib import Path

import httpx
import pytest
from shunter_service import keys
from shunter_service.prepare import prepare
from shunter_store.installation import api_keys
from shunter_store.installation.settings import DataSettings
from shunter_store.sql.database import Database
from support.api_process import running_api

Say = pytest.CaptureFixture[str]


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A data directory that is prepared."""
    prepare(DataSettings(data_dir=tmp_path))
    return tmp_path


def said(capsys: Say, data_dir: Path, *arguments: str) -> tuple[int, str, str]:
    """The exit code, and what a command said on both outputs."""
    code = keys.run([*arguments, "--data-dir", str(data_dir)])
    output = capsys.readouterr()
    return code, output.out, output.err


def is_let_in(data_dir: Path, secret: str) -> bool:
    db = Database.connect(DataSettings(data_dir=data_dir).database_url, readers=1)
    try:
        return db.read(lambda conn: api_keys.find(conn, secret)) is not None
    finally:
        db.close()


def test_a_key_is_made_listed_and_revoked(data_dir: Path, capsys: Say) -> None:
    _, secret, _ = said(capsys, data_dir, "create", "ci", "--scope", "jobs:read")
    let_in = is_let_in(data_dir, secret.strip())
    _, listed, _ = said(capsys, data_dir, "list")
    code, revoked, _ = said(capsys, data_dir, "revoke", "ci")

    assert let_in
    assert secret.startswith("shk_")
    assert secret.strip() not in listed
    assert [line.split()[1:4] for line in listed.splitlines()[1:]] == [
        ["local", "default", "admin,jobs:read,jobs:write"],
        ["ci", "default", "jobs:read"],
    ]
    assert f"in {data_dir}/api-key" in listed.splitlines()[1]
    assert (code, revoked.split()[1]) == (0, "revoked;")
    assert not is_let_in(data_dir, secret.strip())


def test_revoking_the_key_of_the_data_directory_puts_a_new_one_in_its_place(data_dir: Path, capsys: Say) -> None:
    before = (data_dir / "api-key").read_text().strip()

    code, output, _ = said(capsys, data_dir, "revoke", "local")
    after = (data_dir / "api-key").read_text().strip()

    assert code == 0
    assert "holds a new key now" in output
    assert after != before
    assert (data_dir / "api-key").stat().st_mode & 0o777 == 0o600
    assert (is_let_in(data_dir, before), is_let_in(data_dir, after)) == (False, True)


def test_a_key_file_that_was_deleted_leaves_an_old_key_that_can_be_revoked_by_its_id(
    data_dir: Path, capsys: Say
) -> None:
    old = (data_dir / "api-key").read_text().strip()
    (data_dir / "api-key").unlink()
    prepare(DataSettings(data_dir=data_dir))

    code, _, complaint = said(capsys, data_dir, "revoke", "local")
    by_id, _, _ = said(capsys, data_dir, "revoke", api_keys.id_of(old))

    assert (code, by_id) == (2, 0)
    assert "2 keys have the name `local`; say which: " in complaint
    assert not is_let_in(data_dir, old)
    assert is_let_in(data_dir, (data_dir / "api-key").read_text().strip())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["revoke", "nobody"], "there is no key `nobody`; `shunter keys list` shows them"),
        (["create", "local"], "there is a key `local` already"),
    ],
)
def test_what_cannot_be_done_is_said(data_dir: Path, capsys: Say, arguments: list[str], complaint: str) -> None:
    code, _, error = said(capsys, data_dir, *arguments)

    assert code == 2
    assert complaint in error


@pytest.mark.parametrize(
    ("folder", "complaint"), [("", "not up to date"), ("nowhere", "the database cannot be used: ")]
)
def test_a_database_that_is_not_there_is_said(tmp_path: Path, capsys: Say, folder: str, complaint: str) -> None:
    code, _, error = said(capsys, tmp_path / folder, "list")

    assert code == 2
    assert complaint in error
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("name", ["", " ", "a\x1b[2Jb", "n" * 101])
def test_a_name_that_cannot_be_shown_is_refused(data_dir: Path, capsys: Say, name: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        keys.run(["create", name, "--data-dir", str(data_dir)])

    assert "is no name" in capsys.readouterr().err


def test_programs_get_json(data_dir: Path, capsys: Say) -> None:
    made = json.loads(said(capsys, data_dir, "create", "ci", "--json")[1])
    listed = json.loads(said(capsys, data_dir, "list", "--json")[1])
    revoked = json.loads(said(capsys, data_dir, "revoke", made["id"], "--json")[1])

    assert [(key["name"], key["in_data_dir"]) for key in listed] == [("local", True), ("ci", False)]
    assert revoked == {"revoked": made["id"]}


def test_a_running_service_takes_a_new_key_at_once(tmp_path: Path, capsys: Say) -> None:
    with running_api(tmp_path) as api:
        secret = said(capsys, tmp_path, "create", "ci")[1].strip()
        answer = httpx.get(f"{api.url}/v1/me", headers={"Authorization": f"Bearer {secret}"}, trust_env=False)

    assert answer.json()["name"] == "ci"
