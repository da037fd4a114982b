"""Backup and restore of the embedded default: consistent while it is used, whole or not at all, and told what it is."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from shunter_service.backups import backup, manifest, migrate, restore
from shunter_service.backups.manifest import BadBackup
from shunter_service.prepare import prepare
from shunter_service.up.lock import AlreadyUp, Lock
from shunter_store.installation import api_keys, deployment
from shunter_store.installation.settings import DataSettings
from shunter_store.job import jobs
from shunter_store.migrate import head_revision
from shunter_store.report import artifacts
from shunter_store.sql.database import Database
from shunter_store.storage import bundles
from shunter_store.storage.objects import ObjectStore
from support.store_rows import new_job, reread


@pytest.fixture
def data(tmp_path: Path) -> DataSettings:
    """A prepared data directory with a job and what it left."""
    made = DataSettings(data_dir=tmp_path / "data")
    prepare(made)
    (made.data_dir / "signing-key").write_text("a secret\n")
    (made.data_dir / "shunter.toml").write_text("reaping = 'end'\n")
    leave(made, "first", b"one")
    return made


def opened(data: DataSettings) -> Any:
    return closing(Database.connect(data.database_url, readers=1))


def leave(data: DataSettings, name: str, content: bytes) -> str:
    """A job with an artifact."""
    with opened(data) as database:
        job = new_job(database, name=name)
        key = f"{job.id}/1/artifacts/out"
        ObjectStore(data.objects_url).put(key, [content])
        database.write(
            lambda conn: artifacts.put(
                conn, job.id, "out", generation=1, size=len(content), sha256="0" * 64, object=key
            )
        )
        return job.id


def names(data: DataSettings) -> list[str]:
    with opened(data) as database:
        rows = database.read(lambda conn: conn.exec_driver_sql("SELECT name FROM jobs ORDER BY name").scalars().all())
        return list(rows)


def test_a_backup_restores_to_what_it_was(data: DataSettings, tmp_path: Path) -> None:
    backup.back_up(data, tmp_path / "backup")
    leave(data, "later", b"two")

    restore.restore(tmp_path / "backup", tmp_path / "again")

    again = DataSettings(data_dir=tmp_path / "again")
    assert names(again) == ["first"]
    with opened(again) as database:
        key = database.read(lambda conn: api_keys.find(conn, (again.data_dir / "api-key").read_text().strip()))
        mark, old = database.read(deployment.find), None
    with opened(data) as database:
        old = database.read(deployment.find)
    assert key is not None
    assert (again.data_dir / "signing-key").read_text() == "a secret\n"
    assert oct((again.data_dir / "signing-key").stat().st_mode)[-3:] == "600"
    assert mark is not None
    assert old is not None
    assert (mark.id, mark.reaping_is_held) == (old.id, True), "its nodes are known again; strangers are only reported"
    assert "restored from a backup" in (mark.held_reason or "")
    objects = ObjectStore(again.objects_url)
    [stored] = (again.data_dir / "objects").rglob("out")
    assert b"".join(objects.open_range(str(stored.relative_to(again.data_dir / "objects")))) == b"one"


def test_a_backup_is_consistent_while_jobs_are_accepted_and_files_arrive(data: DataSettings, tmp_path: Path) -> None:
    """Every object that the copied database speaks of is in the backup, whenever it came."""
    stop = threading.Event()
    made: list[str] = []

    def write() -> None:
        while not stop.is_set():
            made.append(leave(data, f"job {len(made)}", b"x" * 1000))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        found = [backup.back_up(data, tmp_path / f"backup-{number}") for number in range(3)]
    finally:
        stop.set()
        writer.join()

    counts = [sum(path.endswith("/out") for path in one.files) for one in found]
    for number in range(3):
        restore.restore(tmp_path / f"backup-{number}", tmp_path / f"again-{number}")
        again = DataSettings(data_dir=tmp_path / f"again-{number}")
        with opened(again) as database:
            rows = database.read(lambda conn: conn.exec_driver_sql("SELECT object FROM artifacts").scalars().all())
        assert rows
        assert all(ObjectStore(again.objects_url).exists(key) for key in rows)
        assert len(names(again)) <= counts[number] + 1
    assert made, "somebody wrote meanwhile"


def test_an_object_that_the_database_speaks_of_and_nobody_has_refuses_the_backup(
    data: DataSettings, tmp_path: Path
) -> None:
    with opened(data) as database:
        database.write(lambda conn: bundles.put(conn, "f" * 64, 1, 1))

    with pytest.raises(backup.Refused, match="lacks 1 objects"):
        backup.back_up(data, tmp_path / "backup")

    assert list(tmp_path.iterdir()) == [data.data_dir], "nothing half is left"


def test_a_backup_takes_no_folder_that_exists(data: DataSettings, tmp_path: Path) -> None:
    (tmp_path / "backup").mkdir()

    assert backup.run([str(tmp_path / "backup"), "--data-dir", str(data.data_dir)]) == 2
    assert list((tmp_path / "backup").iterdir()) == []


def test_a_data_directory_without_a_database_is_no_backup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()

    code = backup.run([str(tmp_path / "backup"), "--data-dir", str(tmp_path / "empty")])

    assert code == 2
    assert "there is no database" in capsys.readouterr().err


def rewritten(folder: Path, **changes: Any) -> None:
    found = json.loads((folder / manifest.FILE).read_text())
    (folder / manifest.FILE).write_text(json.dumps({**found, **changes}))


def flip(folder: Path) -> None:
    [file] = (folder / "objects").rglob("out")
    file.write_bytes(b"ONE")


def lose(folder: Path) -> None:
    (folder / "shunter.db").unlink()


def link(folder: Path) -> None:
    (folder / "shunter.db").unlink()
    (folder / "shunter.db").symlink_to("/etc/passwd")


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda folder: (folder / manifest.FILE).unlink(), "is no backup: it has no manifest.json"),
        (lambda folder: (folder / manifest.FILE).write_text("{"), "cannot be read"),
        (lambda folder: rewritten(folder, kind="other"), "is no backup of Shunter"),
        (lambda folder: rewritten(folder, format=2, shunter="9.9"), "format 2.*made by Shunter 9.9"),
        (lambda folder: rewritten(folder, schema="9999", shunter="9.9"), "schema 9999.*9.9: restore it with"),
        (lambda folder: rewritten(folder, files={}), "holds no database"),
        (lambda folder: rewritten(folder, files={"../../etc/x": {"size": 1, "sha256": "0"}}), "names '../../etc/x'"),
        (lambda folder: rewritten(folder, files={"/etc/x": {"size": 1, "sha256": "0"}}), "names '/etc/x'"),
        (lambda folder: rewritten(folder, files=[1]), "is not whole"),
        (flip, "out holds other bytes"),
        (lose, "shunter.db is missing"),
        (link, "shunter.db is missing"),
    ],
)
def test_what_is_foreign_newer_or_damaged_is_refused_and_nothing_is_made(
    data: DataSettings, tmp_path: Path, harm: Callable[[Path], Any], words: str
) -> None:
    backup.back_up(data, tmp_path / "backup")
    harm(tmp_path / "backup")

    with pytest.raises(BadBackup, match=words):
        restore.restore(tmp_path / "backup", tmp_path / "again")

    assert not (tmp_path / "again" / "shunter.db").exists()


def test_a_data_directory_in_use_is_not_overwritten(data: DataSettings, tmp_path: Path) -> None:
    backup.back_up(data, tmp_path / "backup")
    other = tmp_path / "other"
    other.mkdir()
    lock = Lock(other / "up.lock")

    with pytest.raises(restore.Refused, match="holds a database already"):
        restore.restore(tmp_path / "backup", data.data_dir)
    with pytest.raises(AlreadyUp):
        restore.restore(tmp_path / "backup", other)

    lock.release()
    assert names(data) == ["first"]


def test_a_restore_that_was_killed_in_the_middle_is_done_again(data: DataSettings, tmp_path: Path) -> None:
    backup.back_up(data, tmp_path / "backup")
    again = tmp_path / "again"
    again.mkdir()
    (again / "restoring.db").write_bytes(b"half of it")
    (again / "api-key").write_text("half")
    (again / "objects").mkdir()

    restore.restore(tmp_path / "backup", again)

    assert names(DataSettings(data_dir=again)) == ["first"]
    assert sorted(path.name for path in again.iterdir()) == sorted(
        ["api-key", "objects", "shunter.db", "shunter.toml", "signing-key", "up.lock"]
    )


def test_a_backup_of_an_older_schema_is_brought_up_to_date(data: DataSettings, tmp_path: Path) -> None:
    assert migrate.run(["--to", "0003", "--data-dir", str(data.data_dir)]) == 0
    source, folder = data.data_dir, tmp_path / "backup"
    folder.mkdir()
    shutil.copytree(source / "objects", folder / "objects")
    shutil.copyfile(source / "shunter.db", folder / "shunter.db")
    files = {
        path.relative_to(folder).as_posix(): manifest.entry_of(path) for path in folder.rglob("*") if path.is_file()
    }
    manifest.Manifest("0.0", "0003", "abcdef", "2026-11-30T00:00:00Z", files=files).write(folder)

    restore.restore(folder, tmp_path / "again")

    again = DataSettings(data_dir=tmp_path / "again")
    assert names(again) == ["first"]
    with opened(again) as database:
        assert database.read(deployment.find).reaping_is_held
        assert database.read(lambda conn: jobs.get(conn, new_job(database).id)).document_version == 1


def test_the_schema_goes_back_and_forward_by_command(data: DataSettings, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--data-dir", str(data.data_dir)]

    codes = [migrate.run(["--to", to, *where]) for to in ("0001", head_revision(), "8888")]

    assert codes == [0, 0, 2]
    assert "no way back from schema" in capsys.readouterr().err
    with opened(data) as database:
        [job_id] = database.read(lambda conn: conn.exec_driver_sql("SELECT id FROM jobs").scalars().all())
        assert reread(database, job_id).name == "first"
