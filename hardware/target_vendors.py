"""Whose devices a target means, where it means those of one vendor."""

from __future__ import annotations

TARGET_VENDORS = {
    "cuda": "NVIDIA",
    "rocm": "AMD",
    "xpu": "Intel",
    "mps": "Apple",
    "qnn": "Qualcomm",
    "tpu": "Google",
}


def vendor_of(target: str) -> str:
    """The vendor of a target (`cuda`, `cuda:1`); empty for the host, for those of many vendors, and for plug-ins."""
    return TARGET_VENDORS.get(target.partition(":")[0], "")
