"""The device of a page's run: what all lines have to say of it follows from what the browser told, which stands in
the inventory once. The page's own side is `hwcompat/plugins/web_page/device.js` and `checks.js`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..software_adapters import TOLD, adapter_conditions, adapter_name, is_software

Line = Mapping[str, Any]

_CPU = "cpu"
_AS_REQUESTED = {
    "stands_in": "its adapter is software, and it doesn't say that it stands for no GPU",
    "requested": "it doesn't say that what was asked for was only requested",
}


class WrongLine(Exception):
    """Why a line isn't one of the sealed page's."""


@dataclass(frozen=True, kw_only=True)
class PageDevice:
    """What the lines say of the device that the inventory describes.

    `reason` says why nothing can run there, and is empty where something can. `conditions` are those of every check,
    `accelerators` those of the inventory.
    """

    reason: str
    conditions: Mapping[str, str]
    accelerator: str | None
    accelerators: Sequence[Mapping[str, str]]
    machine: str
    browser: str


def device_of(run: Line, page_id: str, seal: Line) -> PageDevice:
    """The device of a run line that fits the schema. Raises `WrongLine` where it describes none for the target."""
    browser, adapter = run["inventory"]["browser"], run["inventory"]["adapter"]
    version = f"{browser['name']} {browser['version']}"
    runtime = f"onnxruntime-web {seal['runtime']['version']}, {version}"
    reason = str(adapter.get("reason", ""))
    name, said, listed = ("", {}, []) if reason else _described(adapter, seal["target"])
    told = f"{browser['agent']} {browser['model']} {name}"
    return PageDevice(
        reason=reason,
        conditions={**seal["conditions"], **said, "page": page_id, "runtime": runtime},
        accelerator=None if reason else f"{name} through {runtime}",
        accelerators=listed,
        machine=f"browser-{hashlib.sha256(told.encode(errors='replace')).hexdigest()[:8]}",
        browser=version,
    )


def _described(adapter: Line, target: Line) -> tuple[str, dict[str, str], list[dict[str, str]]]:
    """Name, conditions and entry of the inventory."""
    wanted = (*TOLD, "fallback") if target["api"] == "webgpu" else ("kind",)
    if missing := [name for name in wanted if name not in adapter]:
        raise WrongLine(f"its inventory doesn't describe the device: the adapter has no {', '.join(missing)}")
    if target["api"] == "webgpu":
        software = target["software"]
        name = adapter_name(adapter, software)
        model = " ".join(filter(None, (adapter["vendor"], adapter["architecture"]))) or name
        kind = "software" if is_software(adapter, software) else "gpu"
        listed = {"vendor": adapter["vendor"], "model": model, "device_type": kind}
        return name, adapter_conditions(adapter, software), [listed]
    kind = target["device_type"]
    if adapter["kind"] != kind:
        raise WrongLine(f"its context is of kind {adapter['kind']}, and {kind} was asked for")
    name = f"WebNN's {kind} context{'' if kind == _CPU else ', as requested'}"
    wish = f"a context of kind {kind}; the browser doesn't tell what executed"
    said = {} if kind == _CPU else {"requested": wish}
    return name, said, [{"vendor": "", "model": name, "device_type": kind}]


def check_described(run: Line, device: PageDevice, browser: object) -> None:
    """Hold what a run line says of machine, `browser` and accelerators against its device."""
    if run["inventory"]["accelerators"] != device.accelerators:
        raise WrongLine("its accelerators aren't the adapter that it describes")
    if browser != device.browser:
        raise WrongLine(f"its versions name another browser than its inventory: {device.browser}")
    if run["machine"] != device.machine:
        raise WrongLine("its machine isn't named by its browser and device, as a page names it")


def check_ran_there(line: Line, device: PageDevice) -> None:
    """Hold what a check's line says of the device against it."""
    if device.reason and line["outcome"] != "not_run":
        raise WrongLine(f"its inventory says that nothing runs here, and the check is {line['outcome']}")
    conditions = line["conditions"]
    for key, value in device.conditions.items():
        if conditions.get(key) != value:
            why = f"its condition {key!r} is another than seal and device make it"
            raise WrongLine(why if key in conditions else _AS_REQUESTED.get(key, why))
    if more := sorted(set(conditions) - set(device.conditions)):
        raise WrongLine(f"no page states {', '.join(more)} among its conditions")
    if line["accelerator"] != device.accelerator:
        raise WrongLine("its accelerator isn't the device that its inventory describes")
