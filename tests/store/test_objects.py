"""Objects are written once and whole, in a folder and in any other fsspec store."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from shunter_store.errors import NotFound, ObjectExists
from shunter_store.storage.objects import BadDigest, BadKey, ObjectStore

KEY = "job_1/1/logs/stdout-000"


@pytest.fixture(params=["folder", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "folder":
        return ObjectStore(f"file://{tmp_path / 'objects'}")
    return ObjectStore(f"memory://{tmp_path.name}")


def test_an_object_is_read_as_it_was_written(store: ObjectStore) -> None:
    size = store.put(KEY, [b"abc", b"", b"defgh"], hashlib.sha256(b"abcdefgh").hexdigest())

    assert size == store.size(KEY) == 8
    assert b"".join(store.open_range(KEY)) == b"abcdefgh"
    assert store.exists(KEY)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(0, 3, b"abc"), (2, 5, b"cde"), (5, None, b"fgh"), (6, 100, b"gh"), (8, None, b""), (3, 3, b""), (5, 2, b"")],
)
def test_a_range_takes_its_start_and_not_its_end(
    store: ObjectStore, start: int, end: int | None, expected: bytes
) -> None:
    store.put(KEY, [b"abcdefgh"])

    assert b"".join(store.open_range(KEY, start, end)) == expected


def test_the_same_bytes_again_are_fine_and_other_bytes_are_refused(store: ObjectStore) -> None:
    store.put(KEY, [b"abc"])

    again = store.put(KEY, [b"a", b"bc"])
    with pytest.raises(ObjectExists):
        store.put(KEY, [b"abX"])
    with pytest.raises(ObjectExists):
        store.put(KEY, [b"abcd"])

    assert again == 3
    assert b"".join(store.open_range(KEY)) == b"abc"


def test_bytes_that_are_not_those_announced_are_not_stored(store: ObjectStore) -> None:
    with pytest.raises(BadDigest):
        store.put(KEY, [b"abc"], "0" * 64)

    assert not store.exists(KEY)


def test_an_upload_that_breaks_off_leaves_nothing(store: ObjectStore) -> None:
    def broken() -> Iterator[bytes]:
        yield b"abc"
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        store.put(KEY, broken())

    assert not store.exists(KEY)
    assert store.put(KEY, [b"whole"]) == 5


def test_a_missing_object_is_not_found_at_once(store: ObjectStore) -> None:
    with pytest.raises(NotFound):
        store.open_range(KEY)
    with pytest.raises(NotFound):
        store.size(KEY)

    store.delete(KEY)
    assert not store.exists(KEY)


def test_a_deleted_object_is_gone(store: ObjectStore) -> None:
    store.put(KEY, [b"abc"])

    store.delete(KEY)

    assert not store.exists(KEY)


def test_everything_below_a_folder_goes_but_what_is_kept_and_what_lies_beside_it(store: ObjectStore) -> None:
    keys = ["job_1/1/a", "job_1/1/logs/b", "job_1/2/c", "job_1/2/kept", "job_10/1/d", "job_2/1/e"]
    for key in keys:
        store.put(key, [b"abc"])

    gone = store.delete_below("job_1/", kept=["job_1/2/kept"])

    assert gone == 3
    assert [key for key in keys if store.exists(key)] == ["job_1/2/kept", "job_10/1/d", "job_2/1/e"]


def test_a_folder_that_is_not_there_is_deleted_without_a_word(store: ObjectStore) -> None:
    assert store.delete_below("job_1/") == 0


@pytest.mark.parametrize("folder", ["job_1", "/", "", "../", "a/../", ".unfinished/"])
def test_only_a_folder_of_objects_is_emptied(store: ObjectStore, folder: str) -> None:
    with pytest.raises(BadKey):
        store.delete_below(folder)


def test_an_emptied_folder_of_this_machine_is_removed(tmp_path: Path) -> None:
    store = ObjectStore(f"file://{tmp_path}")
    store.put("job_1/1/logs/b", [b"abc"])

    store.delete_below("job_1/")

    assert not (tmp_path / "job_1").exists()


def test_a_folder_is_no_object(store: ObjectStore) -> None:
    store.put(KEY, [b"abc"])

    assert not store.exists("job_1/1")
    with pytest.raises(NotFound):
        store.open_range("job_1/1")


@pytest.mark.parametrize(
    "key",
    [
        *("", "/etc/passwd", "a//b", "a/../b", "..", "a/.", "a\\b", "a\0b", "a\nb", "\ud800", "a/b/", ".unfinished/x"),
        *("a/" + "x" * 256, "/".join(["x" * 100] * 10)),
    ],
)
def test_a_key_that_could_lead_elsewhere_is_refused(store: ObjectStore, key: str) -> None:
    for attempt in (store.exists, store.size, store.delete, store.open_range):
        with pytest.raises(BadKey):
            attempt(key)
    with pytest.raises(BadKey):
        store.put(key, [b"x"])


def test_a_folder_store_leaves_no_unfinished_files(tmp_path: Path) -> None:
    store = ObjectStore(f"file://{tmp_path}")
    store.put(KEY, [b"abc"])
    with pytest.raises(ObjectExists):
        store.put(KEY, [b"other"])

    left = [path for path in tmp_path.rglob("*") if path.is_file()]

    assert left == [tmp_path / KEY]


def test_names_that_only_look_odd_are_fine(store: ObjectStore) -> None:
    key = "job_1/1/artifacts/wörter ?&=%2e%2e#.txt"

    store.put(key, [b"abc"])

    assert b"".join(store.open_range(key)) == b"abc"
