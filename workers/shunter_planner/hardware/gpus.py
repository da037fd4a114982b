"""GPUs: memory that a program gets, dense peaks, bandwidths, power.

16-bit peaks stand in `shunter_schemas.gpu_peaks`, where the trainer finds them too. Figures that makers give with
sparsity are halved, bandwidths over both directions too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from shunter_schemas.gpu_peaks import peak_tflops


@dataclass(frozen=True, slots=True)
class Gpu:
    """One kind of GPU as one rank sees it."""

    name: str
    memory_gib: float
    """What torch reports as the total: below the nominal size, which counts decimal GB or holds ECC and firmware."""
    bf16_tflops: float
    fp8_tflops: float
    """0: no fp8 units."""
    fp32_tflops: float
    """Without TF32, which torch leaves off by default."""
    hbm_gb_per_s: float
    link_gb_per_s: float
    """To the other GPUs of its node, each direction: NVLink or xGMI, else PCIe."""
    tdp_w: float
    has_switch: bool
    """Whether every pair of GPUs of a node has the whole link."""
    has_bf16: bool = True
    """False: computes bf16 in fp32, as Volta and Turing do."""
    known: bool = True
    """False: a guess for a GPU that is not in the table."""

    def tflops(self, dtype: str) -> float:
        """Dense peak for matrix products in `fp32`, `bf16`, `fp16` or `fp8`."""
        if dtype == "fp8" and self.fp8_tflops:
            return self.fp8_tflops
        return self.fp32_tflops if dtype == "fp32" else self.bf16_tflops


@dataclass(frozen=True, slots=True)
class _Row:
    words: tuple[str, ...]
    nominal_gib: float
    """0: of any size."""
    memory_gib: float
    fp8: float
    fp32: float
    hbm: float
    link: float
    tdp: float
    switch: bool
    source: str


_NV: Final = "nvidia.com/en-us/data-center"
_GB202: Final = "NVIDIA RTX Blackwell GPU architecture"
_AD102: Final = "NVIDIA Ada GPU architecture, appendix A"
_GA102: Final = "NVIDIA Ampere GA102 architecture"
_GH: Final = f"{_NV}/grace-hopper-superchip"
_TITAN: Final = "torchtitan, llama3_h100: HBM2e"
_DIE: Final = "amd.com, Instinct MI250X: a die"
_TORCH: Final = "memory: `total_memory` of torch, as its out-of-memory messages print it"

# fmt: off
_ROWS: Final[tuple[_Row, ...]] = (  # the first that fits counts
    #    name                 nominal  torch    fp8    fp32   HBM GB/s  link  TDP  switch  source of the rest
    _Row(("GB200",),               0, 184.0, 5000.0,  80.0, 8000.0, 900.0, 1200, True,  f"{_NV}/gb200-nvl72"),
    _Row(("B300",),                0, 267.0, 4500.0,  80.0, 8000.0, 900.0, 1400, True,  f"{_NV}/dgx-b300"),
    _Row(("B200",),                0, 178.4, 4500.0,  80.0, 8000.0, 900.0, 1000, True,  f"{_NV}/dgx-b200"),
    _Row(("H200", "NVL"),          0, 139.8, 1671.0,  60.0, 4800.0, 450.0,  600, False, f"{_NV}/h200"),
    _Row(("GH200",),             144, 139.8, 1979.0,  67.0, 4900.0, 450.0, 1000, False, _GH),
    _Row(("GH200",),               0,  94.5, 1979.0,  67.0, 4000.0, 450.0, 1000, False, _GH),
    _Row(("H200",),                0, 139.8, 1979.0,  67.0, 4800.0, 450.0,  700, True,  f"{_NV}/h200"),
    _Row(("H100", "NVL"),          0,  93.1, 1671.0,  60.0, 3900.0, 300.0,  400, False, f"{_NV}/h100"),
    _Row(("H100", "PCIE"),         0,  79.1, 1513.0,  51.0, 2000.0,  64.0,  350, False, f"{_NV}/h100"),
    _Row(("H100",),               96,  94.5, 1979.0,  67.0, 2400.0, 450.0,  500, True,  _TITAN),
    _Row(("H100",),               94,  93.1, 1671.0,  60.0, 3900.0, 300.0,  400, False, f"{_NV}/h100 (NVL)"),
    _Row(("H100",),                0,  79.1, 1979.0,  67.0, 3350.0, 450.0,  700, True,  f"{_NV}/h100"),
    _Row(("H800",),                0,  79.1, 1979.0,  67.0, 3350.0, 200.0,  700, True,  "NVIDIA H800 data sheet"),
    _Row(("H20",),                 0,  95.1,  296.0,  44.0, 4000.0, 450.0,  400, True,  "NVIDIA H20 data sheet"),
    _Row(("A100", "PCIE"),        40,  39.4,    0.0,  19.5, 1555.0,  32.0,  250, False, f"{_NV}/a100"),
    _Row(("A100", "PCIE"),         0,  79.2,    0.0,  19.5, 1935.0,  32.0,  300, False, f"{_NV}/a100"),
    _Row(("A100",),               40,  39.4,    0.0,  19.5, 1555.0, 300.0,  400, True,  f"{_NV}/a100"),
    _Row(("A100",),                0,  79.2,    0.0,  19.5, 2039.0, 300.0,  400, True,  f"{_NV}/a100"),
    _Row(("A800",),                0,  79.2,    0.0,  19.5, 2039.0, 200.0,  400, True,  "NVIDIA A800 data sheet"),
    _Row(("L40S",),                0,  44.4,  733.0,  91.6,  864.0,  32.0,  350, False, f"{_NV}/l40s"),
    _Row(("L40",),                 0,  44.4,  362.1,  90.5,  864.0,  32.0,  300, False, f"{_NV}/l40"),
    _Row(("L4",),                  0,  22.0,  242.5,  30.3,  300.0,  32.0,   72, False, f"{_NV}/l4"),
    _Row(("A40",),                 0,  44.4,    0.0,  37.4,  696.0,  32.0,  300, False, f"{_NV}/a40"),
    _Row(("A30",),                 0,  23.5,    0.0,  10.3,  933.0,  32.0,  165, False, f"{_NV}/products/a30-gpu"),
    _Row(("A10G",),                0,  22.0,    0.0,  31.5,  600.0,  32.0,  300, False, "NVIDIA A10G data sheet"),
    _Row(("A10",),                 0,  22.0,    0.0,  31.2,  600.0,  32.0,  150, False, f"{_NV}/products/a10-gpu"),
    _Row(("RTX", "A6000"),         0,  47.4,    0.0,  38.7,  768.0,  32.0,  300, False, "NVIDIA RTX A6000 data sheet"),
    _Row(("RTX", "PRO", "6000"),   0,  94.9, 1007.6, 126.0, 1792.0,  64.0,  600, False, _GB202),
    _Row(("RTX", "5090"),          0,  31.4,  419.0, 104.8, 1792.0,  64.0,  575, False, _GB202),
    _Row(("RTX", "4090"),          0,  23.6,  330.3,  82.6, 1008.0,  32.0,  450, False, _AD102),
    _Row(("RTX", "3090", "TI"),    0,  23.6,    0.0,  40.0, 1008.0,  32.0,  450, False, _AD102),
    _Row(("RTX", "3090"),          0,  23.6,    0.0,  35.6,  936.0,  32.0,  350, False, _GA102),
    _Row(("V100", "PCIE"),        16,  15.8,    0.0,  14.0,  900.0,  16.0,  250, False, f"{_NV}/v100"),
    _Row(("V100",),               16,  15.8,    0.0,  15.7,  900.0, 150.0,  300, False, f"{_NV}/v100"),
    _Row(("V100",),                0,  31.7,    0.0,  15.7,  900.0, 150.0,  300, False, f"{_NV}/v100"),
    _Row(("T4",),                  0,  14.6,    0.0,   8.1,  320.0,  16.0,   70, False, f"{_NV}/tesla-t4"),
    _Row(("MI355X",),              0, 287.5, 5033.2, 157.3, 8000.0, 537.6, 1400, True,  "amd.com, Instinct MI355X"),
    _Row(("MI325X",),              0, 255.5, 2614.9, 163.4, 6000.0, 448.0, 1000, True,  "amd.com, Instinct MI325X"),
    _Row(("MI300X",),              0, 191.5, 2614.9, 163.4, 5300.0, 448.0,  750, True,  "amd.com, Instinct MI300X"),
    _Row(("MI250X",),              0,  63.9,    0.0,  23.9, 1638.0, 100.0,  280, False, _DIE),
)
# fmt: on

_WITHOUT_BF16: Final = ("V100", "T4")
_SIZE = re.compile(r"(\d+) ?GI?B")


@lru_cache(maxsize=1024)
def gpu_of(model: str, nominal_gib: float = 0.0) -> Gpu:
    """The GPU by a provider's or the driver's name for it, and the card's nominal size where several were made.

    One that is not in the table is a guess: 94 % of its nominal memory, and the speed of an A10, the slowest that is
    rented for training; the plan says so.
    """
    name = _words(model)
    if nominal_gib <= 0 and (size := _SIZE.search(name)):
        nominal_gib = float(size[1])
    spaced = f" {name} "
    for row in _ROWS:
        fits = not row.nominal_gib or abs(row.nominal_gib - nominal_gib) < 3.0
        if fits and all(f" {word} " in spaced for word in row.words):
            return _gpu(row, spaced, nominal_gib)
    return Gpu(model, 0.94 * nominal_gib, 125.0, 0.0, 31.2, 600.0, 32.0, 150.0, has_switch=False, known=False)


def every_gpu() -> list[tuple[Gpu, str]]:
    """The table, each row with its sources."""
    return [(_gpu(row, f" {' '.join(row.words)} ", row.nominal_gib), f"{row.source}; {_TORCH}") for row in _ROWS]


def _words(model: str) -> str:
    """In capitals with single spaces; `RTX4090` and a bare `A6000` as their makers write them."""
    name = re.sub(r"[-_ ]+", " ", model.upper().replace("RTX", "RTX ").replace("PRO6000", "PRO 6000"))
    return name if "RTX" in name else re.sub(r"\bA6000\b", "RTX A6000", name)


def _gpu(row: _Row, name: str, nominal_gib: float) -> Gpu:
    peak = peak_tflops(name.strip()) or peak_tflops(" ".join(row.words)) or row.fp8 / 2
    # A smaller card than the table's (a slice, say) has no more than its nominal size.
    memory_gib = min(row.memory_gib, nominal_gib) if nominal_gib > 0 else row.memory_gib
    return Gpu(
        name=" ".join(row.words) + (f" {row.nominal_gib:g}GB" if row.nominal_gib else ""),
        memory_gib=memory_gib,
        bf16_tflops=peak,
        fp8_tflops=row.fp8,
        fp32_tflops=row.fp32,
        hbm_gb_per_s=row.hbm,
        link_gb_per_s=row.link,
        tdp_w=row.tdp,
        has_switch=row.switch,
        has_bf16=row.words[0] not in _WITHOUT_BF16,
    )
