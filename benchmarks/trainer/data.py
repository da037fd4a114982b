"""Throughput of data, by kind: how long preparing takes, samples a second, and what a step waits for its batch.

    python benchmarks/trainer/data.py [--kinds text,chat] [--samples 4000] [--step-ms 10] [--workers 2]

Everything is made on the spot: words for texts, 160 x 120 JPEG images. `prepared` is the one pass that a node makes,
`again` the start of a rank that finds it made. `samples/s` drains the stream of one rank as fast as it goes. `waits` is
the time that a step of `--step-ms` of other work waits for its batch, median and 95th percentile: what the step
breakdown shows as data time.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import statistics
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from shunter_schemas.training import TrainingWorkload
from shunter_trainer.data.build import build_data
from shunter_trainer.data.geometry import Geometry
from shunter_trainer.data.stream import Seat, open_stream
from shunter_trainer.places import Places

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from support.tokenizer_folders import write_tokenizer

BATCH = 32
LENGTH = 256
VIT = {"kind": "huggingface", "task": "image_classification", "config": {"model_type": "vit", "image_size": 128}}
LLAMA = {"kind": "transformer", "layers": 1, "hidden": 8, "heads": 2, "vocab": 512, "context": LENGTH}


def main() -> None:
    """One line a kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default=",".join(KINDS), help="which, of " + ", ".join(KINDS))
    parser.add_argument("--samples", type=int, default=4000, help="about how many samples are made")
    parser.add_argument("--step-ms", type=float, default=10.0, help="other work of a step")
    parser.add_argument("--workers", type=int, default=2, help="loader processes for images")
    options = parser.parse_args()
    print(f"{'kind':<22}{'samples':>9}{'prepared s':>12}{'again s':>9}{'samples/s':>11}{'waits ms':>10}{'95 %':>8}")
    for kind in options.kinds.split(","):
        with tempfile.TemporaryDirectory() as folder:
            print(_measured(kind, Path(folder), options), flush=True)


def _measured(kind: str, folder: Path, options: argparse.Namespace) -> str:
    inputs = folder / "inputs"
    inputs.mkdir()
    model, data = KINDS[kind](inputs, options.samples)
    if data["kind"] in ("image_folder", "webdataset"):
        data["workers_per_gpu"] = options.workers
    members = {"kind": "training", "model": model, "data": data}
    members |= {"batch": {"global_size": BATCH}, "duration": {"steps": 1}}
    workload = TrainingWorkload.model_validate_json(json.dumps(members))
    places = Places.from_environment(
        {
            "SHUNTER_DOCUMENT": "none",
            "SHUNTER_INPUTS_DIR": str(inputs),
            "SHUNTER_CHECKPOINT_DIR": str(folder / "checkpoints"),
        }
    )
    began = time.perf_counter()
    build_data(workload, places)
    prepared = time.perf_counter()
    made = build_data(workload, places)
    took = prepared - began, time.perf_counter() - prepared
    seat = Seat(Geometry(BATCH, BATCH, 1), 0, torch.device("cpu"), 1, 0)
    stream = open_stream(made.train, seat, made.workers)
    stream.next_step()
    began = time.perf_counter()
    steps = 0
    while time.perf_counter() - began < 2.0:
        stream.next_step()
        steps += 1
    rate = steps * BATCH / (time.perf_counter() - began)
    waits = sorted(_waits(stream, options.step_ms / 1000))
    stream.close()
    middle, late = 1000 * statistics.median(waits), 1000 * waits[int(0.95 * len(waits))]
    count = len(made.train)  # type: ignore[arg-type]  # all of these have a length
    return f"{kind:<22}{count:>9}{took[0]:>12.2f}{took[1]:>9.2f}{rate:>11.0f}{middle:>10.2f}{late:>8.2f}"


def _waits(stream: Any, work_s: float) -> Iterator[float]:
    for _ in range(100):
        time.sleep(work_s)
        began = time.perf_counter()
        stream.next_step()
        yield time.perf_counter() - began


def _words(count: int) -> str:
    return " ".join(_DICE.choices(_WORDS, k=count))


def _text(inputs: Path, samples: int, tokenizer: str) -> tuple[dict[str, Any], dict[str, Any]]:
    write_tokenizer(inputs / "tok")
    with (inputs / "a.txt").open("w") as file:
        for _ in range(samples):
            file.write(_words(LENGTH // 6) + "\n")
    return LLAMA, {"kind": "text", "path": "input:a.txt", "tokenizer": tokenizer, "sequence_length": LENGTH}


def _chat(inputs: Path, samples: int) -> tuple[dict[str, Any], dict[str, Any]]:
    write_tokenizer(inputs / "tok")
    with (inputs / "a.jsonl").open("w") as file:
        for _ in range(samples):
            turns = [{"role": role, "content": _words(8)} for role in ("user", "assistant") * 2]
            file.write(json.dumps({"messages": turns}) + "\n")
    return LLAMA, {"kind": "chat", "path": "input:a.jsonl", "tokenizer": "input:tok", "sequence_length": LENGTH}


def _parquet(inputs: Path, samples: int) -> tuple[dict[str, Any], dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text": [_words(LENGTH // 6) for _ in range(samples)]}), inputs / "a.parquet")
    return LLAMA, {"kind": "parquet", "path": "input:a.parquet", "packing": False, "sequence_length": LENGTH}


def _image() -> bytes:
    from PIL import Image

    out = io.BytesIO()
    values = np.random.default_rng(0).integers(0, 255, (15, 20, 3), dtype=np.uint8)
    Image.fromarray(values).resize((160, 120)).save(out, format="JPEG")
    return out.getvalue()


def _images(inputs: Path, samples: int) -> tuple[dict[str, Any], dict[str, Any]]:
    content = _image()
    for number in range(samples):
        file = inputs / "train" / f"class-{number % 10}" / f"{number}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return VIT, {"kind": "image_folder", "path": "input:train"}


def _shards(inputs: Path, samples: int) -> tuple[dict[str, Any], dict[str, Any]]:
    content = _image()
    for shard in range(4):
        with tarfile.open(inputs / f"{shard}.tar", "w") as tar:
            for number in range(shard, samples, 4):
                for name, part in ((f"{number:08}.jpg", content), (f"{number:08}.cls", b"3")):
                    member = tarfile.TarInfo(name)
                    member.size = len(part)
                    tar.addfile(member, io.BytesIO(part))
    return VIT, {"kind": "webdataset", "path": "input:*.tar", "samples": samples}


def _synthetic(_: Path, samples: int) -> tuple[dict[str, Any], dict[str, Any]]:
    return LLAMA, {"kind": "synthetic", "samples": samples}


_DICE = random.Random(0)
_WORDS = ["".join(_DICE.choices("abcdefghijklmnop", k=_DICE.randint(2, 9))) for _ in range(5000)]
KINDS: dict[str, Callable[[Path, int], tuple[dict[str, Any], dict[str, Any]]]] = {
    "text-bytes": lambda inputs, samples: _text(inputs, samples, "bytes"),
    "text-tokenizer": lambda inputs, samples: _text(inputs, samples, "input:tok"),
    "parquet-padded": _parquet,
    "chat-packed": _chat,
    "image_folder": _images,
    "webdataset": _shards,
    "synthetic": _synthetic,
}

if __name__ == "__main__":
    main()
