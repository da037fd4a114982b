"""Conversations as rows of tokens, and which of them are targets."""

import json
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from shunter_trainer.data.build import DataSets, build_data
from shunter_trainer.data.samples import IGNORED, Samples, Unindexed
from shunter_trainer.failures import UserFault
from shunter_trainer.places import Places
from support.tokenizer_folders import CHATML, CHATML_MARKED, write_tokenizer
from support.trainings import TINY, parsed

LLAMA3 = (
    "{{ '<s>' }}{% for m in messages %}"
    "{{ '<|im_start|>' + m.role + '\n\n' + m.content | trim + '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n\n' }}{% endif %}"
)
LAST_THINKS = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{% if m.role == 'assistant' and loop.last %}{{ '<think>\n\n</think>\n\n' }}{% endif %}"
    "{{ m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
NO_MARKS = "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}"
SHOUTS = "{% for m in messages %}{{ m.content | upper if not loop.last else m.content }} {% endfor %}"
TALK = [
    {"role": "system", "content": "You are brief."},
    {"role": "user", "content": "hello how are you"},
    {"role": "assistant", "content": " fine, thank you!"},
    {"role": "user", "content": "and the dög?"},
    {"role": "assistant", "content": "it sleeps 🐕 on the fox"},
]


@pytest.fixture
def chat(places: Places) -> Callable[..., DataSets]:
    """`chat(lines, the tokenizer's own template, data members…)`: the data that these lines make, in rows of 256."""

    def make(lines: list[Any], own: str | None = CHATML, **members: Any) -> DataSets:
        folder = places.inputs / "train"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        if not (places.inputs / "tok").exists():
            write_tokenizer(places.inputs / "tok", template=own)
        document = {"kind": "chat", "path": "input:train/*.jsonl", "tokenizer": "input:tok", "sequence_length": 256}
        model = {**TINY, "vocab": 512, "context": 256}
        return build_data(parsed(model=model, data={**document, "packing": False, **members}), places)

    return make


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (CHATML_MARKED, " fine, thank you!<|im_end|>it sleeps 🐕 on the fox<|im_end|>"),
        (CHATML, " fine, thank you!<|im_end|>it sleeps 🐕 on the fox<|im_end|>"),
        (LLAMA3, "fine, thank you!<|im_end|>it sleeps 🐕 on the fox<|im_end|>"),
        (LAST_THINKS, " fine, thank you!<|im_end|><think>\n\n</think>\n\nit sleeps 🐕 on the fox<|im_end|>"),
    ],
    ids=["marked", "chatml", "trims", "last-differs"],
)
def test_targets_are_exactly_what_the_assistant_says_and_what_ends_its_turn(
    chat: Callable[..., DataSets], places: Places, template: str, said: str
) -> None:
    samples = indexed(chat([{"messages": TALK}], template))

    row = only_row(samples)
    targets = row["labels"][row["labels"] != IGNORED]
    assert decoded(places, targets) == said
    assert int(samples.targets(np.array([0]))[0]) == len(targets)  # type: ignore[index]  # rows count their targets
    assert "You are brief." in decoded(places, row["input_ids"][row["attention_mask"] == 1])


def test_the_same_mask_is_found_with_and_without_markers(chat: Callable[..., DataSets]) -> None:
    lines = [{"messages": TALK[: count + 1]} for count in range(2, 5)] + [{"messages": TALK[2:]}]

    bare, marked = (indexed(chat(lines, template=template)) for template in (CHATML, CHATML_MARKED))

    everything = np.arange(4)
    assert torch.equal(*(samples.take(everything, everything)["labels"] for samples in (bare, marked)))


def test_bytes_take_a_template_of_the_document(chat: Callable[..., DataSets]) -> None:
    samples = indexed(chat([{"messages": TALK}], tokenizer="bytes", template=NO_MARKS))

    labels = only_row(samples)["labels"]
    said = bytes(labels[labels != IGNORED].tolist()).decode()
    assert said == "assistant:  fine, thank you!assistant: it sleeps 🐕 on the fox"


def test_all_words_count_where_the_document_says_so(chat: Callable[..., DataSets], places: Places) -> None:
    row = only_row(indexed(chat([{"messages": TALK}], train_on="all")))

    text = decoded(places, row["input_ids"][row["attention_mask"] == 1])
    assert decoded(places, row["labels"][row["labels"] != IGNORED]) == text.removeprefix("<s>")


def test_shared_conversations_become_messages(chat: Callable[..., DataSets]) -> None:
    names = {"system": "system", "user": "human", "assistant": "gpt"}
    shared = [{"from": names[message["role"]], "value": message["content"]} for message in TALK]

    one, other = (only_row(indexed(chat([line]))) for line in ({"messages": TALK}, {"conversations": shared}))

    assert all(torch.equal(one[name], other[name]) for name in one)


def test_rows_of_parquet_hold_conversations_too(chat: Callable[..., DataSets], places: Places) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    lines = only_row(indexed(chat([{"messages": TALK}])))
    pq.write_table(pa.table({"messages": [TALK]}), places.inputs / "train" / "b.parquet")

    rows = only_row(indexed(chat([], path="input:train/*.parquet")))

    assert all(torch.equal(lines[name], rows[name]) for name in lines)


def test_packed_conversations_stay_whole_and_keep_apart(chat: Callable[..., DataSets], places: Places) -> None:
    lines = [{"messages": [{"role": "user", "content": "x" * n}, *TALK[2:3]]} for n in (5, 60, 20, 90, 33, 7, 70)]

    alone, packed = (indexed(chat(lines, packing=packing)) for packing in (False, True))

    whole = alone.take(np.arange(7), np.arange(7))
    texts = [row[:size].tolist() for row, size in zip(whole["input_ids"], whole["attention_mask"].sum(1), strict=True)]
    count = np.arange(len(packed))
    batch = packed.take(count, count)
    found = [part for row in range(len(packed)) for part in parted(batch, row)]
    assert sorted(found) == sorted(texts)
    assert len(packed) == -(-sum(map(len, texts)) // 256)
    begins = batch["position_ids"] == 0
    assert bool((batch["labels"][begins] == IGNORED).all())
    assert int((batch["labels"] != IGNORED).sum()) == int((whole["labels"] != IGNORED).sum())
    assert int(packed.targets(count).sum()) == int((batch["labels"] != IGNORED).sum())  # type: ignore[union-attr]


def test_a_packed_conversation_is_not_seen_by_the_one_behind_it(chat: Callable[..., DataSets]) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=512, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2
    )
    model = LlamaForCausalLM(config).train(False)
    lines = [{"messages": [{"role": "user", "content": text}, *TALK[2:3]]} for text in ("hello", "the quick fox")]
    packed, alone = (indexed(chat(lines, packing=packing)) for packing in (True, False))

    batch = only_row(packed)
    with torch.no_grad():
        together = model(**{name: batch[name][None] for name in ("input_ids", "position_ids")}, use_cache=False).logits[
            0
        ]
        first, second = (batch["position_ids"] == 0).nonzero().flatten().tolist()[:2]
        single = alone.take(np.array([0, 1]), np.array([0, 0]))
        for start, row in ((first, 0), (second, 1)):
            ids = single["input_ids"][row][single["attention_mask"][row] == 1]
            assert torch.allclose(together[start : start + len(ids)], model(ids[None]).logits[0], atol=1e-5)


def test_what_is_cut_or_left_out_is_counted(chat: Callable[..., DataSets]) -> None:
    long = [TALK[1], {"role": "assistant", "content": "word " * 400}]
    late = [{"role": "user", "content": "word " * 400}, TALK[2]]
    silent = TALK[:2]

    data = chat([{"messages": talk} for talk in (TALK, long, late, silent)])

    assert data.notes[1:3] == (
        "1 conversations were cut to 256 tokens",
        "2 conversations were left out, since no target is within 256 tokens",
    )
    assert len(indexed(data)) == 2


@pytest.mark.parametrize(
    ("line", "members", "pointer", "hint"),
    [
        ({"text": "x"}, {}, "path", "a.jsonl, line 2 has neither `messages` nor `conversations` (it holds text)"),
        ({"messages": []}, {}, "path", "line 2: `messages` is an empty list"),
        ({"messages": "hello"}, {}, "path", "line 2: `messages` is a str"),
        (
            {"messages": [{"from": "gpt", "value": "x"}]},
            {},
            "path",
            'needs "role" and "content" (it holds from, value)',
        ),
        ({"messages": [{"role": "user", "content": 3}]}, {}, "path", "must be text, not int"),
        ({"messages": [{"role": "user", "content": None}]}, {}, "path", "a message of 'user' has no content"),
        ({"conversations": [{"from": "alien", "value": "x"}]}, {}, "path", "nobody knows who 'alien' is"),
        ([1], {}, "path", "line 2 holds a list; give one JSON object a line"),
        ({"messages": TALK}, {"template": SHOUTS}, "train_on", "{% generation %}"),
        ({"messages": TALK}, {"template": "{{ raise_exception('no system here') }}"}, "template", "no system here"),
        ({"messages": TALK}, {"template": "{% for %}"}, "template", "does not fit the chat template"),
        ({"messages": TALK}, {"tokenizer": "bytes"}, "template", "give a Jinja template"),
        ({"messages": TALK}, {"tokenizer": "input:nowhere"}, "tokenizer", "does not exist"),
        ({"messages": TALK}, {"tokenizer": "input:train"}, "tokenizer", "holds no tokenizer"),
        ({"messages": TALK}, {"tokenizer": "model"}, "tokenizer", "needs a `huggingface` model with weights"),
    ],
)
def test_what_is_no_conversation_is_named_with_its_line_and_the_way_out(
    chat: Callable[..., DataSets], line: Any, members: dict[str, Any], pointer: str, hint: str
) -> None:
    with pytest.raises(UserFault) as refused:
        chat([{"messages": TALK}, line], **members)

    assert refused.value.pointer == f"/workload/data/{pointer}"
    assert hint in str(refused.value)


def test_what_has_no_utf8_does_not_stop_a_tokenizer(chat: Callable[..., DataSets], places: Places) -> None:
    samples = indexed(chat([{"messages": [TALK[1], {"role": "assistant", "content": "ab\ud800 ä"}]}]))

    row = only_row(samples)
    assert decoded(places, row["labels"][row["labels"] != IGNORED]) == "ab? ä<|im_end|>"


@pytest.mark.parametrize(
    ("name", "content", "hint"),
    [
        ("tokenizer.json", '{"nope":', "cannot be read as a tokenizer"),
        (
            "tokenizer_config.json",
            '{"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["own.Own", null]}}',
            "custom code",
        ),
    ],
)
def test_a_tokenizer_that_is_broken_or_brings_code_is_refused(
    chat: Callable[..., DataSets], places: Places, name: str, content: str, hint: str
) -> None:
    chat([{"messages": TALK}])
    (places.inputs / "tok" / name).write_text(content)
    (places.inputs / "tok" / "own.py").write_text("raise SystemExit('this ran')")

    with pytest.raises(UserFault, match=r"/workload/data/tokenizer: 'input:tok' cannot be read") as refused:
        chat([{"messages": TALK}])

    assert hint in str(refused.value)


def test_a_vocabulary_larger_than_the_models_is_refused_with_both_numbers(
    chat: Callable[..., DataSets], places: Places
) -> None:
    chat([{"messages": TALK}])
    write_tokenizer(places.inputs / "large", vocab=600)
    size = len(json.loads((places.inputs / "large" / "tokenizer.json").read_text())["model"]["vocab"])

    with pytest.raises(UserFault, match=rf"has {size} ids, more than the model's vocabulary of 256"):
        build_data(parsed(data={"kind": "chat", "path": "input:train/*", "tokenizer": "input:large"}), places)


def parted(batch: Mapping[str, Any], row: int) -> list[list[int]]:
    """The texts of a row, without its padding, which is a text of its own without a beginning token."""
    begins = [*(batch["position_ids"][row] == 0).nonzero().flatten().tolist(), 256]
    ids = batch["input_ids"][row].tolist()
    return [ids[a:b] for a, b in pairwise(begins) if ids[a] == 0]


def indexed(data: DataSets) -> Samples:
    assert not isinstance(data.train, Unindexed)
    return data.train


def only_row(samples: Samples) -> dict[str, Any]:
    assert len(samples) == 1
    return {name: value[0] for name, value in samples.take(np.array([0]), np.array([0])).items()}


def decoded(places: Places, ids: torch.Tensor) -> str:
    from transformers import AutoTokenizer

    return str(AutoTokenizer.from_pretrained(str(places.inputs / "tok")).decode(ids.tolist()))
