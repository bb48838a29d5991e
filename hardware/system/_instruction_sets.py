"""Instruction sets by the names that people use, from what each system calls them."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterable
from pathlib import Path

_HERE = Path(__file__).parent

APPLE = {
    "AdvSIMD": "NEON",
    "neon": "NEON",
    "arm.FEAT_FP16": "NEON FP16",
    "arm.FEAT_DotProd": "NEON dot product",
    "arm.FEAT_I8MM": "I8MM",
    "arm.FEAT_BF16": "BF16",
    "arm.FEAT_SME": "SME",
    "arm.FEAT_SME2": "SME2",
    "avx1_0": "AVX",
    "avx2_0": "AVX2",
    "fma": "FMA",
    "f16c": "F16C",
    "avx512f": "AVX-512",
    "avx512bw": "AVX-512 BW",
    "avx512dq": "AVX-512 DQ",
    "avx512vl": "AVX-512 VL",
    "avx512cd": "AVX-512 CD",
    "avx512ifma": "AVX-512 IFMA",
    "avx512vbmi": "AVX-512 VBMI",
}
"""Names below `hw.optional` of macOS's sysctl: Apple, "Determining instruction set characteristics"."""

WINDOWS = {
    19: "NEON",
    37: "SSE4.2",
    39: "AVX",
    40: "AVX2",
    41: "AVX-512",
    43: "NEON dot product",
    46: "SVE",
    47: "SVE2",
    66: "I8MM",
    67: "NEON FP16",
    68: "BF16",
    70: "SME",
    71: "SME2",
}
"""Numbers of `IsProcessorFeaturePresent` (winnt.h, PF_...). Older systems know fewer and say no to the others."""


@functools.cache
def names_table(name: str) -> dict[str, dict[str, str]]:
    """A data file of this folder."""
    return tomllib.loads((_HERE / name).read_text(encoding="utf-8"))


def named(*lists: Iterable[str]) -> tuple[str, ...]:
    """All names in order, each once."""
    return tuple(dict.fromkeys(name for names in lists for name in names))


def of_flags(kind: str, flags: Iterable[str]) -> tuple[str, ...]:
    """The instruction sets of `x86` or `arm` whose flags, as Linux spells them, are there."""
    present = set(flags)
    return named(name for flag, name in names_table("instruction_sets.toml")[kind].items() if flag in present)


def riscv(isa: str) -> tuple[str, ...]:
    """`rv64imafdcv_zicbom` as the base with its letters, then the named extensions; V is the vector one."""
    base, *extensions = isa.lower().split("_")
    return named([base], ["V"] if "v" in base[4:] else [], filter(None, extensions))
