"""The time of one optimizer step, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass

from shunter_planner.hardware.fabrics import Fabric
from shunter_planner.hardware.gpus import Gpu
from shunter_planner.models.shape import ModelShape
from shunter_planner.recipe import Cut, Recipe, Spread
from shunter_planner.timing.messages import messages
from shunter_planner.timing.priors import (
    ATTENTION_SHARE,
    BANDWIDTH_SHARE,
    COMPILED_PASSES,
    CPU_ADAM_S_PER_PARAMETER,
    CPU_FLOPS_PER_THREAD,
    FP8_GEMM_SHARE,
    GEMM_SHARE,
    LAUNCH_S_PER_LAYER,
    OVERLAP_LOSS,
    PASSES,
    PCIE_GB_PER_S,
    SMALL_WIDTH,
    family_of,
)
from shunter_planner.timing.work import counted_flops_per_token, work_per_token


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of one optimizer step, by part; `tokens` are those of all ranks."""

    products: float
    attention: float
    memory_bound: float
    waiting_for_host: float
    exposed_messages: float
    optimizer: float
    tokens: float
    counted_flops: float
    """Of all tokens, as MFU counts."""

    @property
    def total(self) -> float:
        """The whole step."""
        computing = self.products + self.attention + self.memory_bound + self.waiting_for_host
        return computing + self.exposed_messages + self.optimizer

    @property
    def tokens_per_s(self) -> float:
        """Over all ranks."""
        return self.tokens / self.total

    def mfu(self, gpu: Gpu, world: int) -> float:
        """As a share of the 16-bit peaks of all ranks."""
        return self.counted_flops / self.total / (world * gpu.bf16_tflops * 1e12)


def step_time(  # noqa: PLR0913, PLR0917  # a training and a machine
    shape: ModelShape, positions: int, recipe: Recipe, spread: Spread, cut: Cut, gpu: Gpu, fabric: Fabric
) -> StepTime:
    """One optimizer step on GPUs."""
    split = spread.tensor * spread.context
    tokens = cut.micro_size * positions / split
    work = work_per_token(shape, recipe, cut.checkpointing, positions)
    family = family_of(gpu.name)
    peak = gpu.bf16_tflops * 1e12
    products = tokens * work.products / _product_rate(shape, recipe, gpu, family)
    attention_rate = peak * ATTENTION_SHARE[family] if recipe.compute_bytes == 2 else gpu.fp32_tflops * 1e12 * 0.5
    attention = tokens * work.attention / attention_rate
    passes = COMPILED_PASSES if recipe.compiled else PASSES
    moved = tokens * work.moved_bytes * passes / (gpu.hbm_gb_per_s * 1e9 * BANDWIDTH_SHARE)
    computing = products + attention + moved
    again = 1.33 if cut.checkpointing != "none" else 1.0
    waiting = max(0.0, shape.layers * LAUNCH_S_PER_LAYER * again - computing)
    sent = messages(shape, recipe, spread, gpu, fabric)
    exposed = _exposed(sent.every_pass, computing + waiting) * cut.accumulation
    exposed += _exposed(sent.every_step, (computing + waiting) * 2 / 3)
    samples = cut.micro_size * cut.accumulation
    all_tokens = samples * positions * spread.data_ranks
    return StepTime(
        products=products * cut.accumulation,
        attention=attention * cut.accumulation,
        memory_bound=moved * cut.accumulation,
        waiting_for_host=waiting * cut.accumulation,
        exposed_messages=exposed,
        optimizer=_optimizer_s(shape, recipe, spread, gpu),
        tokens=all_tokens,
        counted_flops=all_tokens * counted_flops_per_token(shape, positions),
    )


def cpu_step_time(shape: ModelShape, positions: int, cut: Cut, world: int, threads_per_rank: int) -> StepTime:
    """One optimizer step on CPUs, within a factor of three: cores differ more than kernels do."""
    tokens = cut.micro_size * cut.accumulation * positions
    flops = counted_flops_per_token(shape, positions)
    again = 4 / 3 if cut.checkpointing == "full" else 1.0
    seconds = tokens * flops * again / (CPU_FLOPS_PER_THREAD * threads_per_rank)
    all_tokens = float(tokens * world)
    return StepTime(seconds, 0.0, 0.0, 0.0, 0.0, 0.0, all_tokens, all_tokens * flops)


def _product_rate(shape: ModelShape, recipe: Recipe, gpu: Gpu, family: str) -> float:
    """Operations a second of matrix products."""
    width = shape.hidden / (shape.hidden + SMALL_WIDTH)
    if recipe.dtype == "fp32" or (recipe.dtype == "bf16" and not gpu.has_bf16):
        return gpu.fp32_tflops * 1e12 * 0.8 * width
    bf16 = gpu.bf16_tflops * 1e12 * GEMM_SHARE[family]
    if recipe.dtype == "fp8" and gpu.fp8_tflops:
        return max(bf16, gpu.fp8_tflops * 1e12 * FP8_GEMM_SHARE) * width
    return bf16 * width


def _exposed(message_s: float, beside_s: float) -> float:
    """Seconds that a message adds to a computation of `beside_s` that runs at the same time."""
    hidden = min(message_s, beside_s)
    return message_s - hidden + OVERLAP_LOSS * hidden


def _optimizer_s(shape: ModelShape, recipe: Recipe, spread: Spread, gpu: Gpu) -> float:
    """Reading parameters, gradients and moments, writing all but the gradients; over PCIe where they are offloaded."""
    own = shape.trained_parameters / spread.tensor
    if spread.kind in ("fsdp", "hsdp"):
        own /= spread.shards
    elif spread.kind == "deepspeed" and spread.zero_stage:
        own /= spread.world
    if spread.offload_optimizer or spread.offload_parameters:
        there_and_back = own * (recipe.reduce_bytes + recipe.compute_bytes) / (PCIE_GB_PER_S * 1e9)
        return there_and_back + own * CPU_ADAM_S_PER_PARAMETER * 4
    moved = own * (3 * recipe.parameter_bytes + 2 * recipe.moment_bytes)
    return moved / (gpu.hbm_gb_per_s * 1e9 * BANDWIDTH_SHARE)
