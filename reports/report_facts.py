"""Remedies from facts in a report: numbers, builds, devices and precisions that it names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

_UNITS = {"kib": 2**-20, "kb": 2**-20, "mib": 2**-10, "mb": 2**-10, "gib": 1.0, "gb": 1.0}
_SIZE = r"(\d{1,7}(?:\.\d{1,4})?)\s?([KMG]i?B)"
_ASKED = re.compile(rf"tried to allocate {_SIZE}", re.I)
_TOTAL = re.compile(rf"total capaci?ty of {_SIZE}|{_SIZE} total capaci?ty", re.I)
_OWN = re.compile(rf"{_SIZE} (?:is |memory )?(?:already )?allocated(?: by PyTorch)?", re.I)
_UNUSED = re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated", re.I)
_FREE = re.compile(rf"of which {_SIZE} is free|{_SIZE} free", re.I)
_CPU_BUILD = re.compile(r"torch[^\n]{0,40}\+cpu|not compiled with CUDA enabled|used to build PyTorch: None", re.I)
_TWO_DEVICES = re.compile(
    r"found at least two devices|Expected all tensors to be on the same device|"
    r"Input type \((?:torch\.)?\w{0,20}FloatTensor\) and weight type \(torch\.cuda",
    re.I,
)
_HALF_ON_CPU = re.compile(r"\"(?![^\"]{0,40}cuda)\w{1,60}\" not implemented for .{0,3}Half", re.I)
_BF16 = re.compile(r"\bbf(?:loat)?16\b", re.I)
_BEFORE_AMPERE = re.compile(r"\b(V100|T4|P100|P40|K80|M40|M60|RTX ?20\d0|GTX ?1[06]\d\d|Titan (?:V|RTX))\b", re.I)
_CAPABILITY = {
    **{"v100": "7.0", "titan v": "7.0", "t4": "7.5", "titan rtx": "7.5", "p100": "6.0", "p40": "6.1", "k80": "3.7"},
    **{"m40": "5.2", "m60": "5.2"},
}
"""Compute capabilities of NVIDIA's list; of the RTX 20 series 7.5, of the GTX 10 series 6.1, of the GTX 16 7.5."""
_POINTER = re.compile(r"version https://git-lfs|invalid header or archive is corrupted|header too large", re.I)
_REMOTE = re.compile(r"requires you to execute|pass the argument `?trust_remote_code", re.I)
_LONGEST = 20_000


def remedies_from_facts(text: str, error_type: str = "") -> list[str]:
    """Return what the facts of a text call for, the most certain first, of those that concern an `error_type`: all if
    it is empty. The beginning of the text is read."""
    said = text[:_LONGEST]
    rules = (rule for rule, types in _RULES.items() if error_type in ("", "unknown", *types))
    return [remedy for rule in rules for remedy in rule(said)]


def _memory(text: str) -> Iterator[str]:
    asked, total, own = (found.search(text) for found in (_ASKED, _TOTAL, _OWN))
    if asked is None or own is None:
        return
    held, size = _gib(own), _gib(asked)
    whole, unused, free = (_gib(found.search(text)) for found in (_TOTAL, _UNUSED, _FREE))
    of = f" of {whole:.1f}" if whole else ""
    if unused > size:
        yield (
            f"{unused:.1f} GiB are reserved and unused, more than the {size:.2f} GiB that were asked for: set "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True against fragmentation."
        )
    elif total is not None and whole - free - unused - held > max(held, size):
        yield (
            f"Only {held:.1f}{of} GiB are this process's own: end the other processes that use the device "
            "(`nvidia-smi` lists them)."
        )
    else:
        yield (
            f"{held:.1f}{of} GiB are PyTorch's own, and {size:.2f} GiB more were asked for: use a smaller batch, "
            "sequence or cache, or weights in fewer bits."
        )


def _gib(found: re.Match[str] | None) -> float:
    """Return the size of a match in GiB; 0 without one."""
    if found is None:
        return 0.0
    number, unit = next((one, found.groups()[place + 1]) for place, one in enumerate(found.groups()) if one)
    return float(number) * _UNITS[str(unit).lower()]


def _build(text: str) -> Iterator[str]:
    if _CPU_BUILD.search(text):
        yield "This torch is the build for the CPU: install the one for the device, as pytorch.org says."


def _placement(text: str) -> Iterator[str]:
    if _TWO_DEVICES.search(text):
        yield "Tensors and model are on different devices: move the inputs with `.to(model.device)` before the call."


def _half(text: str) -> Iterator[str]:
    if _HALF_ON_CPU.search(text):
        yield "The operator has no float16 kernel on the CPU: run it in float32 or bfloat16, or on the device."


def _bfloat16(text: str) -> Iterator[str]:
    card = _BEFORE_AMPERE.search(text)
    if card is not None and _BF16.search(text):
        name = card[1]
        is_pascal = re.match("gtx ?10", name, re.I) is not None
        has = _CAPABILITY.get(name.lower(), "6.1" if is_pascal else "7.5")
        yield f"bfloat16 needs compute capability 8.0, and {name} has {has}: use float16, or float32 if it overflows."


def _pointer(text: str) -> Iterator[str]:
    if _POINTER.search(text):
        yield "The file is cut, or a Git LFS pointer: fetch it with `git lfs pull`, and check its size."


def _remote(text: str) -> Iterator[str]:
    if _REMOTE.search(text):
        yield "Read the Python files of the model, and pass trust_remote_code=True if you trust them."


_RULES: Mapping[Callable[[str], Iterator[str]], tuple[str, ...]] = {
    _memory: ("out_of_memory", "memory_pressure", "memory_leak"),
    _build: ("wrong_build", "device_absent", "silent_offload", "slow", "device_unusable", "driver_missing"),
    _placement: ("device_placement", "user_code"),
    _half: ("unsupported_dtype", "unsupported_operator", "not_implemented"),
    _bfloat16: ("unsupported_dtype", "slow", "device_unusable", "non_finite", "numerical_mismatch"),
    _pointer: ("corrupt_checkpoint", "unsupported_format"),
    _remote: ("remote_code_required",),
}
"""The rules, and the error types that each concerns."""
