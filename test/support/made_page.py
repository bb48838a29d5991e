"""A page of a model that is one product, sealed without an export, and what it would write if all went well."""

from __future__ import annotations

import functools
import hashlib
import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded_machines import machine

from generators.chosen_models import choose_models, profiles_of
from generators.compatibility.verdict import Verdict
from generators.plan import PlannedSuite
from generators.run import plan_job
from hardware.detection import HardwareInfo, detect
from hardware.evidence.merge import merge_evidence
from hardware.evidence.pages import keep_seal, seal_text
from hardware.evidence.versions import BROWSER_OF_PAGE
from hardware.evidence.writer import now
from hardware.testing.suite_file import SuiteFile, read_suite
from hwcompat.plugins.web_page.page_seal import CapturedSuite, Runtime, SealedPage, sealed_page

Lines = list[dict[str, Any]]

RUNTIME = Runtime(version="1.30.0", script=b"export const env = {};", wasm=b"\0asm")
WEIGHTS = np.arange(12, dtype=np.float32).reshape(3, 4) / 10
ERROR = 3e-6
MODEL = b"the bytes of product_model()"
DESCRIBED = {"inputs": ["x"], "outputs": {"logits": "logits"}, "nodes": {"product": "onnx.MatMul"}}


@functools.cache
def planned(device: str = "webgpu", model: str = "bert", precision: str = "float32") -> PlannedSuite:
    """The suite of a model on a web target, as the command line plans it."""
    chosen = choose_models((model,), priority=None, architectures=(), read_list=list)
    (one,) = plan_job(profiles_of(chosen, (), dims="tiny")[0], [device], [precision], recorded())
    return one


@functools.cache
def recorded() -> HardwareInfo:
    """A machine without accelerators."""
    return detect(machine("machines/xeon-two-sockets"))


def product_model() -> bytes:
    """An ONNX file that multiplies `x` by WEIGHTS."""
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "weights"], ["logits"], name="product")],
        "model",
        [helper.make_tensor_value_info("x", kind, [2, 3])],
        [helper.make_tensor_value_info("logits", kind, [2, 4])],
        [onnx.numpy_helper.from_array(WEIGHTS, "weights")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(made.SerializeToString())


def captured(limit: float = 2e-5) -> CapturedSuite:
    """What a suite of such a model asks: all checks but `honours_mask`, which a page can't ask here."""
    given = np.array([[1, 2, 3], [4, 5, 6]], dtype=np.float32)
    wanted = given.astype(np.float64) @ WEIGHTS.astype(np.float64)
    place = {"type": "float64", "dims": [2, 4], "at": 0, "bytes": wanted.nbytes}
    asked = {
        "steps": {
            "matches_reference": [{"what": "error", "pass": 0, "want": 0, "at_most": limit}],
            "matches_recorded": [
                {"what": "error", "pass": 0, "want": 0, "at_most": limit},
                {"what": "difference", "pass": 0, "want": 0, "more_than": 2 * limit},
            ],
            "batch_invariance": [{"what": "error", "pass": 0, "want": 0, "at_most": limit}],
            "attention_agrees": [{"what": "known", "rel": ERROR, "abs": ERROR, "worst": "logits", "at_most": limit}],
            "runs_natively": [{"what": "execution", "pass": 0}],
        },
        "passes": [
            {
                "file": 0,
                "inputs": {"x": {"type": "float32", "dims": [2, 3], "at": 0, "bytes": given.nbytes}},
                "batch": 2,
                "sequence_length": None,
            }
        ],
        "wanted": [{"outputs": {"logits": place}, "masks": {}, "required": ["logits"]}],
        "facts": {"parameters": 12, "conditions": {}},
        "conditions": {"shapes": "static"},
        "not_captured": {"honours_mask": "it reads outputs itself"},
    }
    return CapturedSuite(
        files=(MODEL,), inputs=given.tobytes(), expected=np.ascontiguousarray(wanted).tobytes(), asked=asked
    )


def made_page(
    device: str = "webgpu", suite: CapturedSuite | None = None, known: tuple[Verdict, ...] = ()
) -> SealedPage:
    """The sealed page. Its model's file is described without the package that reads one."""
    return _made_page(device) if suite is None and not known else _sealed(device, suite or captured(), known)


@functools.cache
def _made_page(device: str) -> SealedPage:
    return _sealed(device, captured(), ())


def _sealed(device: str, suite: CapturedSuite, known: tuple[Verdict, ...]) -> SealedPage:
    one = planned(device)
    page = sealed_page(
        one,
        suite_of(one),
        replace(suite, files=()),
        {"torch": "2.13"},
        known or [one.verdict],
        RUNTIME,
        "python made.py",
    )
    data = {"sha256": hashlib.sha256(MODEL).hexdigest(), "bytes": len(MODEL)}
    sealed = {**page.sealed, "files": [{**data, **DESCRIBED}]}
    return SealedPage(text=seal_text(sealed), sealed=sealed, suite=suite, runtime=RUNTIME)


def suite_of(one: PlannedSuite) -> SuiteFile:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / one.file_name
        path.write_text(one.text, encoding="utf-8")
        read = read_suite(path)
    assert read is not None
    return read


def adapter(**changes: Any) -> dict[str, Any]:
    """A GPU's adapter as a browser tells of it."""
    told = {"vendor": "arm", "architecture": "valhall", "device": "", "description": "", "fallback": False}
    return {**told, **changes}


def browser() -> dict[str, str]:
    """A phone's browser as it tells of itself."""
    told = {"name": "Chrome", "version": "150", "agent": "Mozilla/5.0 (Linux; Android 16) Chrome/150"}
    return {**told, "platform": "Android 16", "model": "Phone 9", "architecture": "arm"}


def context(kind: str) -> dict[str, Any]:
    """A context of WebNN as a browser tells of it."""
    return {"kind": kind, "accelerated": None, "operators": ["matmul"], "preferredInputLayout": "nchw"}


def machine_of(device: str) -> str:
    """What a page calls the machine with that device."""
    told = f"{browser()['agent']} {browser()['model']} {device}"
    return f"browser-{hashlib.sha256(told.encode()).hexdigest()[:8]}"


def described(page: SealedPage, told: Mapping[str, Any]) -> tuple[str, dict[str, str], list[dict[str, str]]]:
    """What the page says of an adapter or a context: its name, conditions, and its entry of the inventory."""
    kind = page.sealed["target"]["device_type"]
    if kind:
        name = f"WebNN's {kind} context{'' if kind == 'cpu' else ', as requested'}"
        wish = f"a context of kind {kind}; the browser doesn't tell what executed"
        said = {} if kind == "cpu" else {"requested": wish}
        return name, said, [{"vendor": "", "model": name, "device_type": kind}]
    names = f"{told['vendor']} {told['architecture']}"
    return names, {"adapter": names}, [{"vendor": told["vendor"], "model": names, "device_type": "gpu"}]


def written(page: SealedPage, *, told: Mapping[str, Any] | None = None) -> Lines:
    """The lines that the page saves on a GPU, or a context, where everything that it can ask passes; the rest is
    `not_run`."""
    sealed: dict[str, Any] = json.loads(page.text)
    kind = sealed["target"]["device_type"]
    facts = dict(told or (context(kind) if kind else adapter()))
    device, said, listed = described(page, facts)
    runtime = f"onnxruntime-web {RUNTIME.version}, Chrome 150"
    begun = now()
    run_id = f"{begun[:19].replace('-', '').replace(':', '')}Z-abcdef"
    hashes = {
        **{name: sealed["runtime"][name]["sha256"] for name in ("script", "wasm")},
        **{name: sealed[name]["sha256"] for name in ("inputs", "expected")},
        "model-0": sealed["files"][0]["sha256"],
    }
    run = {
        **sealed["run"],
        "run_id": run_id,
        "started_at": begun,
        "machine": machine_of(device),
        "versions": {**sealed["run"]["versions"], BROWSER_OF_PAGE: "Chrome 150"},
        "inventory": {
            "host": {"system": "Android 16", "release": "", "machine": "arm"},
            "accelerators": listed,
            "browser": browser(),
            "adapter": facts,
        },
        "page": {"id": page.id, "hashes": hashes},
    }
    checks = []
    for name in sealed["run"]["plan"][0]["checks"]:
        line = {
            **sealed["check"],
            **{"kind": "check", "schema_version": 1, "run_id": run_id, "check_name": name, "origin": "hwcompat"},
            **{"started_at": now(), "duration_s": 0.1, "substitution_reason": "", "outcome": "passed"},
            "conditions": {**sealed["conditions"], **said, "page": page.id, "runtime": runtime},
            "accelerator": f"{device} through {runtime}",
            "actual_target": sealed["check"]["requested_target"],
            "actual_dtype": "float32",
        }
        steps = sealed["steps"].get(name, [])
        if name in sealed["not_captured"]:
            line |= {
                "outcome": "not_run",
                "error_type": "not_measured",
                "error_message": "a page can't run this check: it reads outputs itself",
                "actual_target": None,
                "actual_dtype": None,
            }
        elif name == "runs_natively":
            line |= {"native_ops": {"onnx.MatMul": 1}, "offloaded_ops": {}}
        elif steps:
            numbers = [ERROR if "at_most" in step else 1.5 for step in steps]
            line |= {"max_rel_error": ERROR, "tolerance": 2e-5, "steps": numbers}
        checks.append(line)
    counts = {"passed": len(checks) - 1, "not_run": 1}
    end = {"kind": "end", "schema_version": 1, "run_id": run_id, "ended_at": now(), "reason": "finished"}
    return [run, *checks, {**end, "counts": counts}]


def saved(folder: Path, lines: Lines, name: str = "") -> Path:
    """The file that a browser writes them to."""
    path = folder / (name or f"{lines[0]['run_id']}-1.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return path


def merged(folder: Path, change: Callable[[Lines], Any] = lambda _: None, **told: Any) -> Path:
    """The folder of evidence after a page's lines, changed or not, were merged into it."""
    page = made_page(told.pop("device", "webgpu"))
    lines = written(page, told=adapter(**told) if told else None)
    change(lines)
    evidence = folder / "evidence"
    keep_seal(evidence, page.text)
    merge_evidence(saved(folder / "from-a-phone", lines), evidence)
    return evidence


def of(lines: Lines, check: str) -> dict[str, Any]:
    """The line of a check."""
    return next(line for line in lines if line.get("check_name") == check)


def edit(check: str, **changes: Any) -> Callable[[Lines], None]:
    """What changes fields of a check's line."""
    return lambda lines: of(lines, check).update(changes)
