"""Vendors, and whose devices a target means, where it means those of one vendor."""

from __future__ import annotations

from enum import StrEnum

from .errors import UsageError, did_you_mean, echo


class HardwareVendor(StrEnum):
    """Who makes a device."""

    NVIDIA = "nvidia"
    AMD = "amd"
    INTEL = "intel"
    APPLE = "apple"
    QUALCOMM = "qualcomm"
    GOOGLE = "google"
    GROQ = "groq"
    CEREBRAS = "cerebras"
    CUSTOM_ASIC = "custom_asic"


def vendor_named(name: str | HardwareVendor) -> HardwareVendor:
    """The vendor of a name in any case. Raises `UsageError`."""
    text = str(name).strip().lower()
    if text not in list(HardwareVendor):
        fix = did_you_mean(text, map(str, HardwareVendor)) or f"Known: {', '.join(HardwareVendor)}."
        raise UsageError(f"{echo(str(name))} is no vendor", fix=fix)
    return HardwareVendor(text)


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
