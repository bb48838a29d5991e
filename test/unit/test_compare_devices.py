"""Two devices against each other: where they part, which is nearer to float64, and runs kept for another machine."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwcompat.cli.main_program import main
from hwcompat.hardware.errors import BrokenInput
from hwcompat.plugins.triage.device_comparison.compare_runs import compared_runs
from hwcompat.plugins.triage.device_comparison.device_run import MOST_KEPT, DeviceRun, read_run, write_run

EXACT = {"layer:body/0": np.linspace(-1, 1, 12).reshape(3, 4), "logits": np.linspace(0, 2, 6).reshape(3, 2)}
LOGITS = np.array([[[3.0, 1.0, 0.0], [1.0, 1.0 + 1e-6, 0.0]], [[0.0, 2.0, 0.0], [0.0, 0.0, 2.0]]])


def run_of(target: str, **changes: Any) -> DeviceRun:
    tensors = {**EXACT, **changes.pop("tensors", {})}
    made = DeviceRun(
        target=target,
        device=f"device {target}",
        model="tiny",
        task="text-generation",
        precision="float32",
        weights="w",
        tensors=tensors,
        shapes={name: list(one.shape) for name, one in tensors.items()},
        tokens=LOGITS.argmax(-1),
        logits=LOGITS,
    )
    return replace(made, **changes)


REFERENCE = run_of("float64 on the CPU")


def test_the_same_numbers_agree() -> None:
    found = compared_runs(run_of("cpu"), run_of("openvino"), REFERENCE)
    assert found.agrees
    assert not found.nearer
    assert found.first_beyond is None
    assert [one.name for one in found.tensors] == ["body.0", "logits"]
    assert [one.rows for one in found.steps] == [(), ()]


def test_the_first_layer_beyond_the_tolerance_and_the_nearer_side_are_named() -> None:
    wrong = {"layer:body/0": EXACT["layer:body/0"] + 0.1, "logits": EXACT["logits"] * 1.5}
    found = compared_runs(run_of("cpu"), run_of("openvino", tensors=wrong), REFERENCE)
    assert not found.agrees
    assert found.nearer == "cpu"
    assert found.first_beyond is not None
    assert found.first_beyond.name == "body.0"
    assert found.first_beyond.apart == pytest.approx(0.1 / EXACT["layer:body/0"].std())
    assert found.largest is not None
    assert found.largest.name == "logits"


@pytest.mark.parametrize("wrong", [np.full((3, 2), np.nan), np.zeros((2, 3)), np.full((3, 2), np.inf)])
def test_no_numbers_and_other_shapes_never_agree(wrong: Any) -> None:
    for sides in ((run_of("cpu", tensors={"logits": wrong}), run_of("openvino")),) * 2:
        found = compared_runs(*sides, REFERENCE)
        assert not found.agrees
        assert found.tensors[-1].apart == math.inf
    both = run_of("cpu", tensors={"logits": wrong})
    assert not compared_runs(both, replace(both, target="openvino"), REFERENCE).agrees


def test_an_output_that_one_side_lacks_never_agrees() -> None:
    short = {"layer:body/0": EXACT["layer:body/0"]}
    found = compared_runs(run_of("cpu"), replace(run_of("openvino"), tensors=short), REFERENCE)
    assert not found.agrees


def test_tokens_part_where_float64_decides_and_not_at_a_tie() -> None:
    tie = np.array([[0, 0], [1, 2]])
    found = compared_runs(run_of("cpu"), run_of("openvino", tokens=tie), REFERENCE)
    assert found.agrees
    assert found.steps[1].is_tie
    assert found.steps[1].rows == (0,)
    wrong = np.array([[0, 1], [0, 2]])
    found = compared_runs(run_of("cpu"), run_of("openvino", tokens=wrong), REFERENCE)
    assert not found.agrees
    assert found.parting is not None
    assert (found.parting.step, found.parting.rows) == (0, (1,))


def test_logits_of_later_steps_count() -> None:
    for wrong in (np.nan, 3.5):
        logits = LOGITS.copy()
        logits[0, 1, 2] = wrong
        found = compared_runs(run_of("cpu"), run_of("openvino", logits=logits), REFERENCE)
        assert not found.agrees
        assert found.steps[0].apart == 0


def test_a_side_that_could_not_decode_or_has_no_output_never_agrees() -> None:
    failed = run_of("openvino", tokens=None, logits=None, decode_error="RuntimeError: no")
    found = compared_runs(run_of("cpu"), failed, REFERENCE)
    assert (found.agrees, found.decode_error) == (False, "openvino: RuntimeError: no")
    body = {"layer:body/0": EXACT["layer:body/0"]}
    sides = (replace(run_of(name), tensors=body) for name in ("cpu", "openvino"))
    assert not compared_runs(*sides, REFERENCE).agrees


def test_a_side_that_failed_is_reported_and_never_agrees() -> None:
    found = compared_runs(run_of("cpu"), run_of("openvino", tensors={}, error="it crashed"), REFERENCE)
    assert not found.agrees
    assert found.why == "openvino: it crashed"


def test_a_kept_run_is_bounded_and_comes_back(tmp_path: Path) -> None:
    large = np.arange(3.0 * MOST_KEPT).reshape(1, -1)
    run = run_of("cpu", tensors={"logits": large})
    write_run(run, tmp_path / "run.npz", thinned=True)
    kept = read_run(tmp_path / "run.npz")
    assert kept.is_thinned
    assert kept.tensors["logits"].size <= MOST_KEPT
    assert kept.shapes["logits"] == [1, large.size]
    exact = replace(REFERENCE, tensors=run.tensors, shapes=run.shapes)
    assert compared_runs(kept, replace(run, target="openvino"), exact).agrees
    off = run_of("openvino", tensors={"logits": large + large.std()})
    assert not compared_runs(kept, off, exact).agrees


def test_padded_positions_of_a_kept_run_do_not_count(tmp_path: Path) -> None:
    mask = np.array([[True, True, False]])
    run, other = (
        run_of("cpu", tensors={"logits": np.array([[1.0, 2.0, at_padding]])}, padding=(mask,))
        for at_padding in (5.0, np.nan)
    )
    write_run(run, tmp_path / "run.npz", thinned=True)
    exact = replace(REFERENCE, tensors=run.tensors, shapes=run.shapes, padding=(mask,))
    for first in (run, read_run(tmp_path / "run.npz")):
        assert compared_runs(first, replace(other, target="openvino"), exact).agrees


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x93NUMPY"])
def test_another_file_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "run.npz").write_bytes(content)
    with pytest.raises(BrokenInput, match="isn't a kept run"):
        read_run(tmp_path / "run.npz")


def test_a_faulty_device_is_found_and_its_run_can_be_compared_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HWCOMPAT_SIMULATED_FAULT", "wrong:aten.native_layer_norm")
    asked = ["--model", "bert", "--format", "json"]
    assert main(["compare-devices", "cpu", "simulated", *asked, "--keep", str(tmp_path / "kept")]) == 1
    found = json.loads(capsys.readouterr().out)
    first = next(one for one in found["tensors"] if one["apart"] > found["tolerance"])
    assert (first["name"], found["nearer"], found["agrees"]) == ("bert.embeddings", "cpu", False)

    monkeypatch.delenv("HWCOMPAT_SIMULATED_FAULT")
    kept = str(tmp_path / "kept" / "bert-float32-simulated.npz")
    assert main(["compare-devices", kept, "simulated", *asked]) == 1
    assert json.loads(capsys.readouterr().out)["nearer"] == "simulated"
    assert main(["compare-devices", kept, "cpu", "--model", "albert", "--format", "json"]) == 4
    assert "not of albert" in capsys.readouterr().err
