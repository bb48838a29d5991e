"""Check the results that a web page saved against the seal of the page.

Anyone can write a line of JSON. Here each line has to be one that the sealed page could have written: its plan, files
and limits, numbers that make a pass one, and the adapter that was used. Whether a person typed the numbers can't be
detected. The device is derived from the browser's description, which is in the inventory once. The page's code is
`hwcompat/plugins/web_page/device.js` and `checks.js`.
"""

from __future__ import annotations

import datetime
import hashlib
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from ..errors import BrokenInput, echo
from ..software import TOLD, adapter_conditions, adapter_name, is_software
from ..values import data_file
from .pages import BUILDS, read_seal, shape_error
from .versions import BROWSER_OF_PAGE

Line = Mapping[str, Any]

_CPU = "cpu"
_AS_REQUESTED = {
    "stands_in": "its adapter is software, but its conditions don't say so",
    "requested": "its conditions don't say that the context was only requested",
}

_OUTCOMES = ("passed", "failed", "timeout", "out_of_memory", "not_run")
"""The outcomes that a page can record: it has no substitute device, and a closed page saves nothing."""

_SCHEMA = Path(__file__).with_name("schemas") / "page.json"
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", re.ASCII)
"""The format of times in evidence, which are compared as text too."""

_CLOCK_BEHIND = datetime.timedelta(days=1)
_CLOCK_AHEAD = datetime.timedelta(minutes=10)
"""How far the clock of a browser's machine may be ahead. The limit is low because later evidence would seem older;
evidence that is refused for it can be merged later."""


class WrongLine(Exception):
    """A line that the sealed page couldn't have written, with the reason."""


@dataclass(frozen=True, kw_only=True)
class _PageDevice:
    """The device that the inventory describes, as lines have to state it.

    `reason` is why nothing can run there, or empty. `conditions` are those of every check, `accelerators` those of
    the inventory.
    """

    reason: str
    conditions: Mapping[str, str]
    accelerator: str | None
    accelerators: Sequence[Mapping[str, str]]
    machine: str
    browser: str


def is_of_page(lines: Sequence[Line]) -> bool:
    """Whether the lines of a file are a page's or claim to be."""
    return any(
        "page" in line
        or BROWSER_OF_PAGE in _mapping(line.get("versions"))
        or "page" in _mapping(line.get("conditions"))
        for line in lines
    )


def check_page(name: str, lines: Sequence[Line], folder: Path) -> None:
    """Check a page's file, whose lines fit the schema, against its seal in `folder`.

    Raises `BrokenInput` with the line and the reason.
    """
    run = lines[0] if lines else {}
    if run.get("kind") != "run":
        raise BrokenInput(f"line 1 of {name} is refused", why="a page's evidence starts with its run line")
    _check_shapes(name, lines)
    page = run["page"]
    page_id = str(page.get("id"))
    seal = read_seal(folder, page_id)
    number = 1
    try:
        device = _device_of(run, page_id, seal)
        _check_run(run, page, seal)
        _check_described(run, device, run["versions"].get(BROWSER_OF_PAGE))
        for line in lines[1:-1]:
            number += 1
            _check_check(line, seal)
            _check_ran_there(line, device)
            if line["outcome"] == "passed":
                _check_pass(line, seal)
        number = len(lines)
        _check_whole(lines, lines[1:-1], page, seal)
    except WrongLine as error:
        raise BrokenInput(f"line {number} of {name} doesn't match page {page_id[:12]}", why=str(error)) from error


def _check_shapes(name: str, lines: Sequence[Line]) -> None:
    for number, line in enumerate(lines, start=1):
        of_kind = {"$ref": f"#/$defs/{line['kind']}", "$defs": data_file(_SCHEMA)["$defs"]}
        if why := shape_error(of_kind, line, "the line"):
            raise BrokenInput(f"line {number} of {name} doesn't match the schema of page evidence", why=why)


def _check_run(run: Line, page: Line, seal: Line) -> None:
    sealed: Line = seal["run"]
    for key, value in sealed.items():
        if key != "versions" and run.get(key) != value:
            raise WrongLine(f"its {key} differs from the page's")
    versions = _mapping(run.get("versions"))
    if {key: one for key, one in versions.items() if key != BROWSER_OF_PAGE} != sealed["versions"]:
        raise WrongLine("its versions differ from the page's")
    if not versions.get(BROWSER_OF_PAGE):
        raise WrongLine("it doesn't name the browser")
    if run.get("resumes"):
        raise WrongLine("a page can't resume a run")
    hashes = _mapping(page.get("hashes"))
    if hashes and (changed := sorted(name for name, one in _hashes(seal).items() if hashes.get(name) != one)):
        raise WrongLine(f"the page's files were changed: {', '.join(changed)}")
    if more := sorted(set(hashes) - set(_hashes(seal))):
        raise WrongLine(f"the page has no file {echo(more[0])}")
    started_at = str(run["started_at"])
    _check_moment(started_at, str(seal["sealed_at"]))
    if not str(run["run_id"]).startswith(f"{re.sub('[-:]', '', started_at[:19])}Z-"):
        raise WrongLine(f"it started at {started_at}, but its run id is {echo(str(run['run_id']))}")


def _hashes(seal: Line) -> dict[str, str]:
    runtime = seal["runtime"]
    return {
        "script": runtime["script"]["sha256"],
        "wasm": runtime["wasm"]["sha256"],
        "inputs": seal["inputs"]["sha256"],
        "expected": seal["expected"]["sha256"],
        **{f"model-{number}": file["sha256"] for number, file in enumerate(seal["files"])},
    }


def _check_moment(text: str, sealed_at: str) -> None:
    try:
        moment, sealed = datetime.datetime.fromisoformat(text), datetime.datetime.fromisoformat(sealed_at)
    except ValueError:
        moment = None
    if moment is None or not _MOMENT.fullmatch(text):
        raise WrongLine(f"{echo(text)} is not a UTC time")
    if moment < sealed - _CLOCK_BEHIND:
        raise WrongLine(f"it is dated {text}, before the page was made")
    if moment > datetime.datetime.now(datetime.UTC) + _CLOCK_AHEAD:
        raise WrongLine(f"it is dated {text}, which is in the future by this machine's clock")


def _check_check(line: Line, seal: Line) -> None:
    if line["kind"] != "check":
        raise WrongLine(f"a check line was expected, not one of kind {echo(str(line['kind']))}")
    for key, value in seal["check"].items():
        if line.get(key) != value:
            raise WrongLine(f"its {key} is {echo(str(line.get(key)))}, but the page's is {echo(str(value))}")
    if line.get("outcome") not in _OUTCOMES:
        raise WrongLine(f"a page can't record the outcome {echo(str(line.get('outcome')))}")
    if line.get("substitution_reason"):
        raise WrongLine("a page can't substitute a target")
    _check_moment(str(line["started_at"]), str(seal["sealed_at"]))
    if line.get("actual_dtype") not in (None, seal["check"]["precision"]):
        raise WrongLine(f"it ran in {echo(str(line['actual_dtype']))}, not in the page's precision")
    if line["outcome"] == "not_run" and (line.get("actual_target"), line.get("actual_dtype")) != (None, None):
        raise WrongLine("it names a target, but its outcome is not_run")
    given = [(one.get("batch"), one.get("sequence_length")) for one in seal["passes"]]
    if (line.get("batch"), line.get("sequence_length")) not in [(None, None), *given]:
        raise WrongLine("the batch size or length of its inputs differs from the page's")


def _check_pass(line: Line, seal: Line) -> None:
    name = line["check_name"]
    if name in seal["not_captured"] or (name != BUILDS and name not in seal["steps"]):
        raise WrongLine(f"the page can't run {echo(str(name))}, so it can't have passed")
    if line.get("actual_target") != seal["check"]["requested_target"]:
        raise WrongLine("it passed, but its target is missing or wrong")
    if line.get("actual_dtype") != seal["check"]["precision"] or line.get("error_type"):
        raise WrongLine("it passed, but in another precision or with an error type")
    offloaded = _mapping(line.get("offloaded_ops"))
    if beyond := sorted(set(offloaded) - set(seal["target"]["host_allowed"])):
        raise WrongLine(f"it passed, but {echo(', '.join(beyond))} ran on the host")
    steps: Sequence[Line] = seal["steps"].get(name, ())
    if any(step["what"] == "execution" for step in steps):
        _check_proof(line, offloaded, seal, steps)
    _check_numbers(line, steps, seal["tolerance"]["limit"])


def _check_proof(line: Line, offloaded: Line, seal: Line, steps: Sequence[Line]) -> None:
    """Check that the executed operators are those of the model's file. Only operators that move data may differ in
    number: the runtime drops, merges and adds them to change layouts."""
    native = _mapping(line.get("native_ops"))
    place = next(seal["passes"][step["pass"]]["file"] for step in steps if step["what"] == "execution")
    nodes = Counter(seal["files"][place]["nodes"].values())
    rules = seal["target"]["placement"]
    ran = Counter(native) + Counter(offloaded)
    moving = {f"onnx.{name}{end}" for name in rules["rearranging"] for end in ("", rules["whole"])}
    others = [name for name in ran.keys() | nodes.keys() if ran[name] != nodes[name] and name not in moving]
    if not native or others or any(offloaded[name] > nodes[name] for name in offloaded):
        raise WrongLine("its operators differ from those of the model file")


def _check_numbers(line: Line, steps: Sequence[Line], limit: float) -> None:
    comparing = [step for step in steps if step["what"] != "execution"]
    measured = line.get("steps", [])
    if not comparing:
        return
    if not isinstance(measured, list) or len(measured) != len(comparing):
        raise WrongLine(f"it passed with {len(measured)} of {len(comparing)} measured errors")
    for value, step in zip(measured, comparing, strict=True):
        if not _is_number(value):
            raise WrongLine(f"it passed, but {echo(str(value))} is not a valid error")
        if not (value <= step["at_most"] if "at_most" in step else value > step["more_than"]):
            raise WrongLine(f"it passed with {value:g}, but the page requires {_said(step)}")
        if step["what"] == "known" and value != step["rel"]:
            raise WrongLine(f"its error is {value:g}, but the page's is {step['rel']:g}")
    held = [value for value, step in zip(measured, comparing, strict=True) if step["what"] != "difference"]
    error = line.get("max_rel_error")
    if not held and error is None:
        return  # it compares nothing with a reference
    if not _is_number(error) or not error <= limit or line.get("tolerance") != limit:
        raise WrongLine(f"it passed with an error of {echo(str(error))}, but the tolerance is {limit:g}")
    if error != max(held, default=None):
        raise WrongLine("its error isn't the largest of its measured errors")


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


def _said(step: Line) -> str:
    return f"at most {step['at_most']:g}" if "at_most" in step else f"more than {step['more_than']:g}"


def _check_whole(lines: Sequence[Line], checks: Sequence[Line], page: Line, seal: Line) -> None:
    """Check that there is a line for each check, and an end that counts them: a page saves everything at once."""
    end = lines[-1]
    if end["kind"] != "end":
        raise WrongLine("it is truncated: its end line is missing")
    planned = [name for cell in seal["run"]["plan"] for name in cell["checks"]]
    if [line["check_name"] for line in checks] != planned:
        raise WrongLine(f"it must have each planned check exactly once: {', '.join(planned)}")
    counts = dict(Counter(str(line["outcome"]) for line in checks))
    if end.get("counts") != counts:
        raise WrongLine("the counts in its end line differ from its checks")
    _check_moment(str(end["ended_at"]), str(seal["sealed_at"]))
    if end["ended_at"] < lines[0]["started_at"]:
        raise WrongLine("it ended before it started")
    if not page.get("hashes") and set(counts) - {"not_run"}:
        raise WrongLine("checks ran, but it has no file hashes")


def _mapping(value: Any) -> Line:
    return value if isinstance(value, Mapping) else {}


# The page's device


def _device_of(run: Line, page_id: str, seal: Line) -> _PageDevice:
    """Return the device of a run line that fits the schema. Raises `WrongLine` if it describes none for the
    target."""
    browser, adapter = run["inventory"]["browser"], run["inventory"]["adapter"]
    version = f"{browser['name']} {browser['version']}"
    runtime = f"onnxruntime-web {seal['runtime']['version']}, {version}"
    reason = str(adapter.get("reason", ""))
    name, said, listed = ("", {}, []) if reason else _described(adapter, seal["target"])
    description = f"{browser['agent']} {browser['model']} {name}"
    return _PageDevice(
        reason=reason,
        conditions={**seal["conditions"], **said, "page": page_id, "runtime": runtime},
        accelerator=None if reason else f"{name} through {runtime}",
        accelerators=listed,
        machine=f"browser-{hashlib.sha256(description.encode(errors='replace')).hexdigest()[:8]}",
        browser=version,
    )


def _described(adapter: Line, target: Line) -> tuple[str, dict[str, str], list[dict[str, str]]]:
    """Return name, conditions and inventory entry of an adapter."""
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
        raise WrongLine(f"its context is of kind {adapter['kind']}, but {kind} was requested")
    name = f"WebNN's {kind} context{'' if kind == _CPU else ', as requested'}"
    wish = f"a context of kind {kind}; the browser doesn't tell what executed"
    said = {} if kind == _CPU else {"requested": wish}
    return name, said, [{"vendor": "", "model": name, "device_type": kind}]


def _check_described(run: Line, device: _PageDevice, browser: object) -> None:
    """Check machine, `browser` and accelerators of a run line against its device."""
    if run["inventory"]["accelerators"] != device.accelerators:
        raise WrongLine("its accelerators don't match its adapter")
    if browser != device.browser:
        raise WrongLine(f"its versions and its inventory ({device.browser}) name different browsers")
    if run["machine"] != device.machine:
        raise WrongLine("its machine name doesn't match its browser and device")


def _check_ran_there(line: Line, device: _PageDevice) -> None:
    """Check what a check's line states about the device."""
    if device.reason and line["outcome"] != "not_run":
        raise WrongLine(f"its inventory says that nothing can run there, but the check is {line['outcome']}")
    conditions = line["conditions"]
    for key, value in device.conditions.items():
        if conditions.get(key) != value:
            why = f"its condition {key!r} doesn't match the page and the device"
            raise WrongLine(why if key in conditions else _AS_REQUESTED.get(key, why))
    if more := sorted(set(conditions) - set(device.conditions)):
        raise WrongLine(f"a page can't record the condition {', '.join(more)}")
    if line["accelerator"] != device.accelerator:
        raise WrongLine("its accelerator doesn't match the device in its inventory")
