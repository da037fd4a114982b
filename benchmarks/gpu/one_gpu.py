"""Speed, memory and MFU of the trainer on one NVIDIA GPU, in under 8 minutes; `--smoke` runs it at toy size on a CPU.

    python benchmarks/gpu/one_gpu.py [--out figures.json] [--smoke]

Every case is a job document, run by the trainer as an agent runs it, in a process of its own: a 125 M and a 1 B model
in bf16, as they are, with `compile`, with activations recomputed, under FSDP; then the 125 M model in a loop by hand
and in the trainer's, in turns, for their ratio. Prints one line a case: tokens per second, MFU, where the time of a
step goes, peak memory, and beside it the memory that the formulas below predict. Figures are the medians of the points
after the first ten steps. A case ends with its last step, before a checkpoint would be written.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

GIB = 2.0**30
WARM_STEPS = 10
SIZES: dict[str, dict[str, int]] = {
    "125m": {"layers": 12, "hidden": 768, "heads": 12, "kv_heads": 12, "ffn": 2048, "vocab": 32000, "context": 2048},
    "1b": {"layers": 16, "hidden": 2048, "heads": 32, "kv_heads": 8, "ffn": 8192, "vocab": 32000, "context": 2048},
    "toy": {"layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "ffn": 64, "vocab": 256, "context": 32},
}


class Case(NamedTuple):
    """One training that is measured."""

    name: str
    size: str
    batch: int
    steps: int
    members: dict[str, Any] = {}  # noqa: RUF012  # never changed
    strategy: str = "ddp"


CASES = (
    Case("125m bf16", "125m", 16, 60),
    Case("125m bf16 compile", "125m", 16, 60, {"compile": True}),
    Case("125m bf16 fsdp", "125m", 16, 60, strategy="fsdp"),
    Case("1b bf16", "1b", 8, 40),
    Case("1b bf16 compile", "1b", 8, 40, {"compile": True}),
    Case("1b bf16 selective", "1b", 8, 40, {"activation_checkpointing": "selective"}),
    Case("1b bf16 full", "1b", 8, 40, {"activation_checkpointing": "full"}),
)
SMOKE = (
    Case("toy bf16", "toy", 4, 14),
    Case("toy bf16 fsdp full", "toy", 4, 14, {"activation_checkpointing": "full"}, "fsdp"),
)


def document(case: Case) -> dict[str, Any]:
    """The job document of a case: random tokens, so that nothing has to be there."""
    workload = {
        "kind": "training",
        "model": {"kind": "transformer", **SIZES[case.size]},
        "data": {"kind": "synthetic", "samples": 4096},
        "optimizer": {"kind": "adamw", "lr": 1e-4, "weight_decay": 0.1},
        "batch": {"global_size": case.batch, "micro_size": case.batch},
        "duration": {"steps": case.steps},
        "precision": "bf16",
        "gradient_clip_norm": 1.0,
        "checkpoint": {"every_s": 86400},
        "log_every_steps": 5 if case.size != "toy" else 1,
        **case.members,
    }
    return {"version": "1", "name": "gpu", "workload": workload, "strategy": {"kind": case.strategy}}


def predicted_gib(case: Case) -> float:
    """Peak memory of tensors by formula, without recomputation: states, activations, logits.

    States are fp32 weights, gradients and two moments, 16 bytes a parameter. A block of hidden width h and
    feed-forward width f keeps about 2 * (7h + 2kv + 3f) bytes of bf16 results and 3 * 4h of the fp32 residual stream
    a token; the head keeps its logits in bf16 and in fp32, and their gradient. With `full` recomputation a block keeps
    4h a token.
    """
    size = SIZES[case.size]
    kv = size["hidden"] * size["kv_heads"] // size["heads"]
    block = 2 * size["hidden"] ** 2 + 2 * size["hidden"] * kv + 3 * size["hidden"] * size["ffn"]
    parameters = size["layers"] * block + 2 * size["vocab"] * size["hidden"]
    kept = 2 * (7 * size["hidden"] + 2 * kv + 3 * size["ffn"]) + 12 * size["hidden"]
    if case.members.get("activation_checkpointing") == "full":
        kept = 4 * size["hidden"]
    tokens = case.batch * size["context"]
    return (16 * parameters + tokens * (size["layers"] * kept + 10 * size["vocab"])) / GIB


def run(case: Case, folder: Path, *, on_cpu: bool) -> list[dict[str, Any]]:
    """Train a case; the points of its metrics."""
    folder.mkdir()
    (folder / "document.json").write_text(json.dumps(document(case)))
    environment = {
        **os.environ,
        "SHUNTER_DOCUMENT": str(folder / "document.json"),
        "SHUNTER_CHECKPOINT_DIR": str(folder / "checkpoints"),
        "SHUNTER_OUTPUT_DIR": str(folder / "output"),
        "SHUNTER_METRICS_FILE": str(folder / "metrics.jsonl"),
        **({"CUDA_VISIBLE_DEVICES": "", "SHUNTER_PEAK_TFLOPS": "0.1", "OMP_NUM_THREADS": "1"} if on_cpu else {}),
    }
    with (folder / "stderr").open("wb") as errors:
        command = [sys.executable, "-m", "shunter_trainer"]
        rank = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=errors)
    lines: list[dict[str, Any]] = []
    while not any(line.get("step") == case.steps for line in lines):
        if rank.poll() not in (None, 0):
            failed = next((line["message"] for line in lines if line.get("event") == "failure"), None)
            raise SystemExit(f"{case.name}: {failed or (folder / 'stderr').read_text()[-2000:]}")
        time.sleep(0.1)
        lines = _lines(folder / "metrics.jsonl")
    rank.kill()
    rank.wait()
    return [line for line in lines if "step" in line]


def _lines(file: Path) -> list[dict[str, Any]]:
    text = file.read_text() if file.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def figures(case: Case, points: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    """Medians after the warm-up."""
    steady = [point for point in points if point["step"] > WARM_STEPS]

    def middle(name: str) -> float | None:
        values = [point[name] for point in steady if name in point]
        return statistics.median(values) if values else None

    names = ("tokens_per_s", "mfu", "step_time_s", "data_time_s", "forward_time_s", "backward_time_s")
    measured = {name: middle(name) for name in (*names, "optimizer_time_s")}
    peak = max(point["peak_memory_gib"] for point in points)
    return {
        "case": case.name,
        **measured,
        "peak_memory_gib": peak,
        "predicted_gib": predicted_gib(case),
        "seconds": seconds,
        "loss": points[-1]["loss"],
    }


def line(found: dict[str, Any]) -> str:
    """One case for people."""
    mfu = "-" if found["mfu"] is None else f"{found['mfu']:.1%}"
    phases = "/".join(
        f"{1000 * (found[name] or 0):.1f}"
        for name in ("data_time_s", "forward_time_s", "backward_time_s", "optimizer_time_s")
    )
    speed = f"{found['tokens_per_s']:10.0f} tokens/s  MFU {mfu:>6}"
    step = f"step {1000 * found['step_time_s']:.1f} ms (data/forward/backward/optimizer {phases})"
    memory = f"peak {found['peak_memory_gib']:.2f} GiB, predicted {found['predicted_gib']:.2f}"
    return f"{found['case']:22} {speed}  {step}  {memory}  {found['seconds']:.0f} s in all"


def bare_tokens_per_s(case: Case, *, on_cpu: bool) -> float:
    """The same model, precision, optimizer and clipping in a loop by hand; tokens a second, in a process of its own."""
    variables = {**os.environ, **({"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"} if on_cpu else {})}
    program = Path(__file__).with_name("bare_loop.py")
    answer = subprocess.run(
        [sys.executable, str(program), json.dumps(document(case))],
        env=variables,
        capture_output=True,
        text=True,
        check=True,
    )
    return float(answer.stdout.splitlines()[-1])


def main() -> None:
    """Run everything and print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, help="Write the figures as JSON too.")
    parser.add_argument("--smoke", action="store_true", help="Toy sizes, on the CPU.")
    parser.add_argument("--rounds", type=int, default=3, help="Pairs of a loop by hand and the trainer's.")
    options = parser.parse_args()
    cases = SMOKE if options.smoke else CASES
    found, ratios = [], []
    with tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(cases):
            began = time.monotonic()
            points = run(case, Path(folder) / str(number), on_cpu=options.smoke)
            found.append(figures(case, points, time.monotonic() - began))
            print(line(found[-1]), flush=True)
        for number in range(1 if options.smoke else options.rounds):
            bare = bare_tokens_per_s(cases[0], on_cpu=options.smoke)
            ours = figures(cases[0], run(cases[0], Path(folder) / f"pair-{number}", on_cpu=options.smoke), 0.0)
            ratios.append(ours["tokens_per_s"] / bare)
            print(f"by hand {bare:.0f}  trainer {ours['tokens_per_s']:.0f} tokens/s  {ratios[-1]:.3f}", flush=True)
    print(f"trainer / by hand: median {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
    if options.out is not None:
        options.out.write_text(json.dumps({"cases": found, "ratios": ratios}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
