"""Repro scripts: Python that needs no package of ours, a comparison like ours, and whether a failure is the same."""

from __future__ import annotations

import ast
import base64
import itertools
import math
import re
import sys
import tomllib
import types
from pathlib import Path

import numpy as np
import pytest

from hardware.compare import compare
from hardware.errors import UsageError
from hwcompat.plugins.triage.repro.captured_failure import (
    EXPECTED,
    INPUTS,
    WEIGHTS,
    CapturedFailure,
    Does,
    FailedStep,
    Shape,
    Way,
)
from hwcompat.plugins.triage.repro.repro_script import ModelSource, Shown, last_exception, model_source, script_text
from hwcompat.plugins.triage.repro_match import judge

SUITES = Path(__file__).parents[1] / "recorded" / "suites"
SOURCE = ModelSource(
    imports=("from transformers import BertModel",), code="def make_model():\n    return BertModel()"
)
HOSTILE = '"""\nimport os; os.unlink("x") #{{ 7 * 7 }}'
FACTS = {
    "use_cache": True,
    "prompt": ["input_ids"],
    "limit": "max_new_tokens",
    "steps": 6,
    "trains_only": False,
    "order": ["input_ids", "x.0", HOSTILE],
    "config": {"session.disable_cpu_ep_fallback": "1", HOSTILE: HOSTILE},
    "optimisation": "ORT_DISABLE_ALL",
    "outputs": ["logits", HOSTILE],
    "fixed": True,
    "arguments": ["--quiet", HOSTILE],
    "bundle": HOSTILE,
    "provider": {"name": HOSTILE},
}
OURS = {"hardware", "generators", "reports", "benchmarks", "hwcompat"}


def own_imports(text: str) -> tuple[str, ...]:
    """The modules of ours that a text would import: there may be none."""
    found = []
    for node in ast.walk(ast.parse(text)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        found += [name for name in names if name.partition(".")[0] in OURS]
    return tuple(found)


def captured(way: Way, does: Does = Does.FORWARD, **changes: object) -> CapturedFailure:
    step = FailedStep(way=way, does=does, device="cpu", graph="model.onnx", options={"a": HOSTILE}, facts=FACTS)
    values = {"check": "matches_reference", "shape": Shape.NUMBERS, "step": step, "error": 1.0, "tolerance": 1e-5}
    return CapturedFailure(**{**values, **changes})


def text_of(found: CapturedFailure, *, expected: tuple[str, ...] = ("logits",), masks: bool = False) -> str:
    arrays = {INPUTS: ["input_ids", "x.0", HOSTILE], EXPECTED: list(expected), WEIGHTS: []}
    return script_text(found, SOURCE, arrays, title=HOSTILE, story=[HOSTILE], masks=masks)


def test_every_script_is_python_without_a_package_of_ours() -> None:
    ways = [(Way.TORCH, does) for does in Does] + [(way, Does.FORWARD) for way in Way if way is not Way.TORCH]
    ways += [(Way.ONNX_FILE, Does.RELOAD), (Way.OPENVINO_GRAPH, Does.RELOAD)]
    modules = {"np", "torch", "openvino", "onnxruntime", "onnxruntime_qnn", "json", "sys", "tempfile", "platform"}
    for (way, does), shape in itertools.product(ways, (Shape.NUMBERS, Shape.RAISED)):
        own = {"scales": {"logits": 2.0}, "parts": {HOSTILE: ("logits", 1, 0, 1)}}
        text = text_of(captured(way, does, shape=shape, **own), masks=way is Way.OPENVINO_CONVERT)
        tree = ast.parse(text)
        nodes = list(ast.walk(tree))
        assert own_imports(text) == (), way
        called = {node.func.attr for node in nodes if isinstance(node, ast.Call) and hasattr(node.func, "attr")}
        assert "unlink" not in called, f"{way}: a name became code"
        assert "7 * 7" in text, f"{way}: a name is no template"
        used = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        imports = [alias for node in tree.body if isinstance(node, ast.Import) for alias in node.names]
        assert used & modules <= {alias.asname or alias.name for alias in imports}, f"{way}: a missing import"
    with pytest.raises(UsageError, match="because"):
        text_of(captured(Way.TORCH, refused="because"))


def test_a_script_is_one_file_that_pins_the_versions_it_ran_with() -> None:
    printed = (
        "python 3.11.7 on Linux x86_64\ntorch 2.13.0+cpu\nnumpy 2.4.6\nsafetensors isn't installed\n"
        'transformers 5.5"\n# os.unlink\nother 1.0\nout: off by 1.0e+00 of its scale\n'
    )
    found = captured(Way.TORCH)
    arrays = {INPUTS: ["input_ids"], EXPECTED: ["logits"]}
    files = {INPUTS: bytes(range(256)), "model.data/part": b"part"}
    text = script_text(found, SOURCE, arrays, title="t", story=[], files=files, printed=printed)
    # The regular expression of the specification's reference implementation.
    header = re.search(r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$", text)
    assert header is not None
    toml = tomllib.loads("".join(line[2:] for line in header["content"].splitlines(keepends=True)))
    assert (toml["requires-python"], toml["dependencies"]) == ("==3.11.*", ["torch==2.13.0", "numpy==2.4.6"])
    assert toml["tool"]["uv"]["index"][0]["url"].endswith("/whl/cpu")
    assert "uv run repro.py" in (ast.get_docstring(ast.parse(text)) or "")
    assert 'transformers 5.5"' not in text
    values = next(
        ast.literal_eval(node.value)
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "FILES"
    )
    assert {name: base64.b64decode(one) for name, one in values.items()} == files
    assert "# ///" not in script_text(found, SOURCE, arrays, title="t", story=[], printed="Segmentation fault")


def compared(got: np.ndarray, want: np.ndarray, mask: np.ndarray, *, infinite: bool) -> float:
    """The error that the script's own comparison gives."""
    expected = ("logits", *(["minus infinity"] if infinite else []))
    text = text_of(captured(Way.QNN_GRAPH), expected=expected)
    names: dict[str, object] = {"__name__": "script", "__file__": __file__}
    with pytest.MonkeyPatch.context() as patch:
        for name in ("onnxruntime", "onnxruntime_qnn"):
            patch.setitem(sys.modules, name, types.ModuleType(name))
        exec(compile(text, "script", "exec"), names)
    return names["distance"](got, want, mask)[0]


def test_its_comparison_is_ours() -> None:
    random = np.random.default_rng(0)
    want = random.standard_normal((2, 6, 5))
    got = want + 1e-3 * random.standard_normal(want.shape)
    mask = np.array([[1, 1, 1, 1], [1, 0, 0, 0]])  # what lies behind it, as an image's places, means something
    got[1, 2] += 100  # ruled out by the mask
    ours = compare({"logits": got}, {"logits": want}, masks={"logits": mask}).max_rel_error
    assert compared(got, want, mask, infinite=False) == pytest.approx(ours)
    assert 1e-4 < ours < 1e-2

    want[0, 0, 0] = -np.inf
    got[0, 0, 0] = -65504.0
    ruled = np.where(got <= -65504.0, -np.inf, got)
    ours = compare({"logits": ruled}, {"logits": want}, masks={"logits": mask}).max_rel_error
    assert compared(got, want, mask, infinite=True) == pytest.approx(ours)

    got[0, 1, 0] = np.nan
    assert compared(got, want, mask, infinite=True) == np.inf

    whole, mask = np.array([[1, 2], [3, 4]]), np.array([[1, 1], [1, 0]])
    assert compared(np.array([[1, 2], [3, 9]]), whole, mask, infinite=False) == 0.0
    assert compared(np.array([[1, 9], [3, 4]]), whole, mask, infinite=False) == np.inf


def test_the_code_of_a_model_is_taken_from_its_suite() -> None:
    for path in sorted(SUITES.glob("test_*_cpu_*.py")):
        text = path.read_text(encoding="utf-8")
        found = model_source(text)
        whole = "\n".join(found.imports) + "\n" + found.code
        assert own_imports(whole) == (), path
        assert found.code.split("\n\n\n")[-1] in text, path
        defined = {node.name for node in ast.parse(whole).body if isinstance(node, ast.FunctionDef)}
        assert defined == (set() if found.checkpoint else {"make_model"}), path
    for start, words in (
        ("from hardware.testing import fill", "it needs hardware"),
        ("from my_package import fill", "it needs my_package"),
    ):
        with pytest.raises(UsageError, match=words):
            model_source(f"{start}\n\n\ndef make_model():\n    return fill()\n")


def test_a_checkpoint_is_named_and_not_copied() -> None:
    suite = (
        "from transformers import BertModel\nfrom hardware.testing import checkpoint_folder, load_checkpoint\n"
        "def make_model():\n    return load_checkpoint(BertModel, checkpoint_folder(CELL, MODEL_REVISION))\n"
    )
    found = model_source(suite)
    assert (found.checkpoint, found.code, found.imports) == ("BertModel", "", ("from transformers import BertModel",))
    text = script_text(captured(Way.TORCH), found, {INPUTS: []}, title="", story=[])
    assert "BertModel.from_pretrained(sys.argv[1]" in text
    assert "import sys" in text.splitlines()


def test_the_last_exception_of_a_log_counts() -> None:
    log = (
        "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\nKeyError: 'a'\n\nDuring handling:\n\n"
        'Traceback (most recent call last):\n  File "b.py", line 2, in g\n    g()\n'
        "openvino._pyopenvino.OpConversionFailure: Check 'false' failed\nSummary:\n-- No rule: aten::lgamma\n"
    )
    expected = "Check 'false' failed\nSummary:\n-- No rule: aten::lgamma"
    assert last_exception(log) == ("OpConversionFailure", expected)
    assert last_exception("Segmentation fault") == ("", "")


LGAMMA = "Check 'false' failed\n-- No conversion rule found for operations: aten::lgamma"


def failure(**values: object) -> CapturedFailure:
    return CapturedFailure(
        **{"check": "matches_reference", "shape": Shape.RAISED, "exception": "RuntimeError", **values}
    )


def script(code: int | None = 1, exception: str = "RuntimeError", message: str = "") -> Shown:
    return Shown(code=code, seconds=3.0, printed="", exception=exception, message=message)


def off(by: float, printed: str = "") -> Shown:
    message = f"logits is off by {by:.3e} of its scale, 2e-05 is allowed"
    return Shown(code=1, seconds=3.0, printed=printed, exception="AssertionError", message=message)


NUMBERS = {"shape": Shape.NUMBERS, "error": 1.5, "tolerance": 2e-5}


def test_only_the_same_failure_is_the_same() -> None:
    cases = [
        (failure(**NUMBERS), off(1.5), True),
        (failure(**NUMBERS), off(0.2), True),
        (failure(**NUMBERS), off(0.1), False),  # not of the same order
        (failure(**NUMBERS), off(1e-5), False),
        (failure(**NUMBERS), script(exception="RuntimeError", message="no"), False),
        (failure(**NUMBERS), script(exception="AssertionError", message="something else"), False),
        (failure(**{**NUMBERS, "error": math.inf}), off(math.inf), True),
        (failure(**{**NUMBERS, "error": math.inf}), off(1.5), False),
        (failure(**{**NUMBERS, "error": None, "message": "228 was"}), off(math.inf, "tokens: 228 was"), True),
        (failure(**{**NUMBERS, "error": None, "message": "228 was"}), off(math.inf, "tokens: 269 was"), False),
        (failure(message="size of tensor a (48)"), script(message="size of tensor a (33)"), True),
        (failure(message="size of tensor a"), script(message="index out of range"), False),
        (failure(message="size of tensor a"), script(exception="ValueError", message="size of tensor a"), False),
        (failure(message="size of tensor a"), off(1.5), False),
        (failure(message=""), script(message="index out of range"), False),
        (failure(exception="A", message=LGAMMA), script(exception="B", message=f"in one piece: {LGAMMA}"), True),
        (failure(message=LGAMMA), script(message=LGAMMA.replace("lgamma", "polar")), False),
        (
            failure(exception="WorkerError", message="Fail: [ONNXRuntimeError] : 1 : FAIL : nodes of the CPU EP"),
            script(exception="Fail", message="[ONNXRuntimeError] : 1 : FAIL : nodes of the CPU EP"),
            True,
        ),
        (failure(exception="WorkerError", message="RuntimeError: no"), script(message="no"), True),
        (failure(shape=Shape.TIMEOUT), script(code=None, exception=""), True),
        (failure(shape=Shape.TIMEOUT), script(message="no"), False),
        (failure(), script(code=None, exception=""), False),
        (failure(shape=Shape.CRASHED, signal=11), script(code=-11, exception=""), True),
        (failure(shape=Shape.CRASHED, signal=11), script(code=-6, exception=""), False),
        (failure(), script(code=-11, exception=""), False),
    ]
    for number, (before, after, same) in enumerate(cases):
        found = judge(before, after)
        assert found.same is same, number
        assert found.why
    for shape in Shape:
        found = judge(failure(shape=shape), script(code=0, exception=""))
        assert not found.same
        assert "hwcompat calls" in found.why
