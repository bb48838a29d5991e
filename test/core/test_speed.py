"""Speed beside the verdict: what is timed, what tables say of it, and when a change is a regression."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import numpy as np
import pytest
import torch
from made_runs import a_run, lines_of, shown
from report_parts import HOSTILE, report, verdict

from hardware import step_times
from hardware.evidence.latest import read_latest
from hardware.evidence.record import Outcome, from_dict, to_dict
from hardware.evidence.store import read_file
from hardware.evidence.writer import EvidenceWriter
from hardware.testing import speed_measurement as measuring
from hardware.testing.model_test import ModelTest
from hardware.values import data_file
from reports.cell_report import CellReport
from reports.comparison.causes import MEASURED, Hardware, slowdown
from reports.finding import SCHEMA
from reports.formats import report_text
from reports.speed_text import Spread, latency_text, speed_of

EVIDENCE = Path(step_times.__file__).parent / "evidence" / "schemas" / "evidence.json"
ROWS = {"input": np.arange(6.0, dtype=np.float32).reshape(2, 3)}


def case_of(model: torch.nn.Module, inputs: dict[str, np.ndarray] = ROWS) -> ModelTest:
    return ModelTest("bert/fill-mask/cpu/float32", lambda: model, inputs, gain=None, outputs=("output",))


class Counting(torch.nn.Module):
    """Counts its calls by the number of rows, and refuses four."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[int] = []

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self.rows.append(len(input))
        if len(input) == 4:
            raise RuntimeError("no four")
        return input


def test_each_batch_has_thirty_timed_calls_after_a_warm_up_and_a_failure_costs_only_itself() -> None:
    model, alive = Counting(), []
    found = measuring.speed_of(case_of(model), lambda: alive.append(True))
    assert {name: len(taken) for name, taken in found["ms"].items()} == dict.fromkeys(
        ("batch 1", "batch 2", "batch 8"), measuring.CALLS
    )
    warm = model.rows.index(2)
    assert model.rows[:warm] == [1] * 3
    assert model.rows.count(4) == 1
    assert found["left_out"] == {"batch 4": "RuntimeError: no four"}
    assert set(found["steps_ms"]) == {"load"}
    assert found["peak_bytes"]["process"] > 0
    assert len(alive) > len(model.rows), "no deadline holds for more than one call"


def test_calls_that_would_take_too_long_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "_LONGEST_S", 0.0)
    found = measuring.speed_of(case_of(torch.nn.Identity()))
    assert found["ms"] == {}
    assert "30 calls would take" in found["left_out"]["batch 1"]


class Breaking(torch.nn.Module):
    """Breaks at its tenth call."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.left, self.error = 10, error

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self.left -= 1
        if not self.left:
            raise self.error
        return input


def test_measuring_never_changes_what_the_checks_gave(tmp_path: Path) -> None:
    passed, skipped = (line_with({}) for _ in range(2))
    skipped = replace(skipped, check_name="last", outcome=Outcome.SKIPPED)
    writer, started = EvidenceWriter(tmp_path, "r1"), []
    model = torch.nn.Identity()
    model.register_forward_hook(lambda *_: started.append(read_file(writer.path)[0][-1].outcome))
    outcomes = {Outcome.PASSED, Outcome.SKIPPED}
    for case in (model, Breaking(RuntimeError("later")), Breaking(SystemExit(3)), None):
        writer.write(passed)
        writer.write(skipped)
        case = case and case_of(case)
        measuring.record_speed(writer, skipped, case, outcomes, started.append)
        *_, before, last = read_file(writer.path)[0]
        assert (before, replace(last, speed={})) == (passed, skipped)
        assert started[-1] == "last", "its teardown is the check's again"
        assert speed_of([last]) is not None
        if case is None or isinstance(case.make_model(), Breaking):
            assert last.speed["left_out"], "it says why"
    assert started[2] == Outcome.SKIPPED, "written before the first call"
    assert len(read_file(writer.path)[0]) == 8
    assert len(writer.path.read_text(encoding="utf-8").splitlines()) == 12, "lines are only added"
    measuring.record_speed(writer, last, case_of(model), {Outcome.FAILED, Outcome.PASSED}, started.append)
    assert read_file(writer.path)[0][-1] == last
    writer.write(passed)
    assert read_file(writer.path)[0][-2:] == [last, passed]


def test_the_second_line_of_a_measured_check_counts_as_one_result(tmp_path: Path) -> None:
    found = []
    for name, speed in (("plain", {}), ("measured", {"ms": {"batch 1": [1.0]}})):
        for day in (1, 2):
            run = a_run(f"r{day}", day)
            writer = EvidenceWriter(tmp_path / name, run.run_id)
            own = lines_of(run)
            for line in (run, *own, *([replace(own[-1], speed=speed)] if speed else [])):
                writer.write(line)
        latest = read_latest(tmp_path / name, details=True)
        found.append((latest.history, [one.check_name for one in latest.checks], latest.checks[-1].speed))
    (plain, checks, _), (measured, others, speed) = found
    assert measured == plain
    assert others == checks
    assert speed == {"ms": {"batch 1": [1.0]}}


def test_a_batch_repeats_the_first_row_and_leaves_alone_what_has_no_rows() -> None:
    inputs = {"ids": np.array([[1, 2], [3, 4]]), "patches": np.arange(8).reshape(4, 2), "scale": np.array(2.0)}
    found = measuring.batch_of(inputs | {"shared": np.arange(3)}, 2)
    assert found["ids"].tolist() == [[1, 2], [1, 2]]
    assert found["patches"].tolist() == [[0, 1], [2, 3]] * 2
    assert found["scale"] == 2.0
    assert found["shared"].tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="no axis"):
        measuring.batch_of({"scale": np.array(2.0)}, 2)
    found = measuring.batch_of({"edges": np.arange(6).reshape(3, 2), "input_ids": np.array([[1, 2]])}, 2)
    assert (len(found["edges"]), len(found["input_ids"])) == (3, 2), "one row"


def test_tokens_are_timed_if_the_model_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    runnable = SimpleNamespace(
        can={"generate"}, on_host=True, prepare=lambda _: None, generate=lambda _, steps: tokens(steps)
    )

    def tokens(number: int) -> None:
        steps.append(number)

    case = SimpleNamespace(runnable=runnable, inputs=ROWS, generates="causal")
    series = dict(measuring._makers(case))
    assert series["per token"]()() >= 0.0
    assert steps == [1, measuring.STEPS]
    order: list[str] = []
    monkeypatch.setattr(measuring, "_peaks", lambda *_: order.append("peaks") or {})
    case.step_ms, case.eager = {}, lambda: order.append("eager") or case_of(torch.nn.Identity()).runnable
    assert set(measuring.speed_of(case)["ms"]) == {"first token", "per token", "eager"}
    assert order == ["peaks", "eager"], "the copy isn't in the peak; this runtime isn't torch itself"
    case.generates = "none"
    assert "per token" not in dict(measuring._makers(case))


def test_a_step_inside_of_another_is_part_of_it(monkeypatch) -> None:
    step_times.take_steps()
    told: list[str] = []
    monkeypatch.setattr(step_times, "listeners", [told.append])
    with step_times.timed_step("export"), step_times.timed_step("compile"):
        pass
    assert told == ["export", "export", "export", ""]
    assert set(step_times.take_steps()) == {"export"}
    assert step_times.take_steps() == {}


def speed(ms: float, *, spread: float = 0.1, **series: float) -> dict[str, object]:
    values = {"batch 1": ms, "batch 2": 1.5 * ms, **{name.replace("_", " "): one for name, one in series.items()}}
    return {
        "ms": {name: [one * (1 + spread * (n - 15) / 15) for n in range(30)] for name, one in values.items()},
        "steps_ms": {"load": 900.0, "export": 700.0},
        "peak_bytes": {"process": 2**30},
    }


def line_with(found: object, subject: str = "config"):
    return replace(lines_of(a_run("r1", 1, plan={"subject": subject}))[-1], speed=found)


def test_reports_show_speed_and_mark_tiny_weights() -> None:
    lines = {subject: line_with(speed(10.0, eager=20.0, per_token=5.0), subject) for subject in ("config", "tiny")}
    assert from_dict(to_dict(lines["config"])) == lines["config"]
    jsonschema.validate(to_dict(lines["config"]), data_file(EVIDENCE))
    assert latency_text([lines["config"]]) == "9.97 ms, 2x eager"
    assert latency_text([lines["tiny"]]).endswith("(tiny)")
    cells = [CellReport(verdict=verdict(cell=line.cell_id), lines=(line,)) for line in lines.values()]
    data = json.loads(report_text(report(cells=tuple(cells)), "json"))
    jsonschema.validate(data, data_file(SCHEMA))
    assert [one["meaningful"] for one in data["speed"]] == [True, False]
    assert data["speed"][0]["times_eager"] == 2.0
    assert data["speed"][0]["rows_per_s"] == {"1": 100.3, "2": 133.8}
    text = report_text(report(cells=tuple(cells)), "markdown")
    assert "## Speed" in text
    assert "load 0.9 s, export 0.7 s" in text
    assert "4.98 ms" in text
    assert "speed" not in json.loads(report_text(report(), "json"))
    assert "## Speed" not in report_text(report(), "markdown")


def test_speed_of_another_shape_is_left_out_and_text_is_escaped() -> None:
    shapes = ({"ms": 3}, {"ms": {"batch 1": ["x", None, True, -1, float("nan")]}}, {"steps_ms": [1]})
    for found in shapes:
        assert speed_of([line_with(found)]).latency is None
        assert latency_text([line_with(found)]) == ""
    hostile = line_with({**speed(1.0), "left_out": {HOSTILE: HOSTILE}, "peak_bytes": {HOSTILE: 1}})
    text = report_text(report(cells=(CellReport(verdict=verdict(), lines=(hostile,)),)), "markdown")
    assert "<script>" not in text
    assert "\x1b" not in text
    assert Spread.of([1.0, 2.0, 9.0]).median_ms == 2.0


def slower(
    before: dict[str, object],
    now: dict[str, object],
    *again: dict[str, object],
    subject: str = "config",
    torch: str = "2.14.0",
):
    plan = {"subject": subject}
    old = [shown(a_run(f"r{day}", day, plan=plan), speed=before) for day in (1, 2)]
    new = [
        shown(a_run(f"r{day}", day, plan=plan, versions={"torch": torch}), speed=one)
        for day, one in enumerate((*again, now) if again else (now, now), start=3)
    ]
    return slowdown(old[-1], new[-1], [*old, *new], Hardware())


def test_a_change_is_a_regression_only_beyond_the_measured_spread_of_two_runs() -> None:
    plain = speed(10.0, eager=20.0)
    found = slower(plain, speed(15.0, eager=20.0))
    assert found.of == MEASURED
    assert found.is_sure
    assert found.before[0] < found.before[2] < found.now[1] < found.now[0]
    assert "10th and 90th" in str(found)
    slow = speed(15.0, eager=20.0)
    assert slower(plain, slow, plain) is None  # the newer runs don't agree
    old, new = (
        shown(a_run(f"r{day}", day, plan={"subject": "config"}, versions={"torch": f"{day}"}), speed=one)
        for day, one in ((1, plain), (2, slow))
    )
    assert slowdown(old, new, [old, new], Hardware()) is None  # a run of each
    assert slower(plain, speed(10.9, spread=0.01, eager=20.0)) is None  # within the spread
    assert slower(speed(10.0, spread=0.001, eager=20.0), speed(10.5, spread=0.001, eager=20.0)) is None  # too little
    assert slower(speed(10.0, spread=0.9, eager=20.0), speed(15.0, spread=0.9, eager=20.0)) is None
    assert slower(slow, plain) is None  # faster is no finding
    assert slower(plain, slow, subject="tiny") is None
    assert slower(plain, slow, torch="2.13.0") is None  # nothing differs: that is the machine
    assert slower(plain, speed(15.0, eager=30.0)) is None  # plain torch got slower as much
    assert slower(plain, speed(15.0)) is None  # that isn't known
    unsure = slower(speed(10.0), speed(15.0))
    assert not unsure.is_sure
    assert "the machine itself got slower isn't known" in str(unsure)
    assert slower(plain, {}) is None
    few = {"ms": {name: calls[:29] for name, calls in slow["ms"].items()}}
    assert slower(plain, few) is None
