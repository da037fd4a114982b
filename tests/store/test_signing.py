"""A signed path is good for one method, one key and a while; tokens of nodes are derived."""

from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from shunter_store.installation.signing import node_sync_token, sign, token_hash, verify

SECRET = b"s" * 32
KEY = "job_1/1/logs/ä b?.txt"
EXPIRES = 2_000_000_000.0


def test_a_signed_path_is_good_until_it_expires() -> None:
    path, expires, signature = parts(sign(SECRET, "put", KEY, EXPIRES))

    assert unquote(path) == f"/v1/objects/{KEY}"
    assert good(SECRET, "PUT", KEY, expires, signature, EXPIRES - 1)
    assert not good(SECRET, "PUT", KEY, expires, signature, EXPIRES)


@pytest.mark.parametrize(
    ("secret", "method", "key", "expires"),
    [
        (b"t" * 32, "PUT", KEY, "2000000000"),
        (SECRET, "GET", KEY, "2000000000"),
        (SECRET, "PUT", KEY + "x", "2000000000"),
        (SECRET, "PUT", KEY, "2000000001"),
        (SECRET, "PUT", KEY, "-1"),
        (SECRET, "PUT", KEY, "never"),
        (SECRET, "PUT", KEY, "9" * 5000),
        (SECRET, "PUT", KEY, "²"),
    ],
)
def test_a_signature_is_good_for_nothing_else(secret: bytes, method: str, key: str, expires: str) -> None:
    _, _, signature = parts(sign(SECRET, "PUT", KEY, EXPIRES))

    assert not good(secret, method, key, expires, signature, 0)


@pytest.mark.parametrize("signature", ["", "0" * 64, "ä", "\ud800"])
def test_a_false_signature_is_refused(signature: str) -> None:
    assert not good(SECRET, "PUT", KEY, "2000000000", signature, 0)


def test_the_token_of_a_node_is_its_own_and_comes_out_the_same_each_time() -> None:
    first, second = node_sync_token(SECRET, "shn-a"), node_sync_token(SECRET, "shn-b")

    assert first == node_sync_token(SECRET, "shn-a")
    assert len({first, second, node_sync_token(b"t" * 32, "shn-a")}) == 3
    assert token_hash(first) != token_hash(second)
    assert first not in token_hash(first)


def parts(url: str) -> tuple[str, str, str]:
    split = urlsplit(url)
    query = parse_qs(split.query)
    return split.path, query["expires"][0], query["signature"][0]


def good(secret: bytes, method: str, key: str, expires: str, signature: str, now: float) -> bool:
    return verify(secret, method, key, expires=expires, signature=signature, now=now)
