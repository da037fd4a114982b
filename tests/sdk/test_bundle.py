import os
import socket
import tarfile
from pathlib import Path

import pytest
from shunter.bundle import pack
from shunter.errors import BundleRefused


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def names_in(folder: Path) -> list[str]:
    with pack(folder) as bundle, tarfile.open(bundle.path) as archive:
        return archive.getnames()


def contents_of(folder: Path) -> dict[str, str]:
    with pack(folder) as bundle, tarfile.open(bundle.path) as archive:
        streams = {m.name: archive.extractfile(m) for m in archive.getmembers() if m.isfile()}
        return {name: stream.read().decode() for name, stream in streams.items() if stream}


def test_the_same_files_make_the_same_bytes_wherever_and_whenever_they_lie(tmp_path: Path) -> None:
    here = write(tmp_path / "here", {"train.py": "print(1)", "pkg/a.py": "a", "pkg/b.py": "b"})
    there = write(tmp_path / "there", {"pkg/b.py": "b", "pkg/a.py": "a", "train.py": "print(1)"})
    os.utime(there / "train.py", (1, 1))
    (there / "pkg" / "a.py").chmod(0o600)

    with pack(here) as one, pack(there) as two:
        assert one.digest == two.digest
        assert one.path.read_bytes() == two.path.read_bytes()


def test_a_changed_byte_changes_the_digest(tmp_path: Path) -> None:
    folder = write(tmp_path, {"train.py": "print(1)"})
    with pack(folder) as before:
        pass

    write(tmp_path, {"train.py": "print(2)"})

    with pack(folder) as after:
        assert after.digest != before.digest


def test_the_archive_carries_no_owner_and_no_time_but_the_executable_bit(tmp_path: Path) -> None:
    folder = write(tmp_path, {"run.sh": "true", "notes.txt": "-"})
    (folder / "run.sh").chmod(0o755)

    with pack(folder) as bundle, tarfile.open(bundle.path) as archive:
        members = {m.name: m for m in archive.getmembers()}

    assert {(m.uid, m.gid, m.uname, m.gname, m.mtime) for m in members.values()} == {(0, 0, "", "", 0)}
    assert members["run.sh"].mode == 0o755
    assert members["notes.txt"].mode == 0o644


def test_sizes_are_those_of_the_files_and_of_the_archive(tmp_path: Path) -> None:
    folder = write(tmp_path, {"a": "x" * 5000, "b/c": "y" * 7000})

    with pack(folder) as bundle:
        assert (bundle.files, bundle.content_bytes) == (2, 12_000)
        assert bundle.size_bytes == bundle.path.stat().st_size < 2000
        assert b"".join(bundle.chunks()) == bundle.path.read_bytes()
    assert not bundle.path.exists()


@pytest.mark.parametrize(
    ("ignores", "kept"),
    [
        ({".gitignore": "*.log\nbuild/\n"}, "train.py sub/keep.txt"),
        ({".gitignore": "/sub\n"}, "train.py a.log build/x.o"),
        ({".gitignore": "*.log\n!a.log\n"}, "train.py a.log sub/keep.txt build/x.o"),
        ({".gitignore": "*.log\n", ".shunterignore": "!sub/b.log\n"}, "train.py sub/keep.txt sub/b.log build/x.o"),
        ({"sub/.gitignore": "keep.txt\n"}, "train.py a.log sub/b.log build/x.o"),
        (
            {".gitignore": "*.txt\n", "sub/.shunterignore": "!keep.txt\n"},
            "train.py a.log sub/b.log sub/keep.txt build/x.o",
        ),
        ({".shunterignore": "**/*.o\n# a comment\n\n"}, "train.py a.log sub/b.log sub/keep.txt"),
    ],
)
def test_ignore_files_are_read_as_git_reads_them(tmp_path: Path, ignores: dict[str, str], kept: str) -> None:
    files = {"train.py": "", "a.log": "", "sub/b.log": "", "sub/keep.txt": "", "build/x.o": ""}
    folder = write(tmp_path, {**files, **ignores})

    sent = set(contents_of(folder)) - set(ignores)

    assert sent == set(kept.split())


def test_a_file_in_an_ignored_folder_cannot_be_asked_back_as_in_git(tmp_path: Path) -> None:
    folder = write(tmp_path, {".gitignore": "build/\n!build/x.o\n", "build/x.o": "", "train.py": ""})

    assert "build/x.o" not in names_in(folder)


def test_what_is_never_source_stays_behind_unless_asked_for(tmp_path: Path) -> None:
    clutter = {".git/config": "", ".venv/bin/python": "", "pkg/__pycache__/a.pyc": "", ".shunter/api-key": "secret"}
    folder = write(tmp_path, {**clutter, "pkg/a.py": "", ".shunterignore": "!.venv/\n"})

    assert set(contents_of(folder)) == {".shunterignore", ".venv/bin/python", "pkg/a.py"}


def test_empty_folders_are_sent_since_a_program_may_write_into_them(tmp_path: Path) -> None:
    folder = write(tmp_path, {"train.py": ""})
    (folder / "out").mkdir()

    assert names_in(folder) == ["out", "train.py"]


def test_links_inside_the_folder_are_sent_as_what_they_point_to(tmp_path: Path) -> None:
    folder = write(tmp_path, {"data/v1/x.txt": "x", "train.py": "t"})
    (folder / "data" / "current").symlink_to("v1")
    (folder / "main.py").symlink_to("train.py")

    sent = contents_of(folder)

    assert sent["data/current/x.txt"] == "x"
    assert sent["main.py"] == "t"


@pytest.mark.parametrize("target", ["/etc/hosts", "../outside.txt", "../"])
def test_a_link_that_leaves_the_folder_is_refused_by_name(tmp_path: Path, target: str) -> None:
    (tmp_path / "outside.txt").write_text("secret")
    folder = write(tmp_path / "source", {"train.py": ""})
    (folder / "leak").symlink_to(target)

    with pytest.raises(BundleRefused, match=r"leak is a link to .*outside the folder") as refused, pack(folder):
        pass
    assert "/leak to .shunterignore" in refused.value.hint


@pytest.mark.parametrize("target", ["nowhere", "self"])
def test_a_link_that_leads_nowhere_is_refused(tmp_path: Path, target: str) -> None:
    folder = write(tmp_path, {"train.py": ""})
    (folder / "self").symlink_to(target)

    with pytest.raises(BundleRefused, match="self is a broken link"), pack(folder):
        pass


def test_a_link_to_a_folder_above_is_refused_rather_than_followed_for_ever(tmp_path: Path) -> None:
    folder = write(tmp_path, {"a/train.py": ""})
    (folder / "a" / "again").symlink_to("..")

    with pytest.raises(BundleRefused, match="a/again is a link to a folder that holds it"), pack(folder):
        pass


def test_an_ignored_link_is_not_looked_at(tmp_path: Path) -> None:
    folder = write(tmp_path, {"train.py": "", ".shunterignore": "leak\n"})
    (folder / "leak").symlink_to("/etc/hosts")

    assert names_in(folder) == [".shunterignore", "train.py"]


def test_a_socket_or_a_pipe_is_refused_by_name(tmp_path: Path) -> None:
    folder = write(tmp_path, {"train.py": ""})
    os.mkfifo(folder / "pipe")

    with pytest.raises(BundleRefused, match="pipe is neither a file nor a folder"), pack(folder):
        pass


def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, {"train.py": ""})
    (Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9"))).touch()

    with pytest.raises(BundleRefused, match="not a UTF-8 name"), pack(folder):
        pass


def test_long_and_foreign_names_survive(tmp_path: Path) -> None:
    name = "ä" * 60 + "/" + "b" * 200 + ".txt"
    folder = write(tmp_path, {name: "here"})

    assert contents_of(folder) == {name: "here"}


@pytest.mark.parametrize("files", [{}, {".gitignore.d/x/": None}])
def test_a_folder_without_a_file_is_refused(tmp_path: Path, files: dict[str, None]) -> None:
    for name in files:
        (tmp_path / name).mkdir(parents=True)

    with pytest.raises(BundleRefused, match="holds no file to send"), pack(tmp_path):
        pass


def test_something_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(BundleRefused, match="is not a folder"), pack(tmp_path / "file"):
        pass


def test_a_unix_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"train.py": ""})
    monkeypatch.chdir(tmp_path)  # socket paths are short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s")

        with pytest.raises(BundleRefused, match="s is neither a file nor a folder"), pack("."):
            pass
