"""The numbers that benchmarks publish: what was measured is counted as it was, and what wasn't is never a number.

The rules by which labeled failures and public reports are split into halves.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from coverage_evidence import BERT, GPT2, VIT, write_run

from benchmarks import covered, diagnosis, failures, optimizers, profiles, published_matrix
from benchmarks.calibration import KEPT
from benchmarks.evidence_rows import rows_of
from benchmarks.failures import FOLDER, HELD_OUT, SEEN, read
from benchmarks.pictures import pictures, with_picture
from benchmarks.side_by_side.page import missing_scripts, page, read_scripts
from benchmarks.side_by_side.processes import in_turns, wall_time
from benchmarks.side_by_side.result import Comparison, Result, keep_results, read_results
from benchmarks.side_by_side.rivals import rival, tried
from benchmarks.side_by_side.speed import compared
from generators.compatibility.verdict import Basis
from hardware.basic_detection import inventory_here
from hardware.evidence.store import read_folder
from hardware.target import Target
from reports.finding import Severity

ROOT = Path(__file__).parents[2]


def test_a_row_says_what_became_of_a_cell_in_the_last_run_of_each_check(tmp_path: Path) -> None:
    write_run(tmp_path, BERT, "matches_reference", run_id="r0")
    write_run(tmp_path, BERT, of_all={"max_rel_error": 5e-6}, run_id="r1")
    write_run(tmp_path, GPT2, "backward", run_id="r2", max_rel_error=4e-3, tolerance=1e-3)
    write_run(tmp_path, VIT, "runs_natively", run_id="r3", offloaded_ops={"aten.conv": 2})
    lines = read_folder(tmp_path).checks
    bert, gpt2, vit = rows_of(lines, Target(name="cpu"))
    assert (bert.works, gpt2.works, vit.works) == (True, False, False)
    assert (bert.failed, bert.native, bert.offloaded, bert.dtypes) == (None, 1, 0, ("float32",))
    assert (bert.error, bert.nearest, bert.allowed) == (5e-6, 5e-6, 2e-5)
    assert (gpt2.passed, gpt2.nearest, gpt2.allowed) == (gpt2.checks - 1, 4e-3, 1e-3)
    assert gpt2.failed is not None
    assert gpt2.failed.check_name == "backward"
    assert vit.offloaded == 2
    assert list(rows_of(lines, Target(name="openvino"))) == []
    cut_off = [line for line in lines if line.check_name != "runs_natively"]
    assert list(rows_of(cut_off, Target(name="cpu"))) == []


def test_the_page_of_optimizers_names_what_breaks_its_rules() -> None:
    plain = optimizers.Level(
        applied=(), warnings=(), allowed=0.0, prepared=1.0, milliseconds=2.0, ratio=1.0, error=0.0, error_float64=1e-6
    )
    compiled = {"applied": ("torch_compile",), "allowed": 1e-4}
    alone = {"O0": plain, "O1": replace(plain, ratio=1.2), "O2": replace(plain, ratio=1.2), "O3": plain}
    slower = alone | {"O2": replace(plain, ratio=1.06, **compiled)}
    beyond = alone | {"O3": replace(plain, ratio=0.5, applied=("int8_kernels",), allowed=0.25, error=0.3)}
    faster = alone | {"O2": replace(plain, ratio=0.5, error=1e-6, **compiled)}
    names = ("command", "date", "machine", "threads", "torch", "transformers", "python", "target", "length")
    head = dict.fromkeys(names, "x") | {"rounds": "9", "calls": "2", "faster": "12", "tries": "15"}
    text = optimizers.page({n: (n, v) for n, v in (("a", alone), ("b", faster))}, head)
    assert "O2 takes 0.50 to 0.50 of the time of O0 for 1 of 2 models" in text
    assert "with a step applied: none" in text
    assert "Beyond its tolerance: none" in text
    text = optimizers.page({"a": ("a", slower), "b": ("b", beyond)}, head)
    assert "with a step applied: a." in text
    assert "Beyond its tolerance: b at O3." in text


def test_a_file_that_tests_reach_too_little_has_a_reason_or_is_named() -> None:
    files = [
        covered.File(path=path, statements=10, covered=lines, branches=0, branches_covered=0, missing=(1,))
        for path, lines in (("hardware/cuda.py", 2), ("hardware/a.py", 7), ("hardware/b.py", 8))
    ]
    reason = covered.Reason(files=("hardware/cuda*",), why="no GPU is here")
    explained, bare = covered.by_reason(files, [reason])
    assert [one.path for one in explained[reason.why]] == ["hardware/cuda.py"]
    assert [one.path for one in bare] == ["hardware/a.py"]
    assert covered.unused([reason], files[1:]) == ["hardware/cuda*"]
    found = {"num_statements": 10, "covered_lines": 5, "num_branches": 4, "covered_branches": 4}
    report = {"files": {"hardware/a.py": {"summary": found, "missing_lines": [1, 2, 3, 7]}}}
    rows = [vars(one) for one in covered.files_of(report)]
    text = covered.page({"date": "2026-01-01", "coverage": "7", "tests": "3 passed", "files": rows}, [reason])
    assert "| all | 1 | 10 | 50.0 % | 4 | 100.0 % |" in text
    assert "| `hardware/a.py` | 5 | 1-3, 7 |" in text


def test_a_profile_counts_a_sample_once_and_the_page_shows_what_was_kept() -> None:
    raw = (
        'process 1:"a b";<module> (run.py:3);open.<locals>.run (hardware/door.py:37);warm (hardware/warm.py:1) 6\n'
        'process 1:"a b";<module> (run.py:3);warm (hardware/warm.py:1);warm (hardware/warm.py:9) 2\n'
        "<module> (run.py:4) 2\n"
    )
    found = profiles.from_py_spy(raw)
    shares = [
        found.share(*of) for of in (("warm", "hardware/warm.py"), ("run", "hardware/door.py"), ("warm", "b.py"))
    ]
    assert shares == pytest.approx([0.8, 0.6, 0])
    kept = json.loads(profiles.KEPT.read_text(encoding="utf-8"))
    profiled, others = profiles.actions()
    assert {one.name for one in profiled} | {one.command for one in others} == set(kept["actions"])
    text, _ = with_picture("profiles", pictures()["profiles"], profiles.page(kept, profiled, others))
    assert (profiles.KEPT.parents[1] / "measured" / "profiles.md").read_text(encoding="utf-8") == text


def test_the_published_matrix_has_each_cell_that_ran_once_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published_matrix, "kept_places", lambda: [KEPT / "qnn.jsonl.gz"])
    evidence, _, matrix = published_matrix.published(inventory_here())
    cells = {line.cell_id for line in evidence.checks}
    _, _, *lines = published_matrix.counted(matrix).splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert {row[0] for row in rows} == {"qnn:emulator"}
    assert {row[1] for row in rows} <= {"measured", "expired"}
    assert sum(int(cell) for row in rows for cell in row[2:]) == len(cells) > 400
    models = matrix.to_dict()["models"].values()
    verdicts = [verdict for model in models for verdict in model["compatibility"].values()]
    assert {one["cell"] for one in verdicts if one["basis"] in (Basis.MEASURED, Basis.EXPIRED)} == cells


COMPARED = Comparison(
    what="w", ours="o", rival="r", unit="s", ours_values=(1.0, 2.0, 9.0), rival_values=(4.0, 4.0, 5.0)
)
ABSENT = Comparison(what="w", ours="o", rival="gone", unit="s", ours_values=(1.0,), missing="gone isn't here")


def test_a_comparison_is_a_ratio_of_medians_or_the_reason_why_there_is_none(tmp_path: Path) -> None:
    assert (COMPARED.ratio, ABSENT.ratio) == (0.5, None)
    shared = {"bench": "a", "title": "a", "date": "2026-01-01", "machine": "m", "versions": {}, "curves": ()}
    new = Result(**shared, comparisons=(COMPARED, ABSENT))
    keep_results(tmp_path / "deep" / "kept.jsonl", [Result(**shared, comparisons=())])
    keep_results(tmp_path / "deep" / "kept.jsonl", [new])
    (found,) = read_results(tmp_path / "deep" / "kept.jsonl").values()
    assert found.to_json() == new.to_json()
    text = page({"a": found}, read_scripts())
    assert "**0.50**" in text
    (row,) = [line for line in text.splitlines() if "| gone " in line]
    assert "not measured" in row
    assert "gone isn't here" in row


def test_a_failure_is_no_fast_run_and_a_rival_that_fails_is_not_measured() -> None:
    with pytest.raises(RuntimeError, match="ended with 3"):
        wall_time((sys.executable, "-c", "raise SystemExit(3)"))
    assert "make setup-rivals" in rival("nobody", "nothing").missing
    assert tried((sys.executable, "-c", "import sys; sys.exit('no way')")).missing == "it fails here: no way"
    given = iter(range(100))
    turns = in_turns({"a": lambda: float(next(given)), "b": lambda: float(next(given))}, 2)
    assert turns == {"a": (2.0, 4.0), "b": (3.0, 5.0)}, "the first round is left out"


def test_every_benchmark_is_on_the_page_and_can_be_imported() -> None:
    scripts = read_scripts()
    assert missing_scripts(scripts) == []
    assert [one.page for one in scripts if one.page and not (ROOT / "docs" / one.page).is_file()] == []
    assert all(one.page or one.in_bench for one in scripts)
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in (ROOT / "benchmarks").rglob("*.py")]
    run = [name for name in names if not name.endswith("__") and not re.search(r"planting|boxed", name)]
    code = f"import importlib\nfor name in {run}:\n    importlib.import_module(name)\n"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-1000:]


# The failures with labels. Lists of ids are compared: no message of a test may quote the half that is held out.

PRIVATE = re.compile(
    r"(?<![\w./<])/(?:home|root|tmp|work|Users|mnt|data|workspace|content|var/folders|opt/conda|usr/(?:local/)?lib/python)/"
    r"|~/\.|\b[A-Z]:\\\\?\w|\\Users\\|\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
)


def _is_private(value: object) -> bool:
    if isinstance(value, dict):
        value = [*value, *value.values()]
    return any(map(_is_private, value)) if isinstance(value, list) else bool(PRIVATE.search(str(value)))


def test_the_failures_are_enough_whole_and_split_by_their_cause() -> None:
    halves = {half: failures.read(half) for half in (failures.SEEN, failures.HELD_OUT)}
    known = [one for found in halves.values() for one in found]
    assert len({one.id for one in known}) == len(known) >= 150
    assert min(map(len, halves.values())) >= 0.4 * len(known)
    counted = Counter(one.label.error_type for one in known)
    assert [name for name in failures.ASKED_FOR if counted[name] < 2] == []
    targets = {"cpu", "cuda", "rocm", "mps", "xpu", "tpu", "openvino", "qnn", "webgpu", "webnn", "simulated"}
    assert targets - {one.target.partition(":")[0] for one in known} == set()
    for half, found in halves.items():
        lines = (failures.FOLDER / f"{half}.jsonl").read_text(encoding="utf-8").splitlines()
        assert [one["id"] for one in map(json.loads, lines) if _is_private({**one, "url": ""})] == []
        for one in found:
            holds = (
                failures.half_of(one.label.group) == half,
                one.label.error_type in failures.ASKED_FOR + failures.OTHERS,
                one.label.severity in {str(severity) for severity in Severity},
                one.source in ("run", "seeded", "thread"),
                one.url.startswith("https://") == (one.source == "thread"),
                (one.line is None) == bool(one.text),
                one.printed.strip() and one.why,
            )
            assert all(holds), one.id


def test_answers_are_scored_by_operators_and_by_pairs() -> None:
    one = failures.read(failures.SEEN)[0]
    for label, named, right in (
        ("aten::lgamma", "aten.lgamma", True),
        ("Reshape, Transpose", "Reshape (4), Transpose (2)", True),
        ("Reshape, Transpose", "Transpose", True),
        ("Reshape", "Reshape, Transpose", False),
        ("Reshape", "", False),
    ):
        labelled = replace(one, label=replace(one.label, operator=label))
        answer = diagnosis.Answer(error_type="", severity="", operator=named)
        assert diagnosis.right_operator(labelled, answer) is right, (label, named)
    groups = zip("abcd", ("one", "one", "other", "other"), strict=True)
    four = [replace(one, id=name, label=replace(one.label, group=group)) for name, group in groups]
    said = {
        name: diagnosis.Answer(error_type="", severity="", operator="", finding=finding)
        for name, finding in zip("abcd", "1112", strict=True)
    }
    found = diagnosis.merging(four, said)
    assert (found.together, found.pure, found.related, found.apart) == (3, 1, 2, 1)


def test_an_operator_is_compared_only_if_there_is_something_to_compare() -> None:
    import torch

    from benchmarks.gpu_session import operators

    def raises(*_: object) -> Any:
        raise NotImplementedError("no kernel")

    for compute, outcome in (
        (lambda x: x + 1, "computed"),
        (lambda x: x + 1 if x.dtype == torch.float64 else raises(), "raised"),
        (lambda x: x + 1 if x.dtype == torch.float64 else x[:1], "not compared"),
        (raises, "nothing to compare with"),
    ):

        class Operator:
            name, variant_test_name = "added", ""
            supported_dtypes = staticmethod(lambda _: {torch.float32})
            sample_inputs = staticmethod(lambda *_, **__: [SimpleNamespace(input=torch.ones(3), args=(), kwargs={})])
            __call__ = staticmethod(compute)

        assert operators._row(Operator(), "cpu", torch.float32)["outcome"] == outcome
        assert operators._row(Operator(), "cpu", torch.int64)["outcome"] == "unsupported"
    infinite = torch.tensor([1.0, float("inf")])
    errors = [operators._error(torch.tensor([1.0, x]), infinite) for x in (float("inf"), float("nan"), -1.0, 1.0)]
    assert errors == [0, *[float("inf")] * 3]


def test_a_rehearsal_on_one_type_keeps_every_kind_of_stage(tmp_path: Path) -> None:
    from benchmarks.gpu_session.stages import stages

    options = {"forks": True, "shares": 1, "memory_gb": 1.0}
    whole, small = (list(stages("cpu", tmp_path, models=models, **options)) for models in ((), ("bert",)))

    def kinds(some: list[Any]) -> set[str]:
        return {one.name.partition("-")[0] for one in some}

    assert kinds(whole) - kinds(small) == {"others"}
    words = {one.name: " ".join(one.words) for one in small}
    assert "--model bert --precision float32" in words["parity-float32-1"]
    assert words["memory"].endswith("--only bert")
    assert "real-llama" not in words
    assert all("--priority" not in one for one in words.values())


REPORTS = FOLDER.parent / "reports"
BEFORE_THE_SPLIT = 12
"""Repositories that were looked at before the reports were split."""


def reports(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (REPORTS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def number_of(text: str) -> int:
    return int(hashlib.sha256(text.encode()).hexdigest(), 16)


@pytest.mark.parametrize(("half", "remainder"), [(SEEN, 0), (HELD_OUT, 1)])
def test_failures_of_one_cause_are_in_one_half(half: str, remainder: int) -> None:
    assert {number_of(one.label.group) % 2 for one in read(half)} == {remainder}


def test_no_repository_is_on_both_sides_of_the_reports() -> None:
    halves = {name: {one["repository"].lower() for one in reports(name)} for name in ("train", "tune", "test")}
    shares = {name: {one: number_of(one) % 100 for one in found} for name, found in halves.items()}
    assert all(share < 35 for share in shares["test"].values())
    assert all(35 <= share < 47 for share in shares["tune"].values())
    assert sum(share < 35 for share in shares["train"].values()) <= BEFORE_THE_SPLIT
    assert not halves["test"] & (halves["train"] | halves["tune"])
    assert len(reports("test")) >= 250
    assert all("second" in one for one in reports("test"))
    every = [one["url"] for name in halves for one in reports(name)]
    assert len(every) == len(set(every))


def test_two_tools_agree_if_each_median_is_within_the_others_spread() -> None:
    wide, narrow = [[8.0, 10.0, 12.0]], [[10.4, 10.5, 10.6], [10.5, 10.4, 10.6]]
    assert not compared("bert", wide, narrow)[0]
    same, text = compared("bert", wide, [[9.0, 10.5, 12.5]])
    assert same
    assert text == "bert: 10 ms (8.4 to 11.6) and 10.5 ms (9.3 to 12.1); they agree."
