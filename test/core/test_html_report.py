"""The page of a report shows verdicts and failures, packs long lists, and untrusted text never becomes markup."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from evidence_lines import BERT, GPT2, check_line, planned_cell, run_line, write_lines
from recorded_machines import XEON, computer, machine
from report_parts import HOSTILE, because, finding, hostile_finding, report, verdict

from generators.compatibility.verdict import Basis, Level
from generators.project.project_finding import ProjectFinding, ProjectFindingKind, ProjectOutcome
from hardware.command_names import command_of
from hardware.detection import detect
from hardware.errors import OutputError
from hardware.evidence.latest import read_latest
from hardware.evidence.record import EDITED, CheckLine, EndLine, Outcome
from hardware.evidence.runs import History, PastRun
from hardware.evidence.store import read_run
from hardware.plain_text import printable
from reports.cell_report import CellReport
from reports.finding import Remedy, Severity
from reports.formats import report_text
from reports.html import charts, report_view
from reports.html.page import SHOWN, paged
from reports.report import Report
from reports.run_command import _prepare, write_run_reports

CUDA = "bert/fill-mask/cuda/float32"
_SEPARATE = ("th", "td", "small", "span", "dt", "dd", "li")


class Page(HTMLParser):
    """A page's elements with their attributes and all text in them, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None], list[str]]] = []
        self._open: list[list[str]] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        texts: list[str] = []
        self.elements.append((tag, dict(attributes), texts))
        if tag not in ("meta", "br", "wbr", "input"):
            self._open.append(texts)

    def handle_endtag(self, tag):
        self._open.pop()
        for texts in self._open if tag in _SEPARATE else ():
            texts.append(" ")

    def handle_data(self, data):
        for texts in self._open:
            texts.append(data)

    def find(self, tag: str, **wanted: str) -> list[str]:
        """The texts of elements with these attributes; `class_` is one of the element's classes."""
        name = wanted.pop("class_", "")
        return [
            " ".join("".join(texts).split())
            for found, attributes, texts in self.elements
            if found == tag
            and name in ("", *(attributes.get("class") or "").split())
            and all(attributes.get(key) == value for key, value in wanted.items())
        ]


def result_of(folder: Path) -> SimpleNamespace:
    """A job's result of the run `r1` in a folder of evidence, of which no cell has a verdict yet."""
    latest = read_latest(folder, details=True)
    return SimpleNamespace(run_id="r1", cells=(), own=read_run(folder, "r1"), latest=latest, inventory=detect())


def packed_in(page: Page) -> dict[str, Any]:
    """The lists that a page's script reads."""
    return json.loads(page.find("script", id="packed")[0])


def page_of(*lines: CheckLine, **changes: object) -> Page:
    return Page(report_text(report(checks=lines, **changes), "html"))


def test_a_cell_shows_verdict_prediction_and_what_each_check_measured():
    lines = (
        check_line("builds", peak_memory_bytes=400 * 1024 * 1024),
        check_line(
            "matches_reference",
            Outcome.FAILED,
            max_rel_error=0.5,
            tolerance=2e-5,
            error_message="off by far\nsecond line",
            traceback="Traceback: here",
            offloaded_ops={"aten.mm": 3},
            native_ops={"aten.add": 7},
        ),
    )
    stored = verdict(basis=Basis.PREDICTED, rule_ids=("rule.x",), evidence_ids=()).to_dict()
    cell = CellReport(verdict=verdict(Level.UNSUPPORTED, reasons=because("it failed")), lines=lines, stored=stored)
    inventory = {"cpu": {"model": "some CPU", "cores": 2, "threads": 4}, "accelerators": []}
    run = run_line(inventory=inventory, versions={"torch": "2.13.0+cpu"})
    page = page_of(*lines, cells=(cell,), runs=(run,))
    row = next(text for text in page.find("tr") if text.startswith(BERT))
    assert "unsupported measured high worse cpu 1 failed 1 passed 2.5e+04 times 0.5 s it failed" in row
    assert page.find("p", class_="headline") == ["0 of 1 cell work; 1 doesn't."]
    checks = page.find("table", class_="checks")[0]
    for words in (
        "builds passed cpu cpu – 0.25 s 400 MiB",
        "matches_reference failed cpu cpu 5.0e-01 / 2e-05 too large",
        "Outputs match the float64 reference on the CPU, also for other values and shapes.",
        *("off by far", "second line", "Traceback: here", "aten.mm × 3", "aten.add × 7"),
    ):
        assert words in checks
    assert command_of("run", "--model", "bert", "--task", "fill-mask", "--device", "cpu") in page.find("code")
    assert any("random weights" in text for text in page.find("p"))
    text = page.find("main")[0]
    for words in (
        "weights tiny requested cpu ran on cpu",
        "torch 2.13.0+cpu",
        "some CPU, 2 cores, 4 threads",
        "2026-01-01 00:00:00 UTC",
    ):
        assert words in text


def test_a_pass_elsewhere_or_of_an_edited_suite_does_not_look_like_a_pass():
    fallback = {"cell_id": CUDA, "substitution_reason": "no CUDA here"}
    page = page_of(check_line("builds", Outcome.PASSED_ON_FALLBACK, **fallback))
    assert page.find("span", class_="passed") == ["passed"], "only in the legend"
    assert page.find("span", class_="passed_on_fallback")
    assert any(text.startswith(f"{CUDA} ") and "1 passed on fallback" in text for text in page.find("tr"))
    assert any(text.startswith("builds passed on fallback") and "no CUDA here" in text for text in page.find("tr"))
    page = page_of(check_line("builds", conditions={EDITED: "by hand"}))
    assert "passed, edited suite" in page.find("span")
    assert any("edited by hand" in text for text in page.find("td", class_="said"))
    assert packed_in(page)["cells"]["index"]["quiet"] == [0], "it isn't folded with the cells that work"


def test_each_level_is_counted_can_be_chosen_and_cells_with_failures_are_first():
    levels = [CellReport(verdict=verdict(level, f"m{i}/fill-mask/cpu/float32")) for i, level in enumerate(Level)]
    page = page_of(cells=tuple(levels))
    for level in Level:
        assert f"1 {level}" in page.find("span", class_=str(level))
        assert page.find("option").count(str(level)) == 1
    passed = dict.fromkeys(("cpu", "mps", "xpu", "rocm", "tpu"), Outcome.PASSED)
    outcomes = {**passed, "cuda": Outcome.CRASHED}
    cells = [
        CellReport(verdict=verdict(cell=f"bert/fill-mask/{name}/float32"), lines=(check_line("builds", outcome),))
        for name, outcome in outcomes.items()
    ]
    page = page_of(cells=tuple(cells))
    rows = [a["id"] for tag, a, _ in page.elements if tag == "tr" and a.get("class") == "cell"]
    assert rows[0] == CUDA
    assert packed_in(page)["cells"]["index"]["text"] == rows
    assert packed_in(page)["cells"]["index"]["quiet"] == [0, 1, 1, 1, 1, 1]


def test_the_headline_counts_cells_and_their_causes_and_the_causes_share_their_remedies():
    levels = {"a": Level.HIGH, "b": Level.MEDIUM, "c": Level.LOW, "d": Level.UNSUPPORTED, "e": Level.UNKNOWN}
    cells = {name: f"{name}/fill-mask/cpu/float32" for name in levels}
    views = report_view.cell_views(
        report(cells=tuple(CellReport(verdict=verdict(levels[name], cell)) for name, cell in cells.items()))
    )
    both, own = Remedy(do="renew"), Remedy(do="wait")
    found = [
        finding(cells["c"], message="one", remedies=(both, own)),
        finding(cells["d"], message="two", remedies=(both,)),
        finding(cells["a"], message="of a cell that works", error_type="timeout"),
    ]
    assert report_view.headline(views, found) == "2 of 5 cells work; 3 don't (1 only in part, 1 unknown): 1 cause."
    assert report_view.headline(views[3:], found) == "2 of 2 cells work."
    grouped = report_view.causes(found)
    assert [(len(one.findings), one.cells, one.shared) for one in grouped] == [(2, 2, ("renew",)), (1, 1, ())]
    assert [one.message for one, _ in report_view.in_page_order(grouped, 2)] == ["one", "of a cell that works", "two"]
    page = page_of(findings=tuple(found))
    assert [text.count("renew") for text in page.find("section")] == [1, 0]
    assert [text.count("wait") for text in page.find("article")] == [1, 0, 0]


def test_findings_are_shown_worst_first_with_commands_that_can_be_copied():
    remedies = (Remedy(do="Ask: `nvidia-smi`"),)
    findings = [finding(severity=one, remedies=remedies) for one in (Severity.CRITICAL, Severity.INFO)]
    page = page_of(findings=tuple(findings))
    assert [text.split()[0] for text in page.find("section", class_="cause")] == ["critical"]
    assert [text.split()[0] for text in page.find("article", class_="finding")][1:] == ["info"]
    assert page.find("code").count("nvidia-smi") == 2
    assert "1 remark (info)" in page.find("summary")


def hostile_report() -> Report:
    hostile = {"error_message": HOSTILE, "traceback": HOSTILE, "native_ops": {HOSTILE: 1}, "model": HOSTILE}
    elsewhere = {"error_message": HOSTILE, "accelerator": HOSTILE, "substitution_reason": HOSTILE}
    lines = (check_line("builds", Outcome.FAILED, **hostile), check_line(HOSTILE, Outcome.SKIPPED, **elsewhere))
    known = hostile_finding(timestamp=HOSTILE, cells=(HOSTILE,), evidence_ids=(HOSTILE,))
    cell = CellReport(verdict=verdict(reasons=because(HOSTILE), conditions=because(HOSTILE)), lines=lines)
    plan = planned_cell(selection={"steps": [{"target": HOSTILE, "reason": HOSTILE}]})
    text = {HOSTILE: HOSTILE}
    run = run_line(plan, command=HOSTILE, machine=HOSTILE, versions=text, inventory=text)
    return report(known, timestamp=HOSTILE, checks=lines, cells=(cell,), runs=(run,))


def test_untrusted_text_is_shown_and_never_becomes_markup():
    text = report_text(hostile_report(), "html")
    page = Page(text)
    tags = [tag for tag, _, _ in page.elements]
    assert tags.count("script") == 2
    assert next(a for tag, a, _ in page.elements if tag == "script") == {"type": "application/json", "id": "packed"}
    assert "img" not in tags
    assert not {name for _, attributes, _ in page.elements for name in attributes if name.startswith("on")}
    assert any("<img src=x onerror=alert(1)>" in text for text in page.find("pre"))
    assert "{{ 7*7 }}" in text
    assert not {"\u2028", "\x1b", "\u202e"} & set(text)


def test_a_page_fetches_nothing_and_its_policy_names_its_style_and_script():
    text = report_text(hostile_report(), "html")
    page = Page(text)
    assert not {"link", "iframe", "object", "embed", "base"} & {tag for tag, _, _ in page.elements}
    assert not [attributes for _, attributes, _ in page.elements if "src" in attributes or "style" in attributes]
    assert {a["href"][0] for _, a, _ in page.elements if "href" in a} == {"#"}
    policy = next(a["content"] for _, a, _ in page.elements if a.get("http-equiv"))
    for tag in ("style", "script"):
        source = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_every_table_has_headings_with_a_scope_and_every_control_a_label():
    page = Page(report_text(hostile_report(), "html"))
    headings = [attributes for tag, attributes, _ in page.elements if tag == "th"]
    assert headings
    assert all(attributes.get("scope") in ("col", "row") for attributes in headings)
    assert all(a.get("aria-label") for _, a, _ in page.elements if a.get("role") == "region")
    labels = page.find("label")
    assert len(labels) == sum(tag in ("input", "select") for tag, _, _ in page.elements)
    assert all(labels)


def test_an_accepted_failure_stays_a_failure_and_says_why_it_is_accepted():
    failed = check_line("builds", Outcome.FAILED, error_message="boom")
    known = ProjectFinding(
        kind=ProjectFindingKind.ACCEPTED, cell=BERT, message="known: HOSTILE <b>", fix="wait", quote="[[x]]"
    )
    accepted = {failed.evidence_id: "the vendor knows"}
    page = page_of(failed, project=ProjectOutcome(file="hwcompat.toml", findings=(known,), accepted=accepted))
    assert any(text.startswith("builds failed accepted cpu") for text in page.find("tr"))
    assert any("accepted failure: the vendor knows; boom" in text for text in page.find("td", class_="said"))
    text = page.find("main")[0]
    assert "hwcompat.toml: 1 accepted. The build passes." in text
    assert "known: HOSTILE <b>" in text


def test_a_page_needs_neither_results_nor_a_known_inventory():
    text = page_of().find("main")[0]
    assert "Nothing was measured" in text
    assert "No findings." in text
    for inventory in ({"cpu": "x", "memory": [], "accelerators": {"a": 1}}, {"accelerators": ["x"]}, {}):
        assert "not recorded" in page_of(runs=(run_line(inventory=inventory),)).find("main")[0]


def test_a_machine_is_drawn_with_its_memory_nodes_devices_and_links():
    gpus, nodes = detect(machine("nvidia/h100-x8")).to_dict(), detect(computer(XEON)).to_dict()
    run = run_line(inventory={**nodes, "accelerators": gpus["accelerators"]}, machine="full")
    page = page_of(machines=(run,))
    drawn = page.find("figure", class_="topology")[0]
    for words in ("2 sockets", "NUMA 1251.9 GiB", "8 × NVIDIA H100 80GB HBM3", "GPU 779.6 GiB"):
        assert words in drawn
    label = next(a["aria-label"] for tag, a, _ in page.elements if tag == "svg" and "Topology" in str(a))
    link = "PCIe 5.0 × 16, 63 GB/s in each direction; NVLink, 900 GB/s per device"
    assert label.endswith(f"NUMA 1, 251.9 GiB, –; 8 × NVIDIA H100 80GB HBM3, 79.6 GiB each, {link}")
    wrong = {"accelerators": [{"model": HOSTILE, "index": "x", "memory_bytes": [], "extra_info": 3}] * 40}
    for inventory, texts in ((wrong, ["and 24 more"]), ({"accelerators": []}, []), ({"cpu": {"numa_nodes": 7}}, [])):
        found = page_of(runs=(run_line(inventory=inventory),)).find("figure", class_="topology")
        assert [text in one for text, one in zip(texts, found, strict=True)] == [True for _ in texts]


def test_answers_for_single_models_are_on_the_page():
    answer = {
        "model": "bert",
        "verdict": verdict(Level.LOW).to_dict(),
        "predicted": verdict().to_dict(),
        "cause": "matmul on the host",
        "change": "try cuda",
        "suggestions": {"hardware": [verdict(cell=CUDA).to_dict()], "models": [], "reasons": ["none known"]},
        "notes": ["a note"],
        "memory": {
            "estimate": {**dict.fromkeys(charts.MEMORY_PARTS, 0), "weights": 300, "cache": 100, "total": 400},
            "devices": [
                {"device": "cuda", "needed_bytes": 400, "available_bytes": 200, "fits": False, "tight": False},
                {"device": "cpu", "needed_bytes": 400, "available_bytes": 800, "fits": True, "tight": True},
                {"device": "tpu", "needed_bytes": 400, "available_bytes": None, "fits": None, "tight": False},
            ],
            "lines": ["memory: 400 bytes"],
        },
    }
    page = report_text(report(model_checks=(answer,)), "html")
    assert re.findall(r'<rect class="memory-(\w+)" x="([\d.]+)" width="([1-9][\d.]*)"', page)[:2] == [
        ("weights", "0.00", "37.50"),
        ("cache", "37.50", "12.50"),
    ]
    assert re.findall(r'<path class="limit" d="M([\d.]+) 0V12"', page) == ["25.00", "100.00"]
    assert re.findall(r"<td>(no|tightly|unknown|yes)</td></tr>", page) == ["no", "tightly", "unknown"]
    shown = Page(page).find("article")[0]
    for words in (f"{BERT} low measured", "matmul on the host", "try cuda", f"{CUDA} high", "none known", "a note"):
        assert words in shown


def test_a_run_leaves_a_page_beside_its_other_reports(tmp_path):
    run = run_line(planned_cell(checks=("builds", "backward")))
    end = EndLine(run_id="r1", ended_at="2026-01-01T00:00:02", reason="finished", counts={})
    for ended, more in ((True, (check_line("backward"), end)), (False, ())):
        evidence, reports = tmp_path / f"e{ended}", tmp_path / f"r{ended}"
        write_lines(evidence / "r1-1.jsonl", run, check_line("builds"), *more)
        _, written = write_run_reports(result_of(evidence), reports)
        assert {path.name for path in reports.iterdir()} == {"r1.md", "r1.html", "r1.json", "r1.sarif", "r1.xml"}
        page = Page((reports / "r1.html").read_text(encoding="utf-8"))
        row = next(text for text in page.find("tr") if text.startswith("backward"))
        assert row.startswith("backward passed" if ended else "backward not run")
        assert ("no result was recorded" in row) is not ended
        assert f"`{run.command}`" in written.read_text(encoding="utf-8")


def test_reports_that_cannot_be_written_are_refused_before_a_run_and_say_afterwards_what_is_kept(tmp_path):
    with pytest.raises(OutputError, match="--report-dir"):
        _prepare(Path("/proc/self"))  # it exists, and can't be written to
    _prepare(tmp_path / "r")
    assert list((tmp_path / "r").iterdir()) == []
    write_lines(tmp_path / "e/r1-1.jsonl", run_line())
    with pytest.raises(OutputError, match=r"The evidence is stored.*--report-dir.*--resume"):
        write_run_reports(result_of(tmp_path / "e"), Path("/proc/self"))


def test_of_the_targets_that_auto_looked_at_the_last_was_chosen():
    steps = [{"target": "cuda", "reason": "absent"}, {"target": "openvino", "reason": "here"}]
    plan = planned_cell(selection={"steps": steps})
    found = list(report_view._choice(BERT, [run_line(plan)]))
    assert found == [("not selected by auto", "cuda: absent"), ("selected by auto", "openvino: here")]


# Large reports

CELLS = [f"model{number}/fill-mask/cpu/float32" for number in range(SHOWN + 30)]


def unpacked(chunks: dict[str, Any]) -> list[str]:
    """The fragments of a list that a page holds packed."""
    short = [text for chunk in chunks["chunks"] for text in json.loads(gzip.decompress(base64.b64decode(chunk)))]
    return [
        "".join(chunks["words"][ord(sign) - 0xE000] if "\ue000" <= sign <= "\uf8ff" else sign for sign in text)
        for text in short
    ]


def large_report() -> Report:
    facts = {"run_id": "r2", "error_message": HOSTILE, "accelerator": HOSTILE}
    lines = tuple(check_line(**facts, cell_id=cell) for cell in CELLS)
    past = tuple(
        PastRun(
            run_id=f"r{number}",
            started_at=f"2026-01-0{number}T00:00:00+00:00",
            machine=HOSTILE,
            versions={"torch": f"2.{number}", HOSTILE: HOSTILE},
            outcomes={"passed": 5, "failed": number},
        )
        for number in (1, 2)
    )
    return report(
        *(finding(cell, message=f"{HOSTILE} message {number}") for number, cell in enumerate(CELLS)),
        checks=lines,
        cells=tuple(CellReport(verdict=verdict(cell=one.cell_id), lines=(one,)) for one in lines),
        history=History(runs=past, cells={cell: ((0, {"failed": 1}), (1, {"passed": 1})) for cell in CELLS}),
        machines=(run_line(run_id="r2", machine=HOSTILE, inventory={"cpu": {"model": HOSTILE}}),),
    )


@pytest.fixture(scope="module")
def page() -> str:
    return report_text(large_report(), "html")


def packed(page: str) -> dict[str, dict[str, object]]:
    return json.loads(page.partition('id="packed">')[2].partition("</script>")[0])


def test_every_cell_verdict_and_finding_is_in_the_page_or_packed_in_it(page: str):
    data = json.loads(report_text(large_report(), "json"))
    lists = packed(page)
    assert len(unpacked(lists["checks"])) == len(data["verdicts"]) == len(CELLS)
    assert len(unpacked(lists["findings"])) == len(data["errors"]) == lists["findings"]["number"]
    for cell, drawn, row in zip(CELLS, unpacked(lists["checks"]), unpacked(lists["cells"]), strict=True):
        assert f"Checks of {cell}" in drawn
        assert f'id="{cell}"' in row
    assert lists["cells"]["index"]["text"] == CELLS
    ids = lists["findings"]["index"]["id"]
    for id_, card in zip(ids, unpacked(lists["findings"]), strict=True):
        assert f'id="finding-{id_}"' in card
    body = page.partition('id="packed">')[0]
    assert body.count('<article class="finding') == SHOWN
    assert body.count('<tr class="cell" id="model') == SHOWN
    assert "Checks of model" not in body


def test_packed_cells_show_their_earlier_runs_and_untrusted_text_is_no_markup(page: str):
    lists = packed(page)
    texts = [page, *(text for one in lists.values() if "chunks" in one for text in unpacked(one))]
    assert page.count("<script") == 2
    assert [text for text in texts if "<img" in text or {"\x1b", "\u202e"} & set(text)] == []
    assert all("<script" not in text for text in texts[1:])
    assert "&lt;/script&gt;" in texts[-1]
    first = unpacked(lists["checks"])[0]
    past = re.findall(r'<li><span class="tag (\w+)">([^<]*)</span> ([^<]*)</li>', first)
    assert [(sign, words) for sign, words, _ in past] == [("passed", "1 passed"), ("failed", "1 failed")]
    assert past[0][2].startswith("2026-01-02 00:00:00 UTC")
    assert past[0][2].endswith("torch 2.1 → 2.2")


def test_a_short_list_is_whole_and_the_same_report_is_the_same_page():
    assert "chunks" not in paged(["a"] * SHOWN, {}).rest
    items = [f"é{number} of many alike; " * 2 for number in range(SHOWN + 1)]
    long = paged(items, {"text": []}, size=7)
    assert unpacked(long.rest) == items
    assert " of many alike; " in long.rest["words"]  # once for all items
    assert "\ue000" not in printable("\ue000")  # so that no untrusted text can name such a word
    assert report_text(large_report(), "html") == report_text(large_report(), "html")


def test_the_trend_of_a_target_shows_the_share_that_passed_by_version_and_what_changed_in_the_same_cells(tmp_path):
    passed, failed, cells = {"passed": 3}, {"passed": 2, "failed": 1}, (BERT, GPT2, "t5/translation/cpu/float32")
    versions = ("5.23.0", "4.57.6", "5.5.4")
    runs = tuple(
        PastRun(run_id=name, started_at="2026-01-01", machine="", versions={"transformers": name}, outcomes=passed)
        for name in versions
    )
    of_cells = ((passed, failed, passed), (failed, failed, passed), (passed, {"skipped": 1}, {"not_run": 2}))
    history = History(runs=runs, cells=dict(zip(cells, map(tuple, map(enumerate, of_cells)), strict=True)))
    page = Page(report_text(report(history=history), "html"))
    assert [text for text in page.find("tr") if text.startswith("cpu transformers")] == [
        "cpu transformers 4.57.6 0 % 0 of 2 – – –",
        "cpu transformers 5.5.4 100 % 2 of 2 2 2 0",
        "cpu transformers 5.23.0 66.7 % 2 of 3 2 0 1",
    ]
    label = next(a["aria-label"] for tag, a, _ in page.elements if tag == "svg" and "cpu, by" in str(a))
    assert label == "cpu, by version of transformers: 4.57.6 0 %, 0 of 2; 5.5.4 100 %, 2 of 2; 5.23.0 66.7 %, 2 of 3"
    for past in ({BERT: ((0, passed),)}, {BERT: ((0, passed),), GPT2: ((1, passed),)}):
        alone = page_of(history=replace(history, cells=past))
        assert not alone.find("figure", class_="trend"), "no cell has results in two versions"
    plan = planned_cell(checks=("builds", "backward"))
    days = [run_line(plan, run_id=f"d{day}", started_at=f"2026-01-0{day}T00:00:00+00:00") for day in (1, 2, 3)]
    for run, checks in zip(days, (("builds", "backward"), ("builds",), ("builds", "backward")), strict=True):
        lines = [check_line(check, run_id=run.run_id, started_at=run.started_at) for check in checks]
        write_lines(tmp_path / f"{run.run_id}-1.jsonl", run, *lines)
    page = page_of(history=read_latest(tmp_path, details=True).history)
    rows = [text for text in page.find("tr") if text.startswith("cpu 2026")]
    assert rows == ["cpu 2026-01-01 100 % 1 of 1 – – –", "cpu 2026-01-03 100 % 1 of 1 1 0 0"], (
        "a killed run is no pass"
    )
