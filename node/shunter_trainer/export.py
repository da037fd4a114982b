"""What a finished training leaves behind in the output folder: weights as safetensors, and `config.json`.

A `transformer` has the names and the configuration of Hugging Face's `LlamaForCausalLM`, a `huggingface` model those of
its own class, so `from_pretrained` reads both; tokenizer files that came with the weights go along. A `python` model
keeps its own names, and the configuration says how it was built. What was trained with an adapter is exported as

- `adapter`: `adapter_model.safetensors` and `adapter_config.json`, for `PeftModel.from_pretrained` on the same base;
- `merged`: a model without adapters, W + scale · B A in place of W;
- `full`: the merged model, and the adapter in the folder `adapter`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from shunter_trainer.gang import Gang
from shunter_trainer.models.lora import LoraForm, Merger, adapter_weights, is_trained
from shunter_trainer.models.release import Release
from shunter_trainer.shards import ShardWriter
from shunter_trainer.strategies.base import Strategy

CONFIG = "config.json"
ADAPTER_CONFIG = "adapter_config.json"
SHARD_BYTES = 5 * 10**9
"""The largest weight file; a model above it is split."""


def export(
    strategy: Strategy,
    release: Release,
    folder: Path,
    gang: Gang,
    *,
    weights: str = "full",
    shard_bytes: int = SHARD_BYTES,
) -> None:
    """Write all files on rank 0. Every rank must call it, since weights are gathered one by one.

    `weights`: what of it, as in `workload.export.weights`.
    """
    lora = release.lora
    whole = _Whole(release, folder, shard_bytes) if lora is None or weights != "adapter" else None
    into = folder if weights == "adapter" else folder / "adapter"
    adapter = _Adapter(lora, into, shard_bytes) if lora is not None and weights != "merged" else None

    def is_wanted(name: str) -> bool:
        if name in release.left_out or name in release.read_again:
            return False
        return whole is not None or lora is None or is_trained(name, lora)

    writers = [writer for writer in (whole, adapter) if writer is not None]
    for named in strategy.weights(is_wanted):
        if gang.is_main:
            for writer in writers:
                writer.add(named)
    if gang.is_main:
        if whole is not None and release.base is not None:
            for named in release.base():
                whole.add(named)
        for writer in writers:
            writer.close()


class _Whole:
    """The model as others load it."""

    def __init__(self, release: Release, folder: Path, shard_bytes: int) -> None:
        self._release = release
        self._folder = folder
        self._merge = Merger(release.lora) if release.lora else None
        self._shards = ShardWriter(folder, "model", shard_bytes)
        self._dtype: torch.dtype | None = None

    def add(self, named: tuple[str, Tensor]) -> None:
        for name, value in self._stored(named):
            self._shards.add(name, value)

    def _stored(self, named: tuple[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        plain: Iterable[tuple[str, Tensor]] = self._merge(named) if self._merge else (named,)
        for name, value in plain:
            for stored, part in self._release.convert((name, value)):
                yield stored, self._cast(part)

    def _cast(self, value: Tensor) -> Tensor:
        if not value.is_floating_point():
            return value
        self._dtype = self._dtype or self._release.dtype or value.dtype
        return value if self._release.dtype is None else value.to(self._release.dtype)

    def close(self) -> None:
        self._shards.close()
        told = {self._release.dtype_key: str(self._dtype or torch.float32).removeprefix("torch.")}
        _write_json(self._folder / CONFIG, {**self._release.config, **told})
        for file in self._release.companions:
            if file.name != CONFIG:
                shutil.copyfile(file, self._folder / file.name)


class _Adapter:
    """The adapter alone, as `peft` loads it."""

    def __init__(self, lora: LoraForm, folder: Path, shard_bytes: int) -> None:
        self._lora = lora
        self._folder = folder
        self._shards = ShardWriter(folder, "adapter_model", max(shard_bytes, SHARD_BYTES))

    def add(self, named: tuple[str, Tensor]) -> None:
        for name, value in adapter_weights((named,), self._lora):
            self._shards.add(name, value)

    def close(self) -> None:
        self._shards.close()
        _write_json(self._folder / ADAPTER_CONFIG, dict(self._lora.config))


def _write_json(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
