"""Archives that are refused, and that nothing of them is left."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest
from shunter_agent.preparing.bundle import BadBundle, unpack
from support.agents import AgentProcess, assignment, bundle, command
from support.node_service import NodeService


def archive(*entries: tuple[str, bytes, bytes]) -> bytes:
    """name, tar type, content or link target"""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, kind, content in entries:
            entry = tarfile.TarInfo(name)
            entry.type = kind
            if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
                entry.linkname = content.decode()
            else:
                entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content) if entry.size else None)
    return buffer.getvalue()


REFUSED = {
    "leads up": archive(("../escaped", tarfile.REGTYPE, b"x")),
    "leads up inside": archive(("a/../../escaped", tarfile.REGTYPE, b"x")),
    "absolute": archive(("/tmp/escaped", tarfile.REGTYPE, b"x")),
    "symbolic link": archive(("link", tarfile.SYMTYPE, b"/etc"), ("link/passwd", tarfile.REGTYPE, b"x")),
    "hard link": archive(("a", tarfile.REGTYPE, b"x"), ("b", tarfile.LNKTYPE, b"a")),
    "device": archive(("null", tarfile.CHRTYPE, b"")),
    "fifo": archive(("pipe", tarfile.FIFOTYPE, b"")),
    "twice": archive(("a", tarfile.REGTYPE, b"1"), ("./a", tarfile.REGTYPE, b"2")),
    "file as folder": archive(("a", tarfile.REGTYPE, b"1"), ("a/b", tarfile.REGTYPE, b"2")),
    "bomb": archive(("zeros", tarfile.REGTYPE, b"\0" * (40 << 20))),
    "torn": archive(("a", tarfile.REGTYPE, b"x" * 50_000))[:-40],
    "no archive": b"hello",
    "no tar": gzip.compress(b"hello" * 1000),
    "empty": b"",
}


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED.keys())
def test_a_bundle_that_is_unsafe_or_torn_changes_nothing(tmp_path: Path, data: bytes) -> None:
    target = tmp_path / "home" / "source"
    target.mkdir(parents=True)
    (target / "old.py").write_text("old")
    (tmp_path / "archive").write_bytes(data)

    with pytest.raises(BadBundle):
        unpack(str(tmp_path / "archive"), str(target))

    assert sorted(path.name for path in (tmp_path / "home").rglob("*")) == ["old.py", "source"]
    assert not (tmp_path / "escaped").exists()


def test_a_good_bundle_replaces_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "source"
    target.mkdir()
    (target / "old.py").write_text("old")
    (tmp_path / "archive").write_bytes(
        bundle({"a.py": "1", "deep/er/run.sh": "#!/bin/sh", "empty": ""}, ["deep/er/run.sh"])
    )

    unpack(str(tmp_path / "archive"), str(target))

    assert sorted(path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()) == [
        "a.py",
        "deep/er/run.sh",
        "empty",
    ]
    assert (target / "deep/er/run.sh").stat().st_mode & 0o777 == 0o755
    assert (target / "a.py").stat().st_mode & 0o777 == 0o644


def test_the_user_is_told_why_the_source_is_refused(service: NodeService, agent: AgentProcess) -> None:
    source = service.store("bundles/bad", REFUSED["symbolic link"]).model_dump()
    service.run(assignment(command("true"), source=source, document={"source": {"kind": "bundle"}}))

    failed = service.wait_for("failed")

    assert (failed["failure_class"], failed["reason"]) == ("user", "setup_failed")
    assert "'link': only files and folders" in failed["message"]
    service.wait_for("drained")
