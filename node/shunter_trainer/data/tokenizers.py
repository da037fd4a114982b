"""Tokenizers of the document: `bytes`, the model's own, or a folder or file of an input.

Those of files are read by `transformers`, which runs no code out of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from shunter_schemas.training import TrainingWorkload

from shunter_trainer.data.packages import package
from shunter_trainer.data.tables import Ids
from shunter_trainer.failures import UserFault
from shunter_trainer.places import Places

BYTES_VOCAB = 256

Span = tuple[int, int]
"""Characters of a text: the first, and the one behind the last."""
Marked = tuple[str, Sequence[Span]]
Marks = NDArray[np.bool_]


class Frame(NamedTuple):
    """Tokens that stand around every text."""

    before: tuple[int, ...]
    after: tuple[int, ...]


class Tokenizer(Protocol):
    """Text to ids."""

    name: str
    """As the document has it."""
    digest: str
    """Changes whenever the ids of any text may change."""

    @property
    def vocab(self) -> int:
        """All ids are below it."""
        ...

    @property
    def padding(self) -> int:
        """The id that fills rows; it is never a target."""
        ...

    def frame(self, ends: bool) -> Frame:
        """What stands around a text. `ends`: also what says that it is over.

        Raises: UserFault when the tokenizer has nothing to say it with.
        """
        ...

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of each text, nothing added."""
        ...

    def encode_marked(self, texts: Sequence[Marked]) -> list[tuple[Ids, Marks]]:
        """The ids of each text, nothing added, and for each id whether it holds a character of the text's spans."""
        ...

    def template(self, with_tools: bool) -> str:
        """The chat template that comes with it. Raises: UserFault when there is none."""
        ...

    @property
    def special_tokens(self) -> dict[str, Any]:
        """What chat templates may name, such as `bos_token`."""
        ...


def find_tokenizer(name: str, workload: TrainingWorkload, places: Places, pointer: str) -> Tokenizer:
    """The tokenizer that `tokenizer` of the document names. Its files are read when they are needed.

    Raises: UserFault when there is no such thing.
    """
    if name == "bytes":
        return BytesTokenizer(pointer)
    if name == "model":
        weights = getattr(workload.model, "weights", None)
        if weights is None:
            detail = "`model` needs a `huggingface` model with weights, whose folder holds its tokenizer"
            raise UserFault(pointer, f"{detail}; give `bytes` or `input:NAME[/path]`")
        return FileTokenizer(places.resolve(weights), name, pointer)
    return FileTokenizer(places.resolve(name), name, pointer)


class BytesTokenizer:
    """A token is a byte of UTF-8. The zero byte ends texts: it occurs in none."""

    name = "bytes"
    digest = "bytes-1"
    vocab = BYTES_VOCAB
    padding = 0
    special_tokens: dict[str, Any] = {}  # noqa: RUF012  # a constant, and the protocol's type

    def __init__(self, pointer: str) -> None:
        self._pointer = pointer

    def frame(self, ends: bool) -> Frame:
        return Frame((), (0,) if ends else ())

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        return [_bytes(text) for text in texts]

    def encode_marked(self, texts: Sequence[Marked]) -> list[tuple[Ids, Marks]]:
        return [_marked_bytes(*marked) for marked in texts]

    def template(self, with_tools: bool) -> str:
        raise UserFault(
            f"{self._pointer.rpartition('/')[0]}/template",
            "the `bytes` tokenizer has no chat template; give a Jinja template, or another tokenizer",
        )


class FileTokenizer:
    """A tokenizer of the Hugging Face kind: a folder, or a `tokenizer.json` alone."""

    def __init__(self, path: Path, name: str, pointer: str) -> None:
        """Raises: UserFault when nothing is there."""
        self.name = name
        self._path = path
        self._pointer = pointer
        files = _tokenizer_files(path)
        if not files:
            what = "holds no tokenizer (tokenizer.json or tokenizer_config.json)" if path.is_dir() else "does not exist"
            raise UserFault(pointer, f"{name!r}: {path.name or path} {what}; give the folder that has one, or `bytes`")
        self.digest = _digest(files)

    @cached_property
    def _own(self) -> Any:
        transformers = package("transformers", "transformers", self._pointer)
        try:
            if self._path.is_dir():
                return transformers.AutoTokenizer.from_pretrained(
                    str(self._path), trust_remote_code=False, local_files_only=True
                )
            return transformers.PreTrainedTokenizerFast(tokenizer_file=str(self._path))
        except Exception as error:  # the library raises whatever a broken file leads to
            first = str(error).strip().partition("\n")[0]
            raise UserFault(
                self._pointer,
                f"{self.name!r} cannot be read as a tokenizer ({type(error).__name__}: {first}); "
                "give the folder that `save_pretrained` wrote, with no code of its own",
            ) from error

    @property
    def vocab(self) -> int:
        return self._size

    @property
    def padding(self) -> int:
        own = self._own
        return int(next(i for i in (own.pad_token_id, own.eos_token_id, 0) if i is not None))

    @property
    def special_tokens(self) -> dict[str, Any]:
        tokens: dict[str, Any] = self._own.special_tokens_map
        return tokens

    def frame(self, ends: bool) -> Frame:
        before, after = self._specials
        if not ends or after:
            return Frame(before, after)
        return Frame(before, (self._end,))

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        if (backend := self._backend) is not None:
            whole = [_whole(text) for text in texts]
            return [np.array(found.ids, dtype=np.int64) for found in backend.encode_batch_fast(whole, False)]
        own = self._own
        return [np.array(own.encode(_whole(text), add_special_tokens=False), dtype=np.int64) for text in texts]

    def encode_marked(self, texts: Sequence[Marked]) -> list[tuple[Ids, Marks]]:
        backend = self._backend
        if backend is None:
            raise UserFault(
                self._pointer,
                f"{self.name!r} does not tell where its tokens come from, which `train_on` assistant needs; "
                "give a tokenizer with a tokenizer.json",
            )
        encoded = backend.encode_batch([_whole(text) for text, _ in texts], add_special_tokens=False)
        return [_marked_tokens(found, spans) for found, (_, spans) in zip(encoded, texts, strict=True)]

    def template(self, with_tools: bool) -> str:
        try:
            found: str = self._own.get_chat_template(tools=[] if with_tools else None)
        except ValueError as error:
            place = f"{self._pointer.rpartition('/')[0]}/template"
            detail = "has no chat template" if self._own.chat_template is None else "has several chat templates"
            raise UserFault(place, f"the tokenizer {self.name!r} {detail}; give one as Jinja text") from error
        return found

    @cached_property
    def _size(self) -> int:
        ids = self._own.get_vocab().values()
        return max(len(self._own), max(ids, default=0) + 1)

    @cached_property
    def _backend(self) -> Any:
        """The library's own fast part, free of whatever cutting and padding its file asks for; None: it has none."""
        backend = getattr(self._own, "backend_tokenizer", None)
        if backend is not None:
            backend.no_truncation()
            backend.no_padding()
        return backend

    @cached_property
    def _specials(self) -> Frame:
        """What the tokenizer itself puts around a text, such as a first token."""
        bare: list[int] = self._own.encode("x", add_special_tokens=False)
        whole: list[int] = self._own.encode("x", add_special_tokens=True)
        for at in range(len(whole) - len(bare) + 1):
            if whole[at : at + len(bare)] == bare:
                return Frame(tuple(whole[:at]), tuple(whole[at + len(bare) :]))
        return Frame((), ())

    @property
    def _end(self) -> int:
        if self._own.eos_token_id is not None:
            return int(self._own.eos_token_id)
        known = self._own.get_vocab()
        for token in _USUAL_ENDS:
            if token in known:
                return int(known[token])
        raise UserFault(
            self._pointer,
            f"{self.name!r} has no token that ends a text; give its folder, with `eos_token` in tokenizer_config.json",
        )


_USUAL_ENDS = ("</s>", "<|endoftext|>", "<|end_of_text|>", "<eos>", "<|im_end|>", "[SEP]")
_NAMES = (
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template*",
    "additional_chat_templates/*",
    "vocab*",
    "merges.txt",
    "spiece.model",
    "sentencepiece*",
    "config.json",
)


def _tokenizer_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    files = {file for pattern in _NAMES for file in path.glob(pattern) if file.is_file()}
    return sorted(files) if any(file.name != "config.json" for file in files) else []


def _digest(files: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.name}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    for distribution in ("tokenizers", "transformers"):
        try:
            digest.update(version(distribution).encode())
        except PackageNotFoundError:
            digest.update(b"none")
    return digest.hexdigest()


def _marked_bytes(text: str, spans: Sequence[Span]) -> tuple[Ids, Marks]:
    ids = _bytes(text)
    marks = np.zeros(len(ids), dtype=bool)
    for start, stop in spans:
        first = len(_bytes(text[:start]))
        marks[first : first + len(_bytes(text[start:stop]))] = True
    return ids, marks


def _marked_tokens(found: Any, spans: Sequence[Span]) -> tuple[Ids, Marks]:
    """`found`: what the library says of one text."""
    offsets = np.array(found.offsets, dtype=np.int64).reshape(-1, 2)
    marks = np.zeros(len(offsets), dtype=bool)
    for start, stop in spans:
        marks |= (offsets[:, 0] < stop) & (offsets[:, 1] > start)
    return np.array(found.ids, dtype=np.int64), marks


def _bytes(text: str) -> Ids:
    return np.frombuffer(text.encode(errors="replace"), dtype=np.uint8)


def _whole(text: str) -> str:
    """Without lone surrogates, which are legal in JSON but have no UTF-8; of the same length."""
    return text if text.isascii() else text.encode(errors="replace").decode()
