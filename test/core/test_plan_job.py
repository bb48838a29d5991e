"""From models, devices and patterns to suites: each once, none by accident, and an empty plan is an error."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from recorded_machines import XEON, computer

from generators import plan, run
from generators.model_profile import profile_of
from generators.plan import choose_targets
from generators.run import plan_job, write_suites
from hardware.detection import HardwareInfo, detect
from hardware.errors import NothingMatched, UsageError
from hardware.expected_targets import TargetStatus
from hardware.target import Target
from hardware.testing.resume import Resumable
from hardware.testing.runner import Limits
from hardware.testing.session import Session


@pytest.fixture(scope="module")
def here() -> HardwareInfo:
    return detect(computer(XEON))


def statuses(*present: str) -> list[TargetStatus]:
    names = ("cpu", "cuda", "mps", "openvino", "simulated")
    return [TargetStatus(target=n, expected=n in present, memory_bytes=2**34, reason="absent") for n in names]


def ids(suites) -> list[str]:
    return [suite.cell.id for suite in suites]


def chosen(devices, *present: str) -> list[str]:
    return [str(one.target) for one in choose_targets(devices, profile_of("bert"), "float32", statuses(*present))]


def test_a_named_device_is_required_and_one_that_auto_takes_is_not():
    (named,) = choose_targets(["cuda"], profile_of("bert"), "float32", statuses("cpu"))
    assert (named.target, named.required) == (Target.parse("cuda"), True)
    (taken,) = choose_targets(["auto"], profile_of("bert"), "float32", statuses("cpu", "cuda"))
    assert (str(taken.target), taken.required) == ("cuda", False)
    assert taken.selection is not None


def test_auto_is_the_default_all_is_everything_but_a_simulation_and_a_device_runs_once():
    assert chosen([], "cpu", "cuda") == chosen(["AUTO"], "cpu", "cuda") == ["cuda"]
    assert chosen([], "cpu") == ["cpu"]
    assert chosen(["all"], "cpu", "openvino", "simulated") == ["cpu", "openvino"]
    assert chosen(["cpu", "CPU", "all"], "cpu", "openvino") == ["cpu", "openvino"]
    (cpu,) = choose_targets(["cpu", "auto"], profile_of("bert"), "float32", statuses("cpu"))
    assert cpu.required
    (cuda,) = choose_targets(["auto", "cuda"], profile_of("bert"), "float32", statuses("cuda", "cpu"))
    assert (cuda.target, cuda.required) == (Target(name="cuda"), True)
    with pytest.raises(UsageError, match="two devices of one kind"):
        chosen(["cuda:0", "cuda:1"], "cuda")


def test_a_misspelt_device_stops_before_anything_is_planned(here):
    with pytest.raises(UsageError, match="Did you mean 'cuda'"):
        plan_job([profile_of("bert")], ["cpu", "cdua"], ["float32"], here)


def test_every_model_device_and_precision_is_a_cell(here):
    models = [profile_of("bert"), profile_of("gpt2")]
    suites = plan_job(models, ["cpu", "openvino"], ["float32", "bfloat16"], here)
    assert len(set(ids(suites))) == 8
    assert "gpt2/text-generation/openvino/bfloat16" in ids(suites)
    assert len({suite.file_name for suite in suites}) == 8
    again = plan_job(models, ["cpu", "openvino"], ["float32", "bfloat16"], here)
    assert [suite.text for suite in again] == [suite.text for suite in suites]


def test_each_suite_has_a_prediction_before_anything_runs_and_the_text_of_its_cell(here):
    (suite,) = plan_job([profile_of("bert")], ["cpu"], ["float32"], here)
    assert suite.verdict.cell == suite.cell.id
    assert str(suite.verdict.basis) != "measured"
    assert f'CELL = "{suite.cell.id}"' in suite.text
    assert suite.file_name == "test_bert_fill_mask_cpu_float32.py"


def test_an_index_chooses_the_device_and_leaves_the_cell_alone(here):
    (suite,) = plan_job([profile_of("bert")], ["cuda:1"], ["float32"], here)
    assert suite.cell.id == "bert/fill-mask/cuda/float32"
    assert suite.device.index == 1


def test_patterns_keep_and_leave_out_cells(here):
    devices = ["cpu", "openvino", "simulated"]
    for select, skip, left in (
        (["*/cpu/*"], [], {"cpu"}),
        ([], ["*/cpu/*"], {"openvino", "simulated"}),
        (["*/cpu/*", "*/openvino/*"], ["bert/*/openvino/*"], {"cpu"}),
        (["bert/*"], [], {"cpu", "openvino", "simulated"}),
    ):
        suites = plan_job([profile_of("bert")], devices, ["float32"], here, select=select, skip=skip)
        assert {suite.cell.target.name for suite in suites} == left
    for select, skip in ((["gpt2/*"], []), ([], ["*"]), (["*/cpu/*"], ["bert/*"])):
        with pytest.raises(NothingMatched, match="bert/fill-mask/cpu/float32") as caught:
            plan_job([profile_of("bert")], ["cpu"], ["float32"], here, select=select, skip=skip)
        assert caught.value.exit_code == 5


def test_written_suites_are_the_planned_ones_and_an_edited_one_is_left(here, tmp_path):
    planned = plan_job([profile_of("bert")], ["cpu", "openvino"], ["float32"], here)
    (first, second) = write_suites(planned, tmp_path, force=False)
    assert [str(one.state) for one in (first, second)] == ["new", "new"]
    assert second.path.read_text() == planned[1].text
    first.path.write_text("# mine\n")
    assert [str(one.state) for one in write_suites(planned, tmp_path, force=False)] == ["edited", "current"]
    assert first.path.read_text() == "# mine\n"
    write_suites(planned, tmp_path, force=True)
    assert first.path.read_text() == planned[0].text


def test_memory_that_auto_asks_for_is_that_of_the_precision(monkeypatch):
    asked, select = [], plan.select
    monkeypatch.setattr(plan, "select", lambda *given, **options: asked.append(given[5]) or select(*given, **options))
    profile = profile_of("bert")
    for precision in ("float32", "float16"):
        choose_targets(["auto"], profile, precision, statuses("cpu"))
    assert asked == [4 * profile.recipe.parameters, 2 * profile.recipe.parameters]


def test_another_task_is_another_cell_and_two_models_of_one_cell_are_refused(here):
    recipe = replace(profile_of("bert").recipe, task="fill-mask-again")
    suites = plan_job([profile_of("bert"), replace(profile_of("bert"), recipe=recipe)], ["cpu"], ["float32"], here)
    assert ids(suites) == ["bert/fill-mask/cpu/float32", "bert/fill-mask-again/cpu/float32"]
    with pytest.raises(UsageError, match="have the same cell"):
        plan_job([profile_of("bert"), replace(profile_of("bert"), asked="x/bert-nope")], ["cpu"], ["float32"], here)


def test_a_precision_that_a_named_target_is_not_asked_for_is_refused_with_those_that_go(here):
    with pytest.raises(UsageError, match=r"webgpu in int4: it supports only float32, float16, int8"):
        plan_job([profile_of("bert")], ["webgpu"], ["int4"], here)
    with pytest.raises(UsageError, match="cpu in int8") as caught:
        plan_job([profile_of("bert")], ["cpu"], ["int8"], here)
    assert "Targets that support int8: openvino, qnn, webgpu, webnn." in str(caught.value)


def test_among_several_targets_the_one_without_the_precision_is_left_out_and_told(here):
    notes: list[str] = []
    suites = plan_job([profile_of("bert")], ["cpu", "webgpu"], ["bfloat16"], here, on_note=notes.append)
    assert ids(suites) == ["bert/fill-mask/cpu/bfloat16"]
    assert notes == ["webgpu in bfloat16: it supports only float32, float16, int8"]
    with pytest.raises(UsageError, match=r"cpu in int4.*webgpu in int4.*No target supports int4"):
        plan_job([profile_of("bert")], ["cpu", "webgpu"], ["int4"], here)


def test_auto_passes_over_what_does_not_compute_in_the_precision():
    (choice,) = choose_targets(["auto"], profile_of("bert"), "tf32", statuses("mps", "cuda", "cpu"))
    assert str(choice.target) == "cuda"
    (choice,) = choose_targets(["auto"], profile_of("bert"), "int8", statuses("mps", "cpu"))
    assert choice.selection is not None
    reasons = {step.target: step.reason for step in choice.selection.steps}
    assert "in int8: it supports only" in reasons["mps"]


def test_an_interruption_of_the_run_on_the_cpu_interrupts_the_job(here, tmp_path, monkeypatch):
    sessions = [Session(run_id=one, taken_over=Resumable(), interrupted=one == "r2") for one in ("r1", "r2")]
    monkeypatch.setattr(run, "run_session", lambda *_, **__: sessions.pop(0))
    monkeypatch.setattr(run, "_session_result", lambda session, *_: session.run_id)
    monkeypatch.setattr(run, "reference_suites", lambda _: [SimpleNamespace(planned=None)])
    monkeypatch.setattr(run, "_read", lambda _: None)
    monkeypatch.setattr(run, "_planned", lambda *_: None)
    with pytest.raises(run.JobInterrupted) as raised:
        run.run_job([], here, evidence=tmp_path, command="", machine="", limits=Limits())
    assert raised.value.result == "r1"
    assert not sessions
