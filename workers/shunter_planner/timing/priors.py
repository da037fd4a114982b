"""The few constants of the time model: shares of peaks that real kernels reach. Each says what bounds its value.

How they were found: what kernels are known to reach (the prior at each) gave the range; within it the shares of
products and attention and the passes over memory were taken from a grid search over the published runs of
`benchmarks/planner/reference_points.csv`, and rounded. They are therefore fitted to the very runs that they are
compared with. What they are worth on runs that they never saw is the "leave one group out" line of
`docs/notes/planner.md` (median 5.3 %, 90th percentile 11.7 %, largest 32.5 %), not the table of all runs above it. Each
concerns a kind of kernel or of machine, none a model or a run.
"""

from __future__ import annotations

from typing import Final

GEMM_SHARE: Final = {"hopper": 0.62, "ampere": 0.80, "other": 0.70}
"""Of the dense 16-bit peak, large matrix products.

Prior: cuBLAS reaches 250 of 312 TFLOP/s on an A100 and 600 to 660 of 989 on an H100, whose clock falls under load by
power (FlashAttention-3, arXiv:2407.08608, figure 5).
"""
FP8_GEMM_SHARE: Final = 0.45
"""Of the fp8 peak, matrix products with the casts around them. Prior: torchao's float8 recipes, 1.2 to 1.5 x bf16."""
ATTENTION_SHARE: Final = {"hopper": 0.19, "ampere": 0.32, "other": 0.25}
"""Of the 16-bit peak, fused causal attention, forward and backward, with what surrounds it.

Prior: FlashAttention (arXiv:2205.14135, figure 5) to FlashAttention-2 (arXiv:2307.08691, figures 4 and 7): with a
causal mask 90 to 180 TFLOP/s of 312 on an A100 and 200 to 330 of 989 on an H100. Published trainings lie at the lower
end, since their sequences are split, biased or short; so do these values.
"""
BANDWIDTH_SHARE: Final = 0.80
"""Of the memory's bandwidth, kernels that only move numbers."""
PASSES: Final = 1.8
"""Times that the numbers counted in `timing.work` go through memory: a kernel for each operation, with casts and copies
between them that are not counted. Prior: 1 (nothing besides) to 2.5 (a cast around every operation)."""
COMPILED_PASSES: Final = 1.0
"""The same where blocks are compiled: what is counted is what is moved."""
SMALL_WIDTH: Final = 256.0
"""Matrix products of this width reach half of what large ones do: tiles at their edges."""
LAUNCH_S_PER_LAYER: Final = 4.0e-4
"""Forward and backward of one block, about 80 kernels of 5 us each: a small model waits for the host."""
OVERLAP_LOSS: Final = 0.15
"""Of communication that runs beside computation, what is lost all the same: both want the memory and some cores.

Korthikanti et al. and the DDP paper (arXiv:2006.15704, section 5) show overlapped steps 5 to 20 % longer than without
any message.
"""
CPU_FLOPS_PER_THREAD: Final = 25e9
"""fp32 products of torch on one core of a server of today with AVX2 or AVX-512, small models; within a factor of 3."""
CPU_ADAM_S_PER_PARAMETER: Final = 1.0e-9
"""DeepSpeed's CPU Adam: 1 to 1.5 s for 1 G parameters on a server (arXiv:2101.06840, table 4)."""
PCIE_GB_PER_S: Final = 25.0
"""Between host and GPU, each direction: PCIe 4 x 16 as measured."""

FAMILIES: Final = {
    "hopper": ("H100", "H200", "H800", "GH200", "H20", "B200", "B300", "GB200"),
    "ampere": ("A100", "A800", "A30", "A40", "V100"),
}


def family_of(gpu_name: str) -> str:
    """Which of the shares hold for a GPU."""
    first = gpu_name.split()[0]
    return next((family for family, names in FAMILIES.items() if first in names), "other")
