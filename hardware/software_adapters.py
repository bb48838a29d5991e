"""What evidence says of a browser's WebGPU adapter: its name, and whether it is software, which stands for no GPU.

The page's twin is in `hwcompat/plugins/web_page/device.js`; `test/unit/test_web_page_script.py` holds both against
the same adapters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

SOFTWARE_ADAPTERS = (
    *("swiftshader", "llvmpipe", "lavapipe", "softpipe", "swrast", "software rasterizer", "software renderer"),
    *("warp", "basic render driver", "google 0xc0de", "microsoft 0x8c"),
)
"""What is in their names as whole words, in small letters: Google's SwiftShader, Mesa's rasterizers (those that
Chromium's list of software rendering names too), Microsoft's WARP; the last two are vendor and device, which stay the
same whatever else is told. A paravirtual adapter (Apple's, Mesa's Venus) isn't among them: it hands its work to the
host's driver, and Venus has that driver's name in its own, so that llvmpipe behind it is found."""

TOLD = ("vendor", "architecture", "device", "description")
"""What a browser tells of an adapter in words; each may be empty."""

NAMELESS = "an adapter without a name"


def is_software(adapter: Mapping[str, Any], names: Sequence[str] = SOFTWARE_ADAPTERS) -> bool:
    """Whether an adapter says that it is a fallback, or has one of the names of software."""
    vendor, architecture, device, description = (str(adapter.get(name, "")) for name in TOLD)
    device = re.sub("^0x0+", "0x", device.lower())
    words = f"{vendor} {architecture} {device} {description}\n{vendor} {device}".lower()
    found = (re.search(f"(^|[^a-z0-9]){re.escape(name)}([^a-z0-9]|$)", words) for name in names)
    return bool(adapter.get("fallback")) or any(found)


def adapter_name(adapter: Mapping[str, Any], names: Sequence[str] = SOFTWARE_ADAPTERS) -> str:
    """What reports call an adapter; software is called so."""
    told = " ".join(str(adapter[name]) for name in ("vendor", "architecture") if adapter.get(name))
    known = told or str(adapter.get("description") or adapter.get("device") or NAMELESS)
    return f"{known}{' (software)' if is_software(adapter, names) else ''}"


def adapter_conditions(adapter: Mapping[str, Any], names: Sequence[str] = SOFTWARE_ADAPTERS) -> dict[str, str]:
    """The conditions of what an adapter computed: one that isn't named may be software, and proves no GPU."""
    name = adapter_name(adapter, names)
    if is_software(adapter, names):
        kind = adapter.get("architecture") or adapter.get("description") or "fallback"
        return {"adapter": name, "stands_in": f"a software adapter ({kind}), not a GPU"}
    if name == NAMELESS:
        return {"adapter": name, "requested": "the browser's own choice of adapter, of which it tells no name"}
    return {"adapter": name}


def other_adapter(described: Mapping[str, Any] | None, ran: Mapping[str, Any] | None) -> str:
    """Why a pass on the adapter `ran` proves nothing of the one that was `described`; empty where they are the same,
    or where the runtime tells of none."""
    if described is None or ran is None:
        return ""
    if all(described.get(name) == ran.get(name) for name in (*TOLD, "fallback")):
        return ""
    return f"{adapter_name(ran)} computed, and {adapter_name(described)} was described"
