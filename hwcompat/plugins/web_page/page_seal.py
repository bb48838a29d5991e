"""The seal of a page: everything that is fixed when the page is made, as one text whose hash names the page.

It has the prediction, the plan, limits, and hashes of the model's files, inputs and expected outputs. A copy is
stored beside the evidence (`hardware/evidence/pages.py`), and the page's evidence is compared with that copy.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwcompat.generators.compatibility.grade import level_rules
from hwcompat.generators.compatibility.judge import judge, published_or, strongest_of
from hwcompat.generators.compatibility.rules import load_rules
from hwcompat.generators.compatibility.verdict import Verdict
from hwcompat.generators.compatibility.vocabulary import vocabulary
from hwcompat.generators.models.given_recipe import GivenRecipe
from hwcompat.generators.plan import PlannedSuite, predicted_for
from hwcompat.hardware.backends._web import ERROR_PATTERNS, PASS_LIMIT_S, WebBackend
from hwcompat.hardware.backends._web_placement import MEMCPY_OPERATORS, REARRANGING_OPERATORS, WHOLE, operators_of
from hwcompat.hardware.backends.factory import backend_class, declarations_of, get_backend
from hwcompat.hardware.backends.webgpu import NATIVE
from hwcompat.hardware.cell import GRAPH_TASK, Cell
from hwcompat.hardware.errors import ModelError, UsageError
from hwcompat.hardware.evidence.latest import read_latest
from hwcompat.hardware.evidence.pages import BUILDS, SEAL_VERSION, seal_text
from hwcompat.hardware.evidence.record import SCHEMA_VERSION, PlannedCell, plain
from hwcompat.hardware.evidence.store import Evidence
from hwcompat.hardware.evidence.versions import recorded_versions
from hwcompat.hardware.evidence.writer import now
from hwcompat.hardware.export.exported import ONNX
from hwcompat.hardware.export.onnx_export import output_name
from hwcompat.hardware.files import PRODUCT
from hwcompat.hardware.inventory.hardware_info import HardwareInfo
from hwcompat.hardware.plain_text import one_line
from hwcompat.hardware.process import NoAnswer, answer, ask
from hwcompat.hardware.redaction import redact_all
from hwcompat.hardware.software import SOFTWARE_ADAPTERS
from hwcompat.hardware.target import Target
from hwcompat.hardware.testing.checkpoints import CHECKPOINTS_VARIABLE
from hwcompat.hardware.testing.pytest_environment import shield_pytest
from hwcompat.hardware.testing.suite_file import SuiteFile, read_suite
from hwcompat.hardware.testing.tolerances import tolerance_for
from hwcompat.reports.reason_text import reason_text

PRECISION = "float32"
ISOLATION = "none: all checks of a page share one tab"


_SUITE_INI = PRODUCT / "hardware" / "testing" / "suite.ini"
INPUTS, EXPECTED = "inputs.bin", "expected.bin"
LIMIT_S = 600.0


@dataclass(frozen=True, kw_only=True)
class CapturedSuite:
    """The computations of a suite's checks on a target, as plain data, and the bytes of files and arrays.

    `files` are the models as ONNX. `asked` holds `steps` by check, `passes`, `wanted`, `facts`, `conditions`, and
    `not_captured`: why a page can't run a check, by check. Arrays in it are offsets in `inputs` and `expected`.
    """

    files: tuple[bytes, ...]
    inputs: bytes
    expected: bytes
    asked: Mapping[str, Any]


def capture(suite: Path, given: Mapping[str, str]) -> CapturedSuite:
    """Run the suite in a child that works in its folder, with `given` in its environment.

    Raises `ModelError` if its model can't be built or exported here, or if a check fails before it uses a target.
    """
    folder = suite.parent
    environment = {**os.environ, **given}
    shield_pytest(environment)
    try:
        asked = ask(__name__, str(suite), limit_s=LIMIT_S, environment=environment)
    except NoAnswer as error:
        raise ModelError("the suite couldn't be captured", why=str(error)) from error
    for check, why in asked["failed"].items():
        raise ModelError(
            f"no page can be made: {check} fails before it uses the target", why=one_line(why, longest=500)
        )
    return CapturedSuite(
        files=tuple((folder / f"{number}.onnx").read_bytes() for number in range(asked["files"])),
        inputs=(folder / INPUTS).read_bytes(),
        expected=(folder / EXPECTED).read_bytes(),
        asked=asked,
    )


class _Plugin:
    """Records which check runs, and why one could not be captured or failed."""

    def __init__(self) -> None:
        self.not_captured: dict[str, str] = {}
        self.failed: dict[str, str] = {}

    def pytest_runtest_setup(self, item: Any) -> None:
        from .captured_test import captured

        captured.check = item.name.removeprefix("test_")

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        from .captured_test import NotCaptured, captured

        if call.excinfo is None:
            return
        error = call.excinfo.value
        check = item.name.removeprefix("test_")
        captured.steps.pop(check, None)
        found = self.not_captured if isinstance(error, NotCaptured) else self.failed
        found[check] = str(error) if isinstance(error, NotCaptured) else f"{type(error).__name__}: {error}"


def _in_child(name: str) -> dict[str, Any]:
    import pytest

    from hwcompat.hardware import testing

    from .captured_test import CapturedFile, CapturedTest, captured

    suite = Path(name)
    folder = suite.parent
    testing.ModelTest, testing.GraphTest = CapturedTest, CapturedFile  # type: ignore[misc]
    plugin = _Plugin()
    settings = ["-c", str(_SUITE_INI), f"--rootdir={folder}", "--noconftest", "--capture=sys", "--tb=line"]
    code = int(pytest.main([str(suite), *settings], plugins=[plugin]))
    if code not in (0, 1):
        raise ModelError("the suite couldn't be captured", why=f"pytest ended with exit code {code}")
    for number, file in enumerate(captured.files.values()):
        (folder / f"{number}.onnx").write_bytes(file.read_bytes())
    (folder / INPUTS).write_bytes(captured.inputs.data)
    (folder / EXPECTED).write_bytes(captured.expected.data)
    found = {
        "files": len(captured.files),
        "steps": captured.steps,
        "passes": captured.passes,
        "wanted": captured.wanted,
        "facts": captured.facts,
        "conditions": captured.conditions,
        "not_captured": plugin.not_captured,
        "failed": plugin.failed,
    }
    json.dumps(found, allow_nan=False)  # raises for values that JSON doesn't have
    return found


if __name__ == "__main__":
    answer(_in_child)


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """ONNX Runtime Web in a page: its `script` with all imports, its `wasm`, its version."""

    version: str
    script: bytes
    wasm: bytes


@dataclass(frozen=True, kw_only=True)
class SealedPage:
    """The data of a page: the seal's `text`, its content as `sealed`, and the bytes whose hashes it has."""

    text: str
    sealed: Mapping[str, Any]
    suite: CapturedSuite
    runtime: Runtime

    @property
    def id(self) -> str:
        """The page's name: the hash of its seal."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def require_page(planned: Sequence[PlannedSuite]) -> PlannedSuite:
    """Return the only suite if a page can be made of it. Raises `UsageError` with the reason otherwise."""
    if len(planned) != 1:
        raise UsageError(
            f"a page is for one cell, and you chose {len(planned)}",
            why="a page shows one verdict",
            fix="Pass one model with one task, and one device; --select chooses among several.",
        )
    (one,) = planned
    if not issubclass(backend_class(one.cell.target.name), WebBackend) or one.cell.target.variant == NATIVE:
        raise UsageError(
            f"browsers don't run {one.cell.target}", fix="Use --device webgpu, webnn, webnn:gpu or webnn:npu."
        )
    recipe = one.profile.recipe
    if isinstance(recipe, GivenRecipe) and not recipe.name.lower().endswith(".onnx"):
        raise UsageError(
            f"no page can be made of {one.profile.asked}", why="browsers run .onnx files, model types and checkpoints"
        )
    if isinstance(recipe, GivenRecipe) and recipe.computes_in != PRECISION:
        why = f"it computes in {recipe.computes_in}, and a page in {PRECISION}"
        raise UsageError(f"no page can be made of {one.profile.asked}", why=why)
    if one.cell.precision != PRECISION:
        raise UsageError(f"a page computes in {PRECISION}, not in {one.cell.precision}", fix="Remove --precision.")
    return one


def known_of(planned: PlannedSuite, inventory: HardwareInfo, evidence: Evidence) -> tuple[Verdict, ...]:
    """Return a verdict for each target: measured if there is evidence, otherwise predicted by rules."""
    predicted = predicted_for(planned.profile, planned.cell.precision, load_rules(), inventory)
    targets = [Target(name=name) for name in vocabulary().hardware_types if not declarations_of(name).SIMULATED]
    verdicts = [
        planned.verdict if target == planned.cell.target else published_or(predicted(target)) for target in targets
    ]
    if planned.cell.target not in targets:
        verdicts.append(planned.verdict)
    own = tuple(line for line in evidence.checks if line.model == planned.cell.model)
    measured = {one.cell: one for one in judge(read_latest(dataclasses.replace(evidence, checks=own)), inventory)}
    return tuple(strongest_of(measured.get(one.cell, one), one) for one in verdicts)


def seal(
    planned: PlannedSuite,
    versions: Mapping[str, str],
    known: Sequence[Verdict],
    runtime: Runtime,
    command: str,
) -> SealedPage:
    """Capture the computations of the suite's checks, and seal them.

    `versions` are those of this machine, `known` the verdicts of the model on every target. Takes as long as the
    model's exports. Raises `ModelError` if the model can't be exported.
    """
    with tempfile.TemporaryDirectory(prefix="hwcompat-page-") as name:
        path = Path(name) / planned.file_name
        path.write_text(planned.text, encoding="utf-8")
        suite = read_suite(path)
        assert suite is not None
        folders = os.pathsep.join(map(str, planned.profile.folders))
        captured = capture(path, {CHECKPOINTS_VARIABLE: folders} if folders else {})
    return sealed_page(planned, suite, captured, versions, known, runtime, command)


def sealed_page(
    planned: PlannedSuite,
    suite: SuiteFile,
    captured: CapturedSuite,
    versions: Mapping[str, str],
    known: Sequence[Verdict],
    runtime: Runtime,
    command: str,
) -> SealedPage:
    """Return the seal of the captured suite. Raises `ModelError` if a check has neither steps nor a reason."""
    cell, asked = planned.cell, captured.asked
    run = suite.planned(planned.verdict.to_dict())
    if not_captured := [
        one for one in run.checks if one != BUILDS and one not in {**asked["steps"], **asked["not_captured"]}
    ]:
        raise ModelError(
            f"no page can be made: {', '.join(not_captured)} wasn't captured",
            why="its run didn't use the target, and gave no reason",
        )
    conditions = {"optimisation": "O0", **asked["conditions"], **asked["facts"].get("conditions", {})}
    rules = level_rules()
    limit = tolerance_for(cell.target, cell.precision, conditions)
    own = planned.tolerance
    sealed = {
        "schema_version": SEAL_VERSION,
        "sealed_at": now(),
        "run": redact_all(_run(run, cell, versions, command)),
        "check": {
            "cell_id": cell.id,
            "subject": suite.subject,
            "requested_target": str(cell.target),
            "precision": cell.precision,
            "model": cell.model,
            "task": cell.task,
            "suite_hash": suite.suite_hash,
            "model_revision": suite.model_revision,
            "config_hash": suite.config_hash,
            "architecture": suite.architecture,
        },
        "conditions": conditions,
        "limited_by": [rules.condition_text(*one) for one in rules.limiting(conditions)],
        "tolerance": {"limit": own.limit if own else limit.limit, "reason": own.stated if own else limit.reason},
        "parameters": asked["facts"].get("parameters"),
        **{name: asked[name] for name in ("steps", "passes", "wanted", "not_captured")},
        "files": [_file(data, whole=cell.task == GRAPH_TASK) for data in captured.files],
        "inputs": _hashed(captured.inputs),
        "expected": _hashed(captured.expected),
        "target": _target(cell),
        "runtime": {
            "version": runtime.version,
            "script": _hashed(runtime.script),
            "wasm": _hashed(runtime.wasm),
        },
        "known": redact_all([_known(one) for one in known]),
    }
    return SealedPage(text=seal_text(sealed), sealed=sealed, suite=captured, runtime=runtime)


def _hashed(data: bytes) -> dict[str, Any]:
    return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


def _run(planned: PlannedCell, cell: Cell, versions: Mapping[str, str], command: str) -> dict[str, Any]:
    """Return the fixed part of the run line: the page adds its id, its time and the device."""
    return {
        "kind": "run",
        "schema_version": SCHEMA_VERSION,
        "command": command,
        "versions": recorded_versions(cell, versions, planned.checks),
        "plan": [plain(dataclasses.asdict(planned))],
        "isolation": ISOLATION,
        "resumes": [],
        "jobs": 1,
        "origin": "hwcompat",
    }


def _target(cell: Cell) -> dict[str, Any]:
    """Return the facts of the target's backend that a page needs, so that its lists stay in one place."""
    backend = get_backend(cell.target)
    assert isinstance(backend, WebBackend)
    return {
        "api": backend.API,
        "provider": dict(backend.provider()),
        "placement": {
            "provider": backend.PROVIDER,
            "copies": list(MEMCPY_OPERATORS),
            "rearranging": list(REARRANGING_OPERATORS),
            "whole": WHOLE,
        },
        "device_type": backend.device_type,
        "host_allowed": sorted(backend.HOST_ALLOWED),
        "error_patterns": [list(one) for one in ERROR_PATTERNS],
        "software": list(SOFTWARE_ADAPTERS),
        "unseen": backend.UNSEEN,
        "limit_s": PASS_LIMIT_S,
    }


def _file(data: bytes, *, whole: bool) -> dict[str, Any]:
    """Describe a model's file: its hash, its floating-point outputs by name, with `whole` also those of integers, and
    its nodes as in evidence."""
    import onnx

    with tempfile.TemporaryDirectory(prefix="hwcompat-page-") as name:
        path = Path(name) / ONNX
        path.write_bytes(data)
        nodes = dict(operators_of(path))
    graph = onnx.load_from_string(data).graph
    floating = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)
    outputs = {
        one.name: output_name(one.name) for one in graph.output if whole or one.type.tensor_type.elem_type in floating
    }
    return {**_hashed(data), "inputs": [one.name for one in graph.input], "outputs": outputs, "nodes": nodes}


def _known(verdict: Verdict) -> dict[str, str]:
    cell = Cell.parse(verdict.cell)
    said = "; ".join(re.sub(r"\s+", " ", reason_text(one)) for one in verdict.reasons)
    return {
        "target": str(cell.target),
        "level": str(verdict.level),
        "basis": str(verdict.basis),
        "reason": said[:600],
    }
