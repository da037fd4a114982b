"""Peak speed of GPUs in 16-bit matrix products, dense (without sparsity): what MFU is a share of."""

from __future__ import annotations

from typing import Final, NamedTuple


class GpuPeak(NamedTuple):
    """`words`: all of them stand, as words, in the name that the driver gives the GPU, in any case."""

    words: tuple[str, ...]
    tflops: float
    source: str
    """The maker's page or data sheet; figures there that assume sparsity are halved."""


_NVIDIA: Final = "https://www.nvidia.com/en-us/data-center"
_AMD: Final = "https://www.amd.com/en/products/accelerators/instinct"

# fmt: off
GPU_PEAKS: Final[tuple[GpuPeak, ...]] = (  # the first that fits counts, so narrower names come first
    GpuPeak(("GB200",), 2500.0, f"{_NVIDIA}/gb200-nvl72/"),
    GpuPeak(("B300",), 2250.0, f"{_NVIDIA}/dgx-b300/"),
    GpuPeak(("B200",), 2250.0, f"{_NVIDIA}/dgx-b200/"),
    GpuPeak(("H200", "NVL"), 835.5, f"{_NVIDIA}/h200/"),
    GpuPeak(("GH200",), 989.5, f"{_NVIDIA}/grace-hopper-superchip/"),
    GpuPeak(("H200",), 989.5, f"{_NVIDIA}/h200/"),
    GpuPeak(("H100", "NVL"), 835.5, f"{_NVIDIA}/h100/"),
    GpuPeak(("H100", "PCIE"), 756.5, f"{_NVIDIA}/h100/"),
    GpuPeak(("H100",), 989.5, f"{_NVIDIA}/h100/"),
    GpuPeak(("H20",), 148.0, "NVIDIA H20 data sheet"),
    GpuPeak(("A100",), 312.0, f"{_NVIDIA}/a100/"),
    GpuPeak(("A800",), 312.0, "NVIDIA A800 data sheet"),
    GpuPeak(("L40S",), 362.05, f"{_NVIDIA}/l40s/"),
    GpuPeak(("L40",), 181.05, f"{_NVIDIA}/l40/"),
    GpuPeak(("L4",), 121.0, f"{_NVIDIA}/l4/"),
    GpuPeak(("A40",), 149.7, f"{_NVIDIA}/a40/"),
    GpuPeak(("A30",), 165.0, f"{_NVIDIA}/products/a30-gpu/"),
    GpuPeak(("A10G",), 70.0, "NVIDIA A10G data sheet, as AWS shows it for its G5 instances"),
    GpuPeak(("A10",), 125.0, f"{_NVIDIA}/products/a10-gpu/"),
    GpuPeak(("RTX A6000",), 154.8, "NVIDIA RTX A6000 data sheet"),
    GpuPeak(("RTX PRO 6000",), 503.8, "NVIDIA RTX Blackwell GPU architecture: FP16 with FP32 accumulate"),
    GpuPeak(("RTX 5090",), 209.5, "NVIDIA RTX Blackwell GPU architecture: FP16 with FP32 accumulate"),
    GpuPeak(("RTX 4090",), 165.2, "NVIDIA Ada GPU architecture, appendix A: FP16 with FP32 accumulate"),
    GpuPeak(("RTX 3090 TI",), 80.0, "NVIDIA Ada GPU architecture, appendix A: FP16 with FP32 accumulate"),
    GpuPeak(("RTX 3090",), 71.0, "NVIDIA Ampere GA102 architecture, appendix A: FP16 with FP32 accumulate"),
    GpuPeak(("V100", "PCIE"), 112.0, f"{_NVIDIA}/v100/"),
    GpuPeak(("V100",), 125.0, f"{_NVIDIA}/v100/"),
    GpuPeak(("T4",), 65.0, f"{_NVIDIA}/tesla-t4/"),
    GpuPeak(("MI355X",), 2516.6, f"{_AMD}/mi350/mi355x.html"),
    GpuPeak(("MI325X",), 1307.4, f"{_AMD}/mi300/mi325x.html"),
    GpuPeak(("MI300X",), 1307.4, f"{_AMD}/mi300/mi300x.html"),
    GpuPeak(("MI250X",), 191.5, f"{_AMD}/mi200/mi250x.html (one of its two dies, which is one device to torch)"),
)
# fmt: on


def peak_tflops(gpu_name: str) -> float | None:
    """The peak of a GPU by the driver's name for it (`NVIDIA H100 80GB HBM3`); None: not known."""
    name = f" {gpu_name.upper()} ".replace("-", " ")
    return next((gpu.tflops for gpu in GPU_PEAKS if all(f" {word} " in name for word in gpu.words)), None)
