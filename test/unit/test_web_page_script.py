"""The page's script and its twins in Python, on the same arrays and the same log. Needs Node.js."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hardware.backends import _web_runnable
from hardware.testing.parity import ReferenceNotFinite, compare
from hardware.workers.web_worker import placed
from reports.web_page.rendering import SCRIPTS

FOLDER = Path(__file__).parents[2] / "reports" / "web_page"
pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="Node.js isn't here")

PROGRAM = """
const fs = require("fs"), vm = require("vm");
vm.runInThisContext(fs.readFileSync(process.argv[1], "utf-8"));
const numbers = { nan: NaN, inf: Infinity, "-inf": -Infinity };
const read = JSON.parse(fs.readFileSync(0, "utf-8"), (_, value) => numbers[value] ?? value);
const said = (value) => (typeof value === "number" && !Number.isFinite(value) ? String(value) : value);
let found;
try { found = vm.runInThisContext(process.argv[2])(read); }
catch (error) { found = { error: error.constructor.name }; }
console.log(JSON.stringify(found, (_, value) => said(value)));
"""


def asked(script: str, call: str, given: Any) -> Any:
    """What a function of the page's script answers."""
    data = (
        json.dumps(given, default=float)
        .replace("NaN", '"nan"')
        .replace("Infinity", '"inf"')
        .replace('-"inf"', '"-inf"')
    )
    command = ["node", "-e", PROGRAM, str(FOLDER / script), call]
    done = subprocess.run(command, input=data, capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout)


def flat(array: Any) -> dict[str, Any]:
    kind = "int64" if array.dtype.kind in "iu" else "float64"
    return {"type": kind, "dims": list(array.shape), "data": array.ravel().tolist()}


def both(got: Any, want: Any, mask: Any = None, required: tuple[str, ...] = ("logits",)) -> tuple[Any, Any]:
    """The errors that Python and the page measure, or the name of what they raise."""
    masks = {"logits": mask} if mask is not None else {}
    try:
        found = compare({"logits": got}, {"logits": want}, masks=masks, required=required)
        own: Any = found.max_rel_error, found.max_abs_error
    except ReferenceNotFinite as error:
        own = type(error).__name__
    given = {
        "got": {"logits": flat(got)},
        "want": {
            "outputs": {"logits": flat(want)},
            "masks": {name: flat(one) for name, one in masks.items()},
            "required": list(required),
        },
    }
    said = asked("parity.js", "({ got, want }) => compare(got, want)", given)
    numbers = [float(str(said.get(name)).replace("Infinity", "inf")) for name in ("rel", "abs") if name in said]
    page = said.get("error") or tuple(numbers)
    return own, page


RANDOM = np.random.default_rng(0)
WANT = RANDOM.normal(size=(2, 5, 7))
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]])
NEAR = WANT + RANDOM.normal(size=WANT.shape) * 1e-6
BEHIND_THE_MASK = np.where(MASK[..., None] == 1, NEAR, 100.0)
RULED_OUT = np.where(RANDOM.random(WANT.shape) < 0.2, -np.inf, WANT)


def odd(value: float, array: Any = NEAR) -> Any:
    changed = array.copy()
    changed[0, 1, 2] = value
    return changed


@pytest.mark.parametrize(
    ("got", "want", "mask"),
    [
        pytest.param(NEAR, WANT, None, id="near"),
        pytest.param(NEAR, WANT, MASK, id="near, under a mask"),
        pytest.param(BEHIND_THE_MASK, WANT, MASK, id="wrong where the mask says so"),
        pytest.param(BEHIND_THE_MASK, WANT, None, id="wrong"),
        pytest.param(NEAR, WANT, MASK[:, :3], id="a mask that is shorter than its output"),
        pytest.param(odd(math.nan), WANT, None, id="not a number"),
        pytest.param(odd(math.inf), WANT, None, id="infinite"),
        pytest.param(NEAR, odd(math.nan, WANT), None, id="a reference that isn't finite"),
        pytest.param(np.where(np.isneginf(RULED_OUT), -np.inf, NEAR), RULED_OUT, None, id="ruled out by both"),
        pytest.param(NEAR, RULED_OUT, None, id="ruled out by one"),
        pytest.param(NEAR[:1], WANT, None, id="another shape"),
        pytest.param(np.array([3.0001]), np.array([3.0]), None, id="a number alone"),
        pytest.param(np.full((4,), 2.5), np.full((4,), 2.0), None, id="a number repeated"),
        pytest.param(np.zeros((3,)) + 1e-9, np.zeros((3,)), None, id="nothing but zeros"),
        pytest.param(np.arange(6), np.arange(6), None, id="whole numbers"),
        pytest.param(np.arange(6) + 1, np.arange(6), None, id="other whole numbers"),
        pytest.param(NEAR, WANT, np.zeros_like(MASK), id="nothing to compare"),
    ],
)
def test_the_page_measures_the_error_that_we_measure(got: Any, want: Any, mask: Any) -> None:
    own, page = both(got, want, mask)
    assert page == (own if isinstance(own, str) else pytest.approx(own, rel=1e-9))


def test_an_output_that_is_missing_is_an_infinite_error() -> None:
    own, page = both(NEAR, WANT, required=("logits", "states"))
    assert own == page == (math.inf, math.inf)


def test_recorded_numbers_are_read_at_their_places() -> None:
    step = {
        "output": "logits",
        "values": [[[1, 4, 6], float(WANT[1, 4, 6])], [[0, 2, 1], float(WANT[0, 2, 1])]],
        "scale": 2,
    }
    given = {"got": {"logits": flat(WANT)}, "step": step}
    call = "({ got, step }) => recordedError(got, step)"
    assert asked("parity.js", call, given)["rel"] == 0
    given["got"]["logits"]["data"][-1] += 0.5
    assert asked("parity.js", call, given)["rel"] == pytest.approx(0.25)
    given["got"]["logits"]["data"][-1] = math.nan
    assert asked("parity.js", call, given)["rel"] == "Infinity"


STAMP = "2026-11-23 08:02:39.512000 [V:onnxruntime:, session_state.cc:1280 VerifyEachNodeIsAssignedToAnEp]"
LOGS = {
    "all on the target": [f"{STAMP}  All nodes placed on [WebGpuExecutionProvider]. Number of nodes: 3"],
    "all on the host": [f"{STAMP}  All nodes placed on [CPUExecutionProvider]. Number of nodes: 3"],
    "on both, one message": [
        f"{STAMP} Node(s) placed on [WebGpuExecutionProvider]. Number of nodes: 2\n  MatMul (product)\n  Add (sum)",
        f"{STAMP} Node(s) placed on [CPUExecutionProvider]. Number of nodes: 1\n  Slice (part (1))",
    ],
    "on both, a message each": [
        f"\x1b[0;93m{STAMP}  Node(s) placed on [WebGpuExecutionProvider]. Number of nodes: 1",
        f"{STAMP}   MatMul (product)",
        f"{STAMP} Node(s) placed on [CPUExecutionProvider]. Number of nodes: 2",
        f"{STAMP}   Slice (part (1))",
        f"{STAMP}   MemcpyToHost (Memcpy)",
        f"{STAMP} Something else (that is no node) follows",
        "  Softmax (not one of them)",
    ],
    "nothing": ["Shader compiled", f"{STAMP} Initializing session."],
}
NODES = {"product": "onnx.MatMul", "sum": "onnx.Add", "part (1)": "onnx.Slice of whole numbers"}


@pytest.mark.parametrize("what", LOGS)
def test_the_page_reads_the_runtimes_log_as_we_do(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    own = placed(LOGS[what])
    assert asked("placement.js", "(lines) => placed(lines)", LOGS[what]) == own
    given = {"said": own, "nodes": NODES, "copies": list(_web_runnable._COPIES)}
    call = '({ said, nodes, copies }) => counted(said, nodes, "WebGpuExecutionProvider", copies)'
    page = asked("placement.js", call, given)
    runnable = object.__new__(_web_runnable.WebRunnable)
    runnable.proofs, runnable.files = {(): {"nodes": own}}, {(): Path()}
    runnable.backend = type("Backend", (), {"PROVIDER": "WebGpuExecutionProvider"})()
    monkeypatch.setattr(_web_runnable, "_nodes", lambda _: NODES)
    if not own:
        assert page is None
        return
    native, host = runnable.placed({})
    assert (page["native"], page["host"]) == (dict(native), dict(host))


def test_the_scripts_are_small_and_none_fetches() -> None:
    for name in SCRIPTS:
        text = (FOLDER / name).read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 400, name
        for word in ("fetch(", "XMLHttpRequest", "WebSocket", "sendBeacon", "innerHTML", "localStorage"):
            assert word not in text, (name, word)
