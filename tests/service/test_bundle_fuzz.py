"""Whatever the bytes of an archive: the service takes or refuses it, and a node never writes outside of its folder.

Two readers see the same bytes: the service's, which looks only, and the agent's, which writes. Neither may raise
anything but its own refusal, go beyond its limits, or leave anything outside of the folder; and what the service takes,
the agent must be able to unpack.
"""

from __future__ import annotations

import base64
import gzip
import io
import tarfile
import tempfile
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shunter_agent.preparing import bundle as agent
from shunter_service.accepting.bundle_check import BadBundle, BundleLimits, check_bundle

pytestmark = pytest.mark.slow

LIMITS = BundleLimits(max_entries=20, max_unpacked_bytes=1 << 20)
KINDS = (
    *(tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE),
    *(tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.CONTTYPE, tarfile.GNUTYPE_SPARSE, tarfile.XHDTYPE, tarfile.XGLTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, b"\0", b"Z"),
)
PARTS = st.sampled_from(
    [
        "a",
        "A",
        "b",
        "..",
        ".",
        "",
        "a.py",
        "e\u0301",
        "\u00e9",
        "\u00df",
        "SS",
        "x" * 120,
        "x" * 300,
        "CON",
        "a\\b",
        "~",
    ]
) | st.text(st.characters(min_codepoint=1, max_codepoint=0x2FF), max_size=6)
NAMES = st.lists(PARTS, min_size=1, max_size=5).map("/".join) | st.sampled_from(
    ["/etc/passwd", "//a", "../x", "a/../../x", "./a", "a/", ".", "..", "/", "C:\\x", "link/inside"]
)
PAX = st.dictionaries(
    st.sampled_from(
        ["path", "linkpath", "size", "mtime", "uid", "GNU.sparse.map", "GNU.sparse.size", "GNU.sparse.name"]
    ),
    NAMES | st.sampled_from(["0", "-1", "1e9", "99999999999999999999", "0,1", ""]),
    max_size=2,
)
SETTINGS = settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@st.composite
def members(draw: st.DrawFn) -> tuple[tarfile.TarInfo, bytes]:
    """One entry, hostile or plain, with its content."""
    info = tarfile.TarInfo(draw(NAMES))
    info.type = draw(st.sampled_from(KINDS) | st.just(tarfile.REGTYPE))
    info.linkname = draw(st.sampled_from(["", "..", "/etc", "a", "../../x"]))
    info.mode = draw(st.integers(0, 0o7777))
    info.pax_headers = draw(PAX)
    content = draw(st.binary(max_size=60)) if info.isreg() else b""
    info.size = len(content)
    return info, content


@st.composite
def tars(draw: st.DrawFn) -> bytes:
    """A tar of such entries; some lie about sizes, some are cut off or have bytes changed."""
    buffer = io.BytesIO()
    form = draw(st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT]))
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        for info, content in draw(st.lists(members(), max_size=6)):
            try:
                tar.addfile(info, io.BytesIO(content))
            except (ValueError, UnicodeEncodeError):  # this format cannot say it
                continue
    return mutated(draw, buffer.getvalue())


def mutated(draw: st.DrawFn, data: bytes) -> bytes:
    changed = bytearray(data)
    for place, value in draw(st.lists(st.tuples(st.integers(0, 4095), st.integers(0, 255)), max_size=4)):
        if place < len(changed):
            changed[place] = value
    if draw(st.booleans()):
        repair_checksums(changed)
    end = draw(st.none() | st.integers(0, len(changed)))
    return bytes(changed[:end]) + draw(st.sampled_from([b"", b"", b"\0" * 1024, b"tail"]))


def repair_checksums(data: bytearray) -> None:
    """Make changed headers pass, so that what lies behind the checksum is reached."""
    for start in range(0, len(data) - 511, 512):
        if data[start + 257 : start + 262] == b"ustar":
            block = data[start : start + 512]
            total = sum(block[:148]) + 8 * 32 + sum(block[156:])
            data[start + 148 : start + 156] = b"%06o\0 " % total


class Archive(bytes):
    """Bytes that are told in short where a test fails."""

    def __repr__(self) -> str:
        return f"Archive(zlib.decompress(base64.b85decode({base64.b85encode(zlib.compress(self, 9))!r})))"


@st.composite
def archives(draw: st.DrawFn) -> Archive:
    """Bytes that claim to be a gzip'd tar."""
    packed = gzip.compress(draw(tars()), draw(st.sampled_from([0, 6])), mtime=0)
    return Archive(mutated(draw, packed) if draw(st.integers(0, 3)) == 0 else packed)


BOMBS = st.builds(
    lambda name, size, times: gzip.compress(bomb(name, size) * times, mtime=0),
    st.sampled_from(["a", "a/b"]),
    st.sampled_from([17 << 20, 1 << 20]),
    st.integers(1, 2),
)


def bomb(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size
    return info.tobuf() + b"\0" * size


def is_taken(data: bytes) -> bool:
    try:
        entries = check_bundle(io.BytesIO(data), len(data), LIMITS)
    except BadBundle as refused:
        refused.detail.encode()  # it goes into an answer
        return False
    assert 0 <= entries <= LIMITS.max_entries
    return True


def unpacked(data: bytes) -> list[Path] | None:
    """What the agent makes of it, or None where it refuses; nothing outside, whatever it is."""
    with tempfile.TemporaryDirectory(prefix="shunter-fuzz-") as scratch:
        home = Path(scratch) / "home"
        target = home / "source"
        home.mkdir()
        (Path(scratch) / "archive").write_bytes(data)
        try:
            agent.unpack(str(Path(scratch) / "archive"), str(target))
        except agent.BadBundle as refused:
            str(refused).encode("utf-8", "backslashreplace")
            found = None
        else:
            found = [path.relative_to(target) for path in target.rglob("*")]
            assert all(not path.is_symlink() and (path.is_file() or path.is_dir()) for path in target.rglob("*"))
            size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
            assert size <= agent.RATIO_COUNTS_FROM_BYTES + agent.MOST_RATIO * len(data)
        assert {path.name for path in Path(scratch).iterdir()} == {"home", "archive"}
        assert {path.name for path in home.iterdir()} <= {"source"}
        return found


def check(data: bytes) -> None:
    taken, files = is_taken(data), unpacked(data)
    if taken:
        assert files is not None, "the service takes what no node can unpack"


@SETTINGS
@given(archives())
def test_a_hostile_archive_is_taken_or_refused_and_stays_in_its_folder(data: bytes) -> None:
    check(data)


@SETTINGS
@given(st.binary(max_size=2000) | st.binary(max_size=2000).map(lambda data: gzip.compress(data, mtime=0)))
def test_bytes_that_are_no_archive_are_refused_and_nothing_else_happens(data: bytes) -> None:
    check(data)


@settings(SETTINGS, max_examples=8)
@given(BOMBS)
def test_a_bomb_is_refused_by_the_service_before_it_is_large(data: bytes) -> None:
    assert not is_taken(data)


@SETTINGS
@given(st.binary(max_size=200), st.integers(0, 9))
def test_streams_of_several_gzip_members_are_read_as_one(tail: bytes, level: int) -> None:
    plain = bomb("a.txt", 512)

    check(gzip.compress(plain[:300], level, mtime=0) + gzip.compress(plain[300:] + bytes(1024), level, mtime=0) + tail)
    check(zlib.compress(plain))
