"""Scripts of repros: Python that needs nothing of ours, whatever names get into it, and a comparison like our own."""

from __future__ import annotations

import ast
import sys
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
from hwcompat.plugins.triage.repro.repro_script import (
    SCRIPT,
    ModelSource,
    last_exception,
    model_source,
    run_script,
    script_text,
)

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
}
OURS = {"hardware", "generators", "reports", "benchmarks", "hwcompat"}
TORCH = [(Way.TORCH, does) for does in Does]


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


@pytest.mark.parametrize("shape", [Shape.NUMBERS, Shape.RAISED])
@pytest.mark.parametrize(
    ("way", "does"), [*TORCH, *((way, Does.FORWARD) for way in Way if way is not Way.TORCH)], ids=str
)
def test_every_way_is_python_without_a_package_of_ours(way: Way, does: Does, shape: Shape) -> None:
    text = text_of(captured(way, does, shape=shape), masks=way is Way.OPENVINO_CONVERT)
    tree = ast.parse(text)
    assert own_imports(text) == ()
    called = {node.func.attr for node in ast.walk(tree) if isinstance(node, ast.Call) and hasattr(node.func, "attr")}
    assert "unlink" not in called, "a name became code"
    assert "7 * 7" in text, "a name is no template"
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    modules = {"np", "torch", "openvino", "onnxruntime", "onnxruntime_qnn", "json", "sys", "tempfile", "platform"}
    bound = {alias.asname or alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
    assert used & modules <= bound, "what is used is imported"


def test_a_package_of_ours_is_refused() -> None:
    with pytest.raises(UsageError, match="made by hardware"):
        model_source("from hardware.testing import fill\n\n\ndef make_model():\n    return fill()\n")


def test_what_was_refused_gets_no_script() -> None:
    with pytest.raises(UsageError, match="because"):
        text_of(captured(Way.TORCH, refused="because"))


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


def test_whole_numbers_are_the_same_or_not() -> None:
    want, mask = np.array([[1, 2], [3, 4]]), np.array([[1, 1], [1, 0]])
    assert compared(np.array([[1, 2], [3, 9]]), want, mask, infinite=False) == 0.0
    assert compared(np.array([[1, 9], [3, 4]]), want, mask, infinite=False) == np.inf


@pytest.mark.parametrize("path", sorted(SUITES.glob("test_*_cpu_*.py")), ids=lambda path: path.stem)
def test_the_code_of_a_model_is_taken_from_its_suite_as_it_stands(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    found = model_source(text)
    whole = "\n".join(found.imports) + "\n" + found.code
    assert own_imports(whole) == ()
    assert found.code.split("\n\n\n")[-1] in text
    defined = {node.name for node in ast.parse(whole).body if isinstance(node, ast.FunctionDef)}
    assert defined == (set() if found.checkpoint else {"make_model"})


def test_code_of_somebody_is_not_taken() -> None:
    with pytest.raises(UsageError, match="made by my_package"):
        model_source("from my_package import factory\n\n\ndef make_model():\n    return factory()\n")


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


def test_a_script_runs_alone(tmp_path: Path) -> None:
    (tmp_path / SCRIPT).write_text("print('here')\nimport hardware\n", encoding="utf-8")
    shown = run_script(tmp_path, seconds=60)
    assert (shown.code, shown.exception, shown.printed) == (1, "ModuleNotFoundError", "here\n")


def test_a_script_that_hangs_is_ended(tmp_path: Path) -> None:
    (tmp_path / SCRIPT).write_text("import time\ntime.sleep(600)\n", encoding="utf-8")
    assert run_script(tmp_path, seconds=0.5).code is None


def test_the_last_exception_of_a_log_counts() -> None:
    log = (
        "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\nKeyError: 'a'\n\nDuring handling:\n\n"
        'Traceback (most recent call last):\n  File "b.py", line 2, in g\n    g()\n'
        "openvino._pyopenvino.OpConversionFailure: Check 'false' failed\nSummary:\n-- No rule: aten::lgamma\n"
    )
    expected = "Check 'false' failed\nSummary:\n-- No rule: aten::lgamma"
    assert last_exception(log) == ("OpConversionFailure", expected)
    assert last_exception("Segmentation fault") == ("", "")
