import gzip
import io
import tarfile
from collections.abc import Callable

import pytest
from shunter_service.accepting.bundle_check import BadBundle, BundleLimits, check_bundle

LIMITS = BundleLimits(max_entries=50, max_unpacked_bytes=64 << 20)


def packed(*members: tarfile.TarInfo, content: bytes = b"x") -> bytes:
    """A gzip'd tar of these members, exactly as they are."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for member in members:
            if member.isreg():
                member.size = len(content)
            tar.addfile(member, io.BytesIO(content) if member.isreg() else None)
    return gzip.compress(plain.getvalue())


def file(name: str) -> tarfile.TarInfo:
    return tarfile.TarInfo(name)


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def pax(name: str, **headers: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.pax_headers = headers
    return info


def check(data: bytes, limits: BundleLimits = LIMITS) -> int:
    return check_bundle(io.BytesIO(data), len(data), limits)


def test_plain_files_and_folders_are_taken_and_counted() -> None:
    folder = special("src", tarfile.DIRTYPE)

    entries = check(packed(folder, file("src/a.py"), file("./src/b.py"), file("deep/er/c.py"), file("ü.txt")))

    assert entries == 5


def test_an_empty_archive_is_taken() -> None:
    assert check(packed()) == 0


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ([file("../evil")], "leaves the bundle"),
        ([file("a/../../evil")], "leaves the bundle"),
        ([file("/etc/passwd")], "leaves the bundle"),
        ([pax("short", path="../evil")], "leaves the bundle"),
        ([special("link", tarfile.SYMTYPE, "/etc/passwd")], "no links"),
        ([special("link", tarfile.LNKTYPE, "other")], "no links"),
        ([special("dev", tarfile.CHRTYPE)], "no links"),
        ([special("dev", tarfile.BLKTYPE)], "no links"),
        ([special("pipe", tarfile.FIFOTYPE)], "no links"),
        ([pax("sparse", **{"GNU.sparse.map": "0,1", "GNU.sparse.size": "99"})], "no links"),
        ([pax("nul", path="a\x00b")], "control characters"),
        ([file("a\nb")], "control characters"),
        ([file("a\x1b[2Jb")], "control characters"),
        ([file("a\\..\\b")], "backslash"),
        ([file("A.py"), file("a.py")], "case"),
        ([file("Src/a.py"), file("src/b.py")], "case"),
        ([file("stra\u00dfe"), file("STRASSE")], "case"),
        ([file("e\u0301"), file("\u00e9")], "case"),
        ([file("a"), file("a")], "same path"),
        ([file("a"), file("a/b")], "same path"),
        ([file("a/b"), file("a")], "same path"),
        ([file("x" * 256)], "too long"),
        ([file("/".join(["d" * 200] * 6))], "too long"),
        ([file(f"f{number}") for number in range(51)], "more than 50 entries"),
    ],
)
def test_what_could_do_harm_on_a_node_is_refused(members: list[tarfile.TarInfo], reason: str) -> None:
    with pytest.raises(BadBundle, match=reason):
        check(packed(*members))


def not_utf8() -> bytes:
    plain = gzip.decompress(packed(file("abc")))
    # The name's first byte and the header's checksum, which counts bytes.
    broken = (
        b"\xff" + plain[1:148] + b"%06o\0 " % (sum(plain[:148]) + sum(plain[156:512]) + 8 * 32 + 255 - 97) + plain[156:]
    )
    return gzip.compress(broken)


@pytest.mark.parametrize(
    "make",
    [
        lambda: b"",
        lambda: b"no archive",
        lambda: gzip.compress(b"no tar, but long enough to be taken for a header" * 20),
        lambda: packed(file("a"), content=b"x" * 100_000)[:-20],
        lambda: gzip.compress(gzip.decompress(packed(file("a"), content=b"x" * 100_000))[:50_000]),
        lambda: packed(file("a"))[:-8] + b"\0" * 8,
        not_utf8,
    ],
    ids=["nothing", "no gzip", "no tar", "cut gzip", "cut tar", "wrong checksum", "no UTF-8"],
)
def test_what_is_no_whole_archive_is_refused(make: Callable[[], bytes]) -> None:
    with pytest.raises(BadBundle):
        check(make())


def test_a_bomb_is_noticed_while_it_is_small() -> None:
    bomb = packed(file("zeros"), content=b"\0" * (40 << 20))
    assert len(bomb) < 60_000

    with pytest.raises(BadBundle, match="unpacks to more than"):
        check(bomb)


def test_more_than_the_limit_is_refused_however_well_it_is_packed() -> None:
    with pytest.raises(BadBundle, match="unpacks to more than 1000000"):
        check(packed(file("a"), content=b"x" * 2_000_000), BundleLimits(max_unpacked_bytes=1_000_000))


def test_a_bomb_behind_the_end_of_the_tar_is_noticed_too() -> None:
    with pytest.raises(BadBundle, match="unpacks to more than"):
        check(packed(file("a")) + gzip.compress(b"\0" * (40 << 20)))


def test_a_header_that_claims_gigabytes_costs_no_memory() -> None:
    header = tarfile.TarInfo("././@PaxHeader")
    header.type, header.size = tarfile.XHDTYPE, 4 << 30

    with pytest.raises(BadBundle, match="tar header of"):
        check(gzip.compress(header.tobuf(tarfile.USTAR_FORMAT) + b"\0" * 4096))
