"""Plans of a refresh: expired cells and no others, as data and as a table."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from expired_folder import BERT, GPT2, OLD, ON_CUDA, VIT, Folder, bare_machine, ids

from generators.compatibility.verdict import Reason
from hardware.evidence.versions import versions_of
from hwcompat.plugins.study.refresh.refresh_plan import suites_of
from hwcompat.plugins.study.refresh_command import refresh_json, refresh_table

SCHEMA = Path(__file__).parents[2] / "reports" / "schemas" / "refresh.json"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "evidence", bare_machine())


def test_what_expired_is_planned_and_what_holds_is_not(folder):
    folder.write("r1", BERT, GPT2, versions=OLD)
    folder.write("r2", BERT, VIT)
    plan = folder.plan()
    assert ids(plan) == [GPT2]
    assert plan.looked_at == 3
    now = versions_of(folder.here)["torch"]
    assert plan.cells[0].reasons == (Reason.of("versions_moved", moved=(f"torch 1.0, now {now}",)),)
    (suite,) = suites_of(plan, folder.asked(), folder.here, None)[0]
    assert (suite.cell.id, str(suite.device), suite.required) == (GPT2, "cpu", False)


def test_a_refresh_that_was_cut_off_leaves_the_rest_expired(folder):
    folder.write("r1", BERT, GPT2, VIT, versions=OLD)
    folder.write("r2", BERT, GPT2, VIT, checks={GPT2: 2, VIT: 0}, ended=False)
    plan = folder.plan()
    assert ids(plan) == [GPT2, VIT]
    assert len(plan.runnable) == 2


def test_the_plan_as_data_and_as_a_table(folder):
    folder.write("r1", BERT, ON_CUDA, versions={"torch": "1.0\x1b[31m\nno"})
    plan = folder.plan(jobs=1)
    data = json.loads(refresh_json(plan, "2026-01-01T00:00:00+00:00"))
    jsonschema.validate(data, json.loads(SCHEMA.read_text()))
    assert [(one["cell"], one["runs_here"], bool(one["why_not"])) for one in data["cells"]] == [
        (BERT, True, False),
        (ON_CUDA, False, True),
    ]
    text = refresh_table(plan, 100)
    assert "2 of 2 measured cell(s) have expired; 1 can't be measured again here." in text
    assert "cuda isn't available here" in text
    assert "\x1b" not in text + json.dumps(data, ensure_ascii=False)
