"""The pages that benchmarks make: what evidence and measurements say is what they say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from coverage_evidence import BERT, GPT2, VIT, write_run

from benchmarks import evidence_growth, evidence_made_up, optimizers
from benchmarks.evidence_rows import rows_of
from benchmarks.optimizers import Level
from benchmarks.reference_models import LEAST_WIDTH, REFERENCE_MODELS, larger
from hardware.evidence.latest import read_latest
from hardware.evidence.store import read_folder
from hardware.target import Target


def test_a_row_says_what_became_of_a_cell(tmp_path: Path) -> None:
    write_run(tmp_path, BERT, of_all={"max_rel_error": 5e-6})
    write_run(tmp_path, GPT2, "backward", run_id="r2", max_rel_error=4e-3, tolerance=1e-3)
    write_run(tmp_path, VIT, "runs_natively", run_id="r3", offloaded_ops={"aten.conv": 2})
    lines = read_folder(tmp_path).checks
    bert, gpt2, vit = rows_of(lines, Target(name="cpu"))
    assert bert.works
    assert bert.failed is None
    assert (bert.native, bert.offloaded, bert.dtypes) == (1, 0, ("float32",))
    assert (bert.error, bert.nearest, bert.allowed) == (5e-6, 5e-6, 2e-5)
    assert not gpt2.works
    assert gpt2.passed == gpt2.checks - 1
    assert gpt2.failed is not None
    assert (gpt2.failed.check_name, gpt2.nearest, gpt2.allowed) == ("backward", 4e-3, 1e-3)
    assert not vit.works
    assert vit.offloaded == 2
    assert list(rows_of(lines, Target(name="openvino"))) == []
    cut_off = [line for line in lines if line.check_name != "runs_natively"]
    assert list(rows_of(cut_off, Target(name="cpu"))) == []


def test_the_last_run_of_a_check_counts(tmp_path: Path) -> None:
    write_run(tmp_path, BERT, "matches_reference", run_id="r1")
    write_run(tmp_path, BERT, run_id="r2")
    (row,) = rows_of(read_folder(tmp_path).checks, Target(name="cpu"))
    assert row.works


def _level(**changes: object) -> Level:
    plain = Level(
        applied=(),
        warnings=(),
        allowed=0.0,
        prepared=1.0,
        milliseconds=2.0,
        ratio=1.0,
        error=0.0,
        error_float64=1e-6,
    )
    return replace(plain, **changes)


def test_the_page_of_optimisers_names_what_breaks_its_rules() -> None:
    alone = {"O0": _level(), "O1": _level(ratio=1.2), "O2": _level(ratio=1.2), "O3": _level()}
    slower = alone | {"O2": _level(ratio=1.06, applied=("torch_compile",), allowed=1e-4)}
    beyond = alone | {"O3": _level(ratio=0.5, applied=("int8_kernels",), allowed=0.25, error=0.3)}
    faster = alone | {"O2": _level(ratio=0.5, applied=("torch_compile",), allowed=1e-4, error=1e-6)}
    head = dict.fromkeys(
        ("command", "date", "machine", "threads", "torch", "transformers", "python", "target", "length"), "x"
    )
    head |= {"rounds": "9", "calls": "2", "faster": "12", "tries": "15"}
    text = optimizers.page({n: (n, v) for n, v in (("a", alone), ("b", faster))}, head)
    assert "left 1 of 2 models alone; on the others it takes 0.50 to 0.50" in text
    assert "without having left it alone: none" in text
    assert "Beyond its tolerance: none" in text
    text = optimizers.page({"a": ("a", slower), "b": ("b", beyond)}, head)
    assert "without having left it alone: a." in text
    assert "Beyond its tolerance: b at O3." in text
    warned = {"a": ("a", alone | {"O1": _level(warnings=("channels_last: taken back, a | b\nc",))})}
    assert "| a | O1 | channels_last | taken back, a / b c |" in optimizers.page(warned, head)


@pytest.mark.parametrize("model_type", ["bert", "resnet"])
def test_a_larger_reference_model_is_large_and_runs(model_type: str) -> None:
    import torch

    from hardware.model.calls import to_tensors

    assert model_type in REFERENCE_MODELS
    model, arrays, said = larger(model_type)
    assert sum(one.numel() for one in model.parameters()) > 5e6
    assert str(LEAST_WIDTH if model_type == "resnet" else 384) in said
    with torch.no_grad():
        logits = model(**to_tensors(arrays, "cpu", torch.float32)).logits
    assert torch.isfinite(logits).all()
    assert float(logits.std()) > 1e-3, "loud enough to be compared"


def test_the_page_of_growth_has_a_column_for_each_size_and_a_dash_for_what_was_not_measured() -> None:
    one = {"wall_s": 2.0, "cpu_s": 1.25, "memory_mib": 900, "told": 1}
    sizes = {
        "10000000": {"bytes": {"raw": 12e9, "compacted": 5e8}, "report, first": one},
        "1000000": {"report, first": {**one, "cpu_s": 0.5}, "report, raw": one},
    }
    text = evidence_growth.page({"with": {"date": "2026-11-24", "cores": "2", "note": "Busy."}, "sizes": sizes})
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert rows[0] == "| | 1 million lines | 10 million lines |"
    assert "| bytes, raw | – | 12,000 MB |" in rows
    assert "| report | 0.5 s (2.0), 900 MiB | 1.2 s (2.0), 900 MiB |" in rows
    assert "| report of JSON lines | 1.2 s (2.0), 900 MiB | – |" in rows
    assert not [row for row in rows if "publish" in row]


def test_made_up_evidence_is_evidence(tmp_path: Path) -> None:
    assert evidence_made_up.write_rows(tmp_path / "all", 12_000) >= 12_000
    found = evidence_made_up.beginning(tmp_path / "all", tmp_path / "half", 6_000, 12_000)
    evidence = read_folder(found)
    assert (len(evidence.runs), evidence.broken, read_latest(evidence, details=True).unfinished) == (1, (), ())
    assert len({line.duration_s for line in evidence.checks}) > 1_000
