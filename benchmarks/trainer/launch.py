"""Where the time from the start of the processes to their first step goes.

    python benchmarks/trainer/launch.py [--rounds 7] [--ranks 2]

Interleaved: our trainer started as an agent starts it, and `torchrun` with an equivalent script by hand (same model
size, DDP, one AdamW step). Prints the median of each with its range, the parts of ours, the same for a start that takes
up at a checkpoint, and the heaviest imports.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DOCUMENT = {
    "workload": {
        "kind": "training",
        "model": {
            "kind": "transformer",
            "layers": 3,
            "hidden": 128,
            "heads": 4,
            "ffn": 512,
            "vocab": 256,
            "context": 128,
        },
        "data": {"kind": "sample"},
        "batch": {"global_size": 16},
        "duration": {"steps": 1},
        "precision": "fp32",
    },
    "strategy": {"kind": "ddp"},
}

BY_HAND = """
import os, sys, time
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True)
model = DistributedDataParallel(nn.Sequential(nn.Embedding(256, 128), *[layer for _ in range(3)], nn.Linear(128, 256)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
tokens = torch.randint(256, (8, 128))
loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
loss.backward()
optimizer.step()
if dist.get_rank() == 0:
    open(sys.argv[1], "w").write(str(time.time()))
dist.barrier()
dist.destroy_process_group()
os._exit(0)
"""


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "document.json").write_text(json.dumps(DOCUMENT))
        (folder / "by_hand.py").write_text(BY_HAND)
        trainer: list[tuple[float, float]] = []
        resumed: list[float] = []
        torchrun: list[float] = []
        longer = {**DOCUMENT, "workload": {**DOCUMENT["workload"], "duration": {"steps": 2}}}  # type: ignore[dict-item]
        (folder / "longer.json").write_text(json.dumps(longer))
        for number in range(options.rounds):
            trainer.append(start_trainer(folder / str(number), options.ranks))
            from_checkpoint = {
                "SHUNTER_DOCUMENT": str(folder / "longer.json"),
                "SHUNTER_RESUME_DIR": str(folder / str(number) / "checkpoints"),
            }
            resumed.append(start_trainer(folder / f"resumed-{number}", options.ranks, **from_checkpoint)[1])
            torchrun.append(start_torchrun(folder, options.ranks))
        show("torchrun, by hand: first step after", torchrun)
        show("trainer: first step after", [step for _, step in trainer])
        show("  of which until the gang is up", [up for up, _ in trainer])
        show("trainer, resumed: next step after", resumed)
        later = [after - cold for after, (_, cold) in zip(resumed, trainer, strict=True)]
        show("  later than a cold start by", later)
        ratios = [ours / theirs for (_, ours), theirs in zip(trainer, torchrun, strict=True)]
        print(f"ratio of the pairs: median {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
        for module, milliseconds in imports(folder):
            print(f"  import {module:30} {milliseconds:6.0f} ms")


def show(label: str, seconds: list[float]) -> None:
    """One line with the median and the range."""
    print(f"{label:40} {statistics.median(seconds):5.2f} s  ({min(seconds):.2f} to {max(seconds):.2f})")


def start_trainer(folder: Path, ranks: int, *flags: str, **variables: str) -> tuple[float, float]:
    """Seconds from the start of the processes until rank 0 is up, and until its first step is done."""
    folder.mkdir()
    began = time.time()
    processes = [
        subprocess.Popen(
            [sys.executable, *flags, "-m", "shunter_trainer"],
            env=environment(rank, ranks, folder) | {"MASTER_PORT": port} | variables,
            stdout=subprocess.DEVNULL,
            stderr=(folder / f"stderr-{rank}").open("wb"),
            cwd=folder,
        )
        for port in [str(free_port())]
        for rank in range(ranks)
    ]
    up = step = None
    metrics = folder / "metrics-0.jsonl"
    while step is None and processes[0].poll() is None:
        time.sleep(0.002)
        text = metrics.read_text() if metrics.exists() else ""
        up = up or (time.time() - began if "up" in text else None)
        step = time.time() - began if '"step"' in text else None
    assert [process.wait(60) for process in processes] == [0] * ranks, (folder / "stderr-0").read_text()
    assert up is not None
    return up, step or time.time() - began


def start_torchrun(folder: Path, ranks: int) -> float:
    """The same for a script by hand under torchrun."""
    done = folder / "done"
    began = time.time()
    launcher = ["-m", "torch.distributed.run", f"--nproc-per-node={ranks}", f"--master-port={free_port()}"]
    subprocess.run(
        [sys.executable, *launcher, str(folder / "by_hand.py"), str(done)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
    )
    return float(done.read_text()) - began


def environment(rank: int, ranks: int, folder: Path) -> dict[str, str]:
    """What an agent sets."""
    return {
        **os.environ,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "SHUNTER_DOCUMENT": str(folder.parent / "document.json"),
        "SHUNTER_CHECKPOINT_DIR": str(folder / "checkpoints"),
        "SHUNTER_OUTPUT_DIR": str(folder / "output"),
        "SHUNTER_METRICS_FILE": str(folder / f"metrics-{rank}.jsonl"),
    }


def imports(folder: Path) -> list[tuple[str, float]]:
    """The heaviest of all imports that no other of these contains, in milliseconds."""
    start_trainer(folder / "imports", 1, "-X", "importtime")
    lines = re.findall(r"import time:\s+\d+ \|\s+(\d+) \| (\s*)(\S+)", (folder / "imports" / "stderr-0").read_text())
    wanted = ("torch", "pydantic", "shunter_schemas.training", "shunter_schemas.strategies", "shunter_trainer.run")
    return [(module, int(micro) / 1000) for micro, _, module in lines if module in wanted]


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


if __name__ == "__main__":
    main()
