"""Pseudonyms replace names of models that aren't public in every format, and nothing else."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
from evidence_lines import check_line, planned_cell, run_line
from report_parts import report as a_report
from report_parts import verdict

from generators.compatibility.verdict import Level, Reason
from generators.project.project_finding import ProjectFinding, ProjectFindingKind, ProjectOutcome
from hardware.cell import Cell
from hardware.evidence.record import Outcome
from hardware.evidence.store import Evidence
from reports.baseline import compare, read_baseline
from reports.cell_report import CellReport
from reports.delivery import pseudonyms_for
from reports.diagnose import diagnose
from reports.formats import FORMATS, report_text
from reports.pseudonyms import KEY_VARIABLE, Pseudonyms, names_in_command
from reports.report import Report
from reports.source_places import SuitePlace

HUB, SLUG = "acmecorp/Zebra-LLM.v3", "acmecorp--Zebra-LLM.v3"
CELL = f"{SLUG}/fill-mask/cpu/float32"
FILE = f"test_{Cell.parse(CELL).slug}.py"
DIGEST = hashlib.sha256(SLUG.encode()).hexdigest()[:6]
SAID = (
    f"no memory for {HUB} in /data/acmecorp/hub/models--{SLUG}/snapshots/1/model.safetensors, "
    f"asked by ZebraLLMv3ForMaskedLM of zebra_llm_v3; bert is fine\n" + "x" * 250 + " of Zebra-LL…"
)
TRACE = (
    'ebra-LLM.v3/config.json", line 1\n'
    f'  File "/home/somebody/acmecorp/Zebra-LLM.v3/modeling_zebra_llm_v3.py", line 3, in forward\n    {SAID}\n'
)
LEAK = re.compile(r"zebra|acmecorp|somebody|ebra-LL", re.IGNORECASE)


def evidence() -> Evidence:
    values = {
        "cell_id": CELL,
        "subject": "checkpoint",
        "model_revision": "hash-of-weights",
        "config_hash": "hash-of-config",
        "conditions": {"weights": SAID},
        "substitution_reason": SAID,
        "offloaded_ops": {f"op of {HUB}": 1},
        "error_message": SAID,
        "traceback": TRACE,
    }
    outcomes = {"builds": Outcome.PASSED, "backward": Outcome.FAILED, "test": Outcome.SKIPPED}
    run = run_line(
        planned_cell(CELL, ("builds",), suite=FILE, subject="checkpoint"),
        command=f"python run_test_generation.py --model /data/acmecorp/Zebra-LLM.v3 --model={HUB} --model bert "
        "--evidence somebody/evidence --output-dir=/home/somebody/out --run",
        inventory={"storage": [{"mount_points": ["/data/acmecorp/Zebra-LLM.v3"]}]},
        versions={"torch": "2.13.0"},
    )
    checks = tuple(check_line(name, outcome, **values) for name, outcome in outcomes.items())
    return Evidence(runs=(run,), checks=checks, ends=(), broken=())


def report() -> Report:
    known = evidence()
    found = verdict(
        Level.UNSUPPORTED,
        CELL,
        reasons=(Reason.of("text", text=SAID), Reason.of("check", check="builds", outcome="failed", message=SAID)),
        conditions=(
            Reason("run_condition", (("key", "weights"), ("value", SAID))),
            Reason.of("on_host", operators=(f"op of {HUB}", "aten.add")),
        ),
        evidence_ids=(CELL,),
    )
    words = dict.fromkeys(("message", "fix", "quote"), SAID)
    worse = ProjectFinding(kind=ProjectFindingKind.WORSE, cell=CELL, evidence_ids=(CELL,), **words)
    accepted = {known.checks[1].evidence_id: SAID}
    both = dict.fromkeys(("verdict", "predicted"), found.to_dict())
    return a_report(
        *diagnose(known.checks),
        checks=known.checks,
        cells=(CellReport(verdict=found, lines=known.checks, stored=found.to_dict()),),
        runs=known.runs,
        suites={CELL: SuitePlace(file=f"hwcompat-out/suites/{FILE}", lines={})},
        model_checks=({"model": HUB, **both, "cause": SAID, "change": SAID, "notes": [SAID]},),
        project=ProjectOutcome(file="/home/somebody/hwcompat.toml", findings=(worse,), accepted=accepted),
    )


def test_no_format_has_a_name_a_folder_or_a_hash_of_the_name() -> None:
    hidden = pseudonyms_for(evidence()).value(report())
    for name in set(FORMATS.names()) - {"badge"}:  # which shows numbers alone
        assert LEAK.search(report_text(report(), name)), name
        text = report_text(hidden, name)
        assert not LEAK.search(text), name
        assert DIGEST not in text
        assert "model-" in text


def test_what_is_public_and_what_is_ours_stays() -> None:
    names = pseudonyms_for(evidence())
    (shown,) = {line.cell_id for line in names.value(report()).checks}
    assert re.fullmatch(r"model-[0-9a-f]{4}/fill-mask/cpu/float32", shown)
    hashes = {(line.model_revision, line.config_hash) for line in names.value(report()).checks}
    assert hashes == {(None, None)}
    text = report_text(names.value(report()), "markdown")
    assert "--model bert" in text
    assert "bert is fine" in text
    assert names.text("bert/fill-mask/cpu/float32") == "bert/fill-mask/cpu/float32"
    kept = 'File "/opt/x/lib/python3.11/site-packages/torch/nn/module.py", line 3'
    assert "site-packages/torch/nn/module.py" in names.text(kept)
    assert "/opt/x" not in names.text(kept)


def test_a_model_that_is_called_like_a_word_of_ours_changes_no_field_of_ours() -> None:
    names = Pseudonyms(["timeout", "cpu"])
    cell = names.text("cpu/fill-mask/cpu/float32")
    assert re.fullmatch(r"model-[0-9a-f]{4}/fill-mask/cpu/float32", cell)
    found = names.value({"error_type": "timeout", "message": "timeout after 3 s", "checks": ["timeout"]})
    assert (found["error_type"], found["checks"]) == ("timeout", ["timeout"])
    assert found["message"].startswith("model-")


def test_pseudonyms_are_the_same_in_every_report_differ_by_a_key_and_are_never_shared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Pseudonyms([HUB]).text(SLUG)
    assert Pseudonyms(["other", SLUG, "bert"]).text(f"of {HUB}") == f"of {one}"
    many = [f"model{number}x" for number in range(600)]
    names = Pseudonyms(many)
    assert len({names.text(name) for name in many}) == 600
    assert Pseudonyms(many).text(many[0]) == names.text(many[0])
    monkeypatch.setenv(KEY_VARIABLE, "mine")
    assert Pseudonyms([HUB]).text(SLUG) != one
    monkeypatch.setenv(KEY_VARIABLE, "\udcff")
    hidden = Pseudonyms(["zebra-\ud800", "x" * 300])  # neither key nor name is Unicode
    assert not LEAK.search(hidden.text("of zebra-\ud800"))
    assert hidden.text("y" * 300) == "y" * 300


def test_models_of_a_command_are_found_however_they_are_given() -> None:
    command = "python run_test_generation.py --model a/b --model=c --model - --device cpu 'unclosed"
    assert names_in_command(command) == ("a/b", "c")
    assert names_in_command("python x --check-model 'my model'") == ("my model",)
    assert names_in_command("hwcompat run --model a/b --device cpu") == ("a/b",)


def test_folders_of_a_command_are_hidden_in_the_program_and_in_the_earlier_scripts() -> None:
    for command, shown in (
        ("hwcompat upstream my/checkout --model bert", "hwcompat upstream FOLDER --model bert"),
        ("hwcompat run --evidence my/evidence", "hwcompat run --evidence FOLDER"),
        ("python run_test_generation.py --upstream my/checkout", "python run_test_generation.py --upstream FOLDER"),
    ):
        assert Pseudonyms(()).value({"command": command}) == {"command": shown}


def test_an_anonymous_report_is_known_to_a_baseline_with_names_and_to_one_without(tmp_path: Path) -> None:
    names = pseudonyms_for(evidence())
    hidden = names.value(report())
    for kept in (report(), hidden):
        path = tmp_path / "kept.json"
        path.write_text(report_text(kept, "json"), encoding="utf-8")
        assert compare(hidden, read_baseline(path, names.value)).counts["known"] == len(hidden.findings)
