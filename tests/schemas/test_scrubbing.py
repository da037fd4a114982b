"""Secrets go by name, by form and by value; everything else stays as it is."""

from __future__ import annotations

import pytest
from shunter_schemas.scrubbing import REMOVED, is_secret_name, scrub, scrub_text, secret_values

PRIVATE = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\n-----END OPENSSH PRIVATE KEY-----"


@pytest.mark.parametrize(
    "secret",
    [
        "shk_Ab3dE6gH_01234567890123456789012345678901234567",
        "sns_" + "0f" * 32,
        "AKIAIOSFODNN7EXAMPLE",
        "hf_abcdefghijklmnopqrstuvwx",
        "ghp_abcdefghijklmnopqrstuvwx",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
        "b3BlbnNzaC1rZXktdjEAAAAA",
    ],
)
def test_a_secret_is_known_by_its_form_wherever_it_stands(secret: str) -> None:
    text = f"before {PRIVATE if secret in PRIVATE else secret} after"

    found = scrub({"lines": [text], "deep": {"er": (text,)}})

    assert secret not in str(found)
    assert found["lines"][0].startswith("before ")
    assert found["lines"][0].endswith(" after")


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Authorization: Bearer abcdefgh12345", f"Authorization: Bearer {REMOVED}"),
        ("redis://user:pa55word@host:6379/0", f"redis://{REMOVED}@host:6379/0"),
        ("https://b/k?X-Amz-Signature=abc&x=1", f"https://b/k?X-Amz-Signature={REMOVED}&x=1"),
        ("/v1/objects/k?expires=17&signature=abc", f"/v1/objects/k?expires=17&signature={REMOVED}"),
        ("{'HF_TOKEN': 'value', 'HOME': '/root'}", None),
        ("export WANDB_API_KEY=0123456789", f"export WANDB_API_KEY={REMOVED}"),
        ("nothing to hide: tokens_per_s=12.5", "nothing to hide: tokens_per_s=12.5"),
        ("step 10 loss 2.5", "step 10 loss 2.5"),
    ],
)
def test_texts_lose_what_is_secret_and_nothing_else(text: str, left: str | None) -> None:
    found = scrub_text(text)

    if left is None:
        assert "value" not in found
        assert "/root" in found
    else:
        assert found == left


def test_what_stands_under_a_secret_s_name_is_removed_there_and_everywhere() -> None:
    given = {"variables": {"DB_PASSWORD": "correct-horse"}, "log": "connecting with correct-horse to db", "n": 3}

    found = scrub(given)

    assert found == {"variables": {"DB_PASSWORD": REMOVED}, "log": f"connecting with {REMOVED} to db", "n": 3}


def test_a_short_word_under_a_secret_s_name_is_not_looked_for_elsewhere() -> None:
    assert scrub({"password": "true", "ok": "it is true"}) == {"password": REMOVED, "ok": "it is true"}


@pytest.mark.parametrize(
    "name", ["token", "tokens_per_s", "tokenizer", "identity_file", "max_tokens", "service_url_file", "account"]
)
def test_names_that_only_look_like_secrets_are_shown(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "api_key", "AWS_SECRET_ACCESS_KEY", "password", "sync_token", "private_key"]
)
def test_names_of_secrets_are_known(name: str) -> None:
    assert is_secret_name(name)
    assert secret_values({"a": [{name: {"x": ["deep"]}}]}) == {"deep"}
