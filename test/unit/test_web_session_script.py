"""What becomes of calls that the runtime forgets, of devices that are lost, and of sessions that are too many."""

from __future__ import annotations

from typing import Any

import pytest
from in_node import asked, needs_node

from hardware.backends._web import ERROR_PATTERNS

pytestmark = needs_node

SCRIPTS = "placement.mjs session.mjs adapters.mjs parity.js runtime.js checks.js"
BEFORE = """
const listeners = [];
globalThis.addEventListener = (kind, listener) => kind === "unhandledrejection" && listeners.push(listener);
const never = new Promise(() => {});
const soon = (what) => setTimeout(what, 20);
const released = [];
let create = async (number) => ({
  inputNames: [], outputNames: ["y"], release: async () => released.push(number), run: async () => ({}),
});
let lose;
const device = { lost: new Promise((resolve) => (lose = resolve)) };
const ort = { env: { webgpu: { device }, wasm: {} }, InferenceSession: { create: (bytes) => create(bytes[0]) } };
function modelOf({ target, count }) {
  const numbers = [...Array(count).keys()];
  const files = numbers.map(() => ({ nodes: {}, outputs: { y: "y" } }));
  const bytes = Object.fromEntries(numbers.map((number) => [`model-${number}`, new Uint8Array([number])]));
  const seal = { target, files, passes: [{ file: 0, inputs: {} }] };
  const model = new Model(seal, { bytes: { ...bytes, inputs: new Uint8Array() } });
  model.ort = ort;
  return model;
}
async function ended(model, call) {
  const started = Date.now();
  try { await call(model); return { outcome: "passed", open: [...model.sessions.open.keys()], released }; }
  catch ({ errorType, outcome, message, stage }) {
    return { errorType, outcome, message, stage, quick: Date.now() - started < 10_000, keeps: heard.keeps };
  }
}
"""


def ends(call: str, *, limit_s: float = 60.0, count: int = 1) -> dict[str, Any]:
    """How a page's call on its model ends."""
    target = {
        **{"provider": {"name": "webgpu"}, "placement": {"provider": "x", "copies": [], "rearranging": []}},
        **{"error_patterns": [list(one) for one in ERROR_PATTERNS], "limit_s": limit_s},
    }
    found: dict[str, Any] = asked(SCRIPTS, call, {"target": target, "count": count}, before=BEFORE)
    assert "error" not in found, found
    return found


def test_what_the_runtime_awaits_nowhere_fails_its_call_at_once() -> None:
    found = ends("""(given) => {
      create = () => { soon(() => listeners[0]({ reason: new Error("shader is refused") })); return never; };
      return ended(modelOf(given), (model) => model.session(0));
    }""")
    assert (found["outcome"], found["stage"], found["quick"]) == ("failed", "compile", True)
    assert "shader is refused" in found["message"]
    assert not found["keeps"], "the console is let go"


def test_a_call_that_doesnt_end_is_a_timeout() -> None:
    found = ends(
        "(given) => { create = () => never; return ended(modelOf(given), (model) => model.session(0)); }",
        limit_s=0.05,
    )
    assert (found["outcome"], found["errorType"]) == ("timeout", "timeout")


@pytest.mark.parametrize(("reason", "outcome"), [("unknown", "failed"), ("destroyed", "timeout")])
def test_a_device_that_is_lost_fails_the_call_that_waits_for_it(reason: str, outcome: str) -> None:
    """One that the runtime gave back itself doesn't."""
    found = ends(
        """(given) => {
      const made = create;
      create = async (number) => ({ ...(await made(number)), run: () => {
        soon(() => lose({ reason: "REASON", message: "it fell off the bus" }));
        return never;
      } });
      return ended(modelOf(given), (model) => model.run(0));
    }""".replace("REASON", reason),
        limit_s=1.0,
    )
    assert found["outcome"] == outcome
    if outcome == "failed":
        assert found["errorType"] == "context_lost"
        assert "it fell off the bus" in found["message"]


def test_a_failure_is_the_same_ever_after() -> None:
    found = ends("""async (given) => {
      const model = modelOf(given);
      create = async () => { throw new Error("out of memory"); };
      await ended(model, () => model.session(0));
      create = async () => ({ outputNames: ["y"] });
      return ended(model, () => model.session(0));
    }""")
    assert (found["outcome"], found["errorType"]) == ("out_of_memory", "out_of_memory")


def test_a_page_builds_every_file_and_keeps_no_more_sessions_than_it_should() -> None:
    found = ends("(given) => ended(modelOf(given), builds)", count=6)
    assert found == {"outcome": "passed", "open": [2, 3, 4, 5], "released": [0, 1]}
    found = ends(
        """(given) => {
      create = async (number) => ({ outputNames: number === 2 ? [] : ["y"], release: async () => {} });
      return ended(modelOf(given), builds);
    }""",
        count=3,
    )
    assert found["message"] == "file 2 has no y"


def test_an_adapter_or_a_context_that_raises_is_a_reason() -> None:
    before = """
const raises = async () => { throw new TypeError("not today"); };
Object.defineProperty(globalThis, "navigator", {
  value: { gpu: { requestAdapter: raises }, ml: { createContext: raises } },
});
"""
    both = asked("adapters.mjs", "async () => [await adapterHere(), await contextHere('npu')]", {}, before=before)
    assert both == [
        {"reason": "this browser has WebGPU and fails to offer an adapter: TypeError: not today"},
        {"reason": "WebNN gives no context of kind npu: TypeError: not today"},
    ]
