"""The pages of the web targets, asked in Node.js: they read the runtime's log, and end calls that hang or fail."""

from __future__ import annotations

from typing import Any

from in_node import asked, needs_node

from hardware.backends._web import ERROR_PATTERNS
from hardware.backends._web_placement import MEMCPY_OPERATORS, REARRANGING_OPERATORS, WHOLE, Incomplete, placement

pytestmark = needs_node
GPU, NN = "WebGpuExecutionProvider", "WebNNExecutionProvider"
STAMP = "2026-11-23 08:02:39.512000 [V:onnxruntime:, session_state.cc:1385 VerifyEachNodeIsAssignedToAnEp] "
OTHER = "2026-11-23 08:02:39.512000 [I:onnxruntime:, graph.cc:5610 CleanUnusedInitializersAndNodeArgs] "
HELPER = "2026-11-23 08:02:39.512000 [V:onnxruntime:, helper.cc:216 GetSupportedNodes] "
NODES = {"product": "onnx.MatMul", "sum": "onnx.Add", "part (1)": f"onnx.Slice{WHOLE}", "turn": "onnx.Transpose"}
EVERY = {"onnx.MatMul": 1, "onnx.Add": 1, f"onnx.Slice{WHOLE}": 1, "onnx.Transpose": 1}
SLICE = {f"onnx.Slice{WHOLE}": 1}
SPLIT = ({name: 1 for name in EVERY if name not in SLICE}, SLICE)


def some(provider: str, count: int) -> str:
    return f"{STAMP} Node(s) placed on [{provider}]. Number of nodes: {count}"


def every(provider: str, count: int) -> str:
    return f"{STAMP} All nodes placed on [{provider}]. Number of nodes: {count}"


def nodes(*lines: str) -> list[str]:
    return [f"{STAMP}  {line}" for line in lines]


def fused(*names: str, stated: int | None = None) -> list[str]:
    lines = [
        f"{HELPER}Operator type: [{NODES[name].removeprefix('onnx.').removesuffix(WHOLE)}] "
        f"index: [{place}] name: [{name}] supported: [1]"
        for place, name in enumerate(names)
    ]
    total = len(names) if stated is None else stated
    return [
        *lines,
        f"{HELPER}Operator type: [Softmax] index: [9] name: [no] supported: [0]",
        f"\x1b[0;93m{OTHER}{NN}::GetCapability, number of partitions supported by WebNN: 1 number of nodes in the "
        f"graph: 4 number of nodes supported by WebNN: {total}\x1b[m",
    ]


ON_GPU = nodes("MatMul (product)", "Add (sum)", "Transpose (turn)", "MemcpyToHost (Memcpy)")
REPLACED = nodes("MatMul (product_token_1)", "Add (sum)", "Transpose (Transpose_token_0)", "MemcpyToHost (Memcpy)")
SLICED = [some("CPU", 1), *nodes("Slice (part (1))")]
MESSAGES = ["\n".join([f"\x1b[0;93m{some(GPU, 4)}", *ON_GPU]), "\n".join([some("CPU", 1), "  Slice (part (1))"])]
STRAY = [some(GPU, 4), ON_GPU[0], "Shader compiled", f"{OTHER} Gone (away)", *ON_GPU[1:], *SLICED]
LISTS = [some(NN, 2), *nodes(f"WEBNN_7_1 ({NN}_WEBNN_7_1_0)", "MemcpyFromHost (Memcpy)"), *SLICED]
LOGS: list[tuple[str, list[str], Any]] = [
    (GPU, [every(GPU, 4)], (EVERY, {})),
    (GPU, [every("CPUExecutionProvider", 4)], ({}, EVERY)),
    (GPU, [*SLICED, some(GPU, 4), *ON_GPU], SPLIT),
    (GPU, MESSAGES, SPLIT),
    (GPU, STRAY, SPLIT),
    (GPU, [some(GPU, 4), *ON_GPU, *SLICED, f"{STAMP}  Softmax (no node of ours)"], SPLIT),
    (GPU, [*SLICED, some(GPU, 4), *REPLACED], SPLIT),
    (NN, [*fused(*NODES), every(NN, 1)], (EVERY, {})),
    (NN, [*fused("product", "sum", "turn"), *LISTS], SPLIT),
    (NN, [*fused(*NODES), *LISTS], SPLIT),
    (GPU, ["Shader compiled", f"{OTHER} Initializing session."], "doesn't show where"),
    (GPU, [some(GPU, 3), *ON_GPU[:3], some("CPU", 3), *SLICED[1:], "stray"], "lists 1 of 3 nodes of CPU"),
    (GPU, [every(GPU, 4), *SLICED], "reports all nodes, but other providers"),
    (GPU, [every(GPU, 2)], "where MatMul (product) ran"),
    (NN, [*fused("product", "turn", "part (1)"), every(NN, 1)], "where Add (sum) ran"),
    (NN, [*fused("product", "turn", stated=3), every(NN, 1)], "lists 2 of 3 fused nodes"),
    (NN, [every(NN, 1)], "where MatMul (product) ran"),
]


def test_a_page_reads_a_log_and_counts_as_python_does() -> None:
    rules = {"copies": MEMCPY_OPERATORS, "rearranging": REARRANGING_OPERATORS, "whole": WHOLE}
    call = """({ logs, nodes, rules }) => logs.map(([provider, lines]) => {
      const told = placed(lines); return [told, counted(told, nodes, { ...rules, provider })];
    })"""
    (nothing,) = asked("placement.mjs", call, {"logs": [[GPU, []]], "nodes": {}, "rules": rules})
    assert nothing[1] == {"native": {}, "host": {}}, "a file of constants alone needs no record"
    given = {"logs": [[target, lines] for target, lines, _ in LOGS], "nodes": NODES, "rules": rules}
    for (target, lines, expected), (told, page) in zip(LOGS, asked("placement.mjs", call, given), strict=True):
        own: Any
        try:
            found = placement(told, NODES, target)
            own = {"native": found.native, "host": found.host}
        except Incomplete as error:
            own = {"incomplete": str(error)}
        assert page == own, lines
        if isinstance(expected, str):
            assert expected in page["incomplete"], lines
        else:
            assert (page["native"], page["host"]) == expected, lines


SCRIPTS = "placement.mjs session.mjs adapters.mjs compare.js runtime.js checks.js"
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


def test_a_session_that_is_never_created_fails_at_once_or_times_out() -> None:
    found = ends("""(given) => {
      create = () => { soon(() => listeners[0]({ reason: new Error("shader is refused") })); return never; };
      return ended(modelOf(given), (model) => model.session(0));
    }""")
    assert (found["outcome"], found["stage"], found["quick"]) == ("failed", "compile", True)
    assert "shader is refused" in found["message"]
    assert not found["keeps"], "the console is released"
    call = "(given) => { create = () => never; return ended(modelOf(given), (model) => model.session(0)); }"
    found = ends(call, limit_s=0.05)
    assert (found["outcome"], found["errorType"]) == ("timeout", "timeout")


def test_a_lost_device_fails_the_call_unless_the_runtime_released_it() -> None:
    call = """(given) => {
      const made = create;
      create = async (number) => ({ ...(await made(number)), run: () => {
        soon(() => lose({ reason: "REASON", message: "it fell off the bus" }));
        return never;
      } });
      return ended(modelOf(given), (model) => model.run(0));
    }"""
    found = ends(call.replace("REASON", "unknown"), limit_s=1.0)
    assert (found["outcome"], found["errorType"]) == ("failed", "context_lost")
    assert "it fell off the bus" in found["message"]
    assert ends(call.replace("REASON", "destroyed"), limit_s=0.2)["outcome"] == "timeout"


def test_a_failure_stays_the_same() -> None:
    found = ends("""async (given) => {
      const model = modelOf(given);
      create = async () => { throw new Error("out of memory"); };
      await ended(model, () => model.session(0));
      create = async () => ({ outputNames: ["y"] });
      return ended(model, () => model.session(0));
    }""")
    assert (found["outcome"], found["errorType"]) == ("out_of_memory", "out_of_memory")


def test_a_page_builds_every_file_and_keeps_a_limited_number_of_sessions() -> None:
    found = ends("(given) => ended(modelOf(given), builds)", count=6)
    assert found == {"outcome": "passed", "open": [2, 3, 4, 5], "released": [0, 1]}
    call = """(given) => {
      create = async (number) => ({ outputNames: number === 2 ? [] : ["y"], release: async () => {} });
      return ended(modelOf(given), builds);
    }"""
    assert ends(call, count=3)["message"] == "file 2 has no y"


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
