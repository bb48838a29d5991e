"""The page of the matrix shows what each level rests on, and runs no text of a reason or a name."""

from __future__ import annotations

import json
import re
from dataclasses import replace

from made_runs import a_run, lines_of
from report_parts import because

from generators.compatibility.expiry import Expiry
from generators.compatibility.judge import judge_cell
from generators.compatibility.matrix import build_matrix
from generators.compatibility.rules import load_rules
from generators.compatibility.selection import recommended_lists
from generators.compatibility.verdict import Basis, Level, Verdict
from generators.compatibility.vocabulary import vocabulary
from hardware.cell import Cell
from hardware.evidence.latest import read_latest
from hardware.evidence.record import CheckLine, Outcome
from hardware.evidence.store import Evidence
from reports.html.matrix_html import matrix_html

HOSTILE = "</script><script>document.title='owned'</script> <!-- \"'& \u2028\u2029\x9b\u202e"
CHECKS = ("builds", "matches_reference", "honours_mask", "save_reload", "backward", "runs_natively")


CUDA = "bert/fill-mask/cuda/float32"


def measured(
    cell: str = CUDA, level: Level = Level.HIGH, basis: Basis = Basis.MEASURED, **changes: object
) -> Verdict:
    values = {
        "evidence_ids": tuple(f"r1/{cell}/{check}" for check in CHECKS),
        "reasons": because("all checks passed"),
    }
    return Verdict(cell=cell, level=level, basis=basis, **{**values, **changes})


def page_text(*verdicts: Verdict, **changes: object) -> str:
    families = {verdict.cell.split("/")[0]: "embedding" for verdict in verdicts}
    matrix = build_matrix(load_rules(), verdicts, families, timestamp="2026-01-02T00:00:00+00:00", **changes)
    return matrix_html(matrix.to_dict(), versions={"torch": "2.13.0+cpu"})


def data_of(text: str) -> dict:
    return json.loads(
        re.search(r'<script type="application/json" id="matrix-data">(.*?)</script>', text, re.DOTALL)[1]
    )


def detail(data: dict, table: str, row: str, target: str) -> dict[str, list[str]]:
    """What a cell opens to, by heading, as the page's script would read it."""
    found = next(one for one in data[table] if one["id"] == row)
    sections = data["details"][found["cells"][data["targets"].index(target)]]
    return {label: [data["texts"][number] for number in numbers] for label, numbers in sections}


def test_a_cell_opens_to_reasons_conditions_rules_and_evidence():
    text = page_text(measured(conditions=because("tiny: operators and numerics")))
    data = data_of(text)
    assert detail(data, "models", "bert/fill-mask/float32", "cuda") == {
        "Why": ["all checks passed"],
        "Conditions": ["tiny: operators and numerics"],
        "Evidence": [f"run r1: {', '.join(CHECKS)}"],
    }
    assumed = detail(data, "models", "bert/fill-mask/float32", "openvino")
    assert assumed["Rules"] == ["prior.embedding.medium"]
    assert 'id="rule-prior.embedding.medium"' in text
    assert data["command"].endswith("run --model")  # the script completes it
    assert "docs/DECISIONS.md#declared-priors" in text


def test_a_cell_opens_to_its_measurement() -> None:
    run = a_run("r1", 3, CUDA, versions={"checker/checks": "1"})
    lines = [
        replace(line, max_rel_error=3e-6 if line.check_name == "backward" else 1e-6, accelerator="H100 80GB")
        for line in lines_of(run)
    ]
    found = read_latest(Evidence(runs=(run,), checks=tuple(lines)))
    matrix = build_matrix(load_rules(), [measured()], {"bert": "embedding"}, timestamp="2026-01-02T00:00:00+00:00")
    data = data_of(matrix_html(matrix.to_dict(), versions={}, evidence=found))
    shown = detail(data, "models", "bert/fill-mask/float32", "cuda")
    assert shown["Measured"] == ["2026-01-03 on desk, by hwcompat"]
    assert (shown["Device"], shown["Weights"], shown["Suite"]) == (["H100 80GB"], ["tiny"], ["s.py"])
    assert shown["Largest error / tolerance"] == ["backward: 3.0e-06 / 2e-05: 15 %"]
    assert shown["Versions"] == ["hwcompat 0.1.0+a, numpy 2.4.6, torch 2.13.0, transformers 5.5.4"]
    assert "Measured" not in detail(data, "models", "bert/fill-mask/float32", "openvino")


def test_a_cell_does_not_show_what_ran_elsewhere_as_its_measurement() -> None:
    run, later = (a_run(name, day, CUDA) for name, day in (("r1", 3), ("r2", 4)))
    elsewhere = {"actual_target": "cpu", "substitution_reason": "no GPU here", "accelerator": "a processor"}
    fallback = lines_of(later, outcome=Outcome.PASSED_ON_FALLBACK, **elsewhere)

    def shown(lines: list[CheckLine], verdict: Verdict) -> dict[str, list[str]]:
        found = read_latest(Evidence(runs=(run, later), checks=tuple(lines)))
        matrix = build_matrix(load_rules(), [verdict], {"bert": "embedding"}, timestamp="2026-01-02T00:00:00+00:00")
        text = matrix_html(matrix.to_dict(), versions={}, evidence=found)
        return detail(data_of(text), "models", "bert/fill-mask/float32", "cuda")

    cell = Cell.parse(CUDA)
    judged = judge_cell(cell, later.plan[0].checks, fallback, expiry=Expiry.of_run(cell, later))
    assert judged.level is Level.UNKNOWN
    assert "Measured" not in shown(fallback, judged)
    assert shown([*lines_of(run), *fallback[:2]], measured())["Device"] == ["a device"]
    guessed = measured(basis=Basis.PREDICTED, rule_ids=("plug_in.rule",))
    assert "Measured" not in shown(lines_of(run), guessed)


def test_a_family_shows_its_counts_and_the_size_that_it_has():
    cells = [measured(f"m{i}/fill-mask/cuda/float32", Level.UNSUPPORTED if i == 0 else Level.HIGH) for i in range(5)]
    text = page_text(*cells, family_sizes={"embedding": 120})
    (cell,) = re.findall(r'<td class="counts measured"><button><small>4 of 5 work</small>.*?</button>', text)
    assert "<i> measured</i>" in cell
    assert 'aria-label="4 high, 1 unsupported"' in cell
    assert re.findall(r'<rect class="(\w+)" x="(\d)" width="(\d)"', cell) == [
        ("high", "0", "4"),
        ("unsupported", "4", "1"),
    ]
    assert '<td class="medium assumed"><button>medium<i> assumed</i></button>' in text
    shown = detail(data_of(text), "families", "embedding", "cuda")
    assert shown["Counts"] == ["4 of 5 measured models are high or medium. There are 120 models in all."]
    assert shown["Levels"] == ["4 high, 1 unsupported"]
    assert shown["Evidence"] == ["run r1: 30 checks"]


def test_expired_and_unknown_cells_are_marked():
    expired = measured(basis=Basis.EXPIRED)
    text = page_text(expired, measured("bert/fill-mask/cpu/float32"))
    assert "<b>Expired:</b> the evidence of 1 cell\n" in text
    assert '<td class="high expired"><button>high<i> expired</i></button>' in text
    assert '<td class="unknown "><button>unknown</button>' in text
    assert int(re.search(r"<b>(\d+)</b> unknown", text)[1]) > 0
    assert detail(data_of(text), "models", "bert/fill-mask/float32", "qnn")["Why"] == ["no rule covers bert on qnn"]
    assert "Stale" not in page_text(measured("bert/fill-mask/cpu/float32"))
    nothing = page_text()
    for words in ("2026-01-02 00:00:00 UTC", "torch <b>2.13.0+cpu</b>", "No model has a verdict yet."):
        assert words in nothing


def test_styles_and_links_are_those_that_the_pages_policy_allows():
    text = page_text(measured(), measured("vit/fill-mask/cuda/float32", Level.LOW))
    assert "style-src 'sha256-" in text
    assert not re.findall(r'<[^>]* style="[^"]*"', text)  # browsers would ignore it
    links = re.findall(r'href="([^"]*)"', text)
    assert all(link.startswith(("#", "https://", "http://")) for link in links)
    unknown = measured(basis=Basis.PREDICTED, rule_ids=("plug_in.rule",))
    assert "plug_in.rule</th><td>–</td><td>This version doesn't have the rule." in page_text(unknown)


def test_hostile_reasons_and_names_stay_data():
    devices = {"accelerator": {HOSTILE: [measured()]}, "machine": {"lab": [measured(level=Level.UNSUPPORTED)]}}
    hostile = measured(reasons=because(HOSTILE), conditions=because(f"={HOSTILE}"))
    text = page_text(hostile, devices=devices)
    assert text.count("<script") == 2
    assert not {"\u2028", "\u2029", "\x9b", "\u202e"} & set(text)
    assert "<!-- " not in text
    data = data_of(text)
    shown = detail(data, "models", "bert/fill-mask/float32", "cuda")["Why"][0]
    assert shown == "</script><script>document.title='owned'</script> <!-- \"'& \\x9b\\u202e"
    assert detail(data, "machines", "lab", "cuda")["Evidence"] == [f"run r1: {len(CHECKS)} checks"]
    assert data["accelerators"][0]["id"].startswith("</script>")


def test_many_models_stay_small_and_lose_nothing():
    targets = (*vocabulary().hardware_types, "simulated")
    verdicts = [
        measured(f"model-{i}/fill-mask/{target}/float32", reasons=because(f"{i} on {target}"))
        for i in range(150)
        for target in targets
    ]
    text = page_text(*verdicts)
    assert len(text.encode()) < 900_000
    data = data_of(text)
    assert len(data["models"]) == 150
    assert len(data["targets"]) == 11
    assert detail(data, "models", "model-149/fill-mask/float32", "mps")["Why"] == ["149 on mps"]
    assert text.count('<tr><th scope="row"><b>model-') == 150


def test_the_page_recommends_the_targets_that_the_command_prints() -> None:
    text = page_text(measured())
    rows = re.findall(r'<tr><th scope="row">([\w-]+)</th><td>([^<]*)</td><td class="reason">[^<]+</td></tr>', text)
    printed = {name: " &gt; ".join(targets) for name, (targets, _) in recommended_lists().items()}
    assert dict(rows) == printed
    assert "cuda &gt; rocm &gt; openvino" in printed["speech"]
