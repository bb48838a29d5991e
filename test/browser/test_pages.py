"""The pages in a real browser: their scripts run under the pages' own policy, from a file, without the network."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from made_runs import a_run, lines_of

from generators.compatibility.matrix import build_matrix
from generators.compatibility.rules import load_rules
from generators.compatibility.verdict import Basis, Level, Reason, Verdict
from hardware.evidence.record import RunLine
from reports.cell_report import CellReport
from reports.coverage.coverage_facts import Coverage, CoverageStatus, Excluded, Result, TargetCoverage, TypeFacts
from reports.coverage.coverage_report import CoverageReport
from reports.formats import report_text
from reports.html.coverage_html import coverage_html
from reports.html.matrix_html import matrix_html
from reports.report import Report

pytestmark = pytest.mark.browser

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=document.title='owned'>"
Browse = Callable[..., str]


def matrix_page() -> str:
    verdicts = [
        Verdict(
            cell=f"{model}/fill-mask/{target}/float32",
            level=level,
            basis=Basis.MEASURED,
            reasons=(Reason("text", (("text", f"{HOSTILE} of {model} on {target}"),)),),
            evidence_ids=("e",),
        )
        for model, target, level in (
            ("bert", "cpu", Level.HIGH),
            ("bert", "cuda", Level.HIGH),
            ("bert", "mps", Level.UNSUPPORTED),
            ("vit", "cuda", Level.LOW),
        )
    ]
    families = {"bert": "embedding", "vit": "vision"}
    matrix = build_matrix(
        load_rules(),
        verdicts,
        families,
        timestamp="2026-01-02T00:00:00+00:00",
        architecture_of={"bert": "encoder-only", "vit": "vision"},
        devices={"machine": {"lab/1": [verdicts[0]]}},
    )
    return matrix_html(matrix.to_dict(), versions={})


def shown_models(document: str) -> list[str]:
    body = document.partition('id="models"')[2].partition("</table>")[0]
    rows = re.findall(r"<tr([^>]*)><th[^>]*><b>([^<]*)</b>", body)
    return [name for attributes, name in rows if "hidden" not in attributes]


def test_filters_of_the_matrix(browse: Browse):
    for fragment, models in (
        ("", ["bert", "vit"]),
        ("#?q=fill+ber", ["bert"]),
        ("#?target=cuda&level=low", ["vit"]),
        ("#?target=mps&basis=measured", ["bert"]),
        ("#?family=vision", ["vit"]),
        ("#?architecture=encoder-only&q=fill", ["bert"]),
        ("#?fails=here&target=mps", ["bert"]),
        ("#?fails=differs&target=cpu&against=mps", ["bert"]),
        ("#?fails=differs&target=cpu&against=cuda", []),
        ("#?q=nothing", []),
    ):
        document = browse(matrix_page(), fragment)
        assert shown_models(document) == models, fragment
        assert f"{len(models)} of 2 rows" in document, fragment
    for fragment, columns in (("#?target=cuda", ["cuda"]), ("#?target=mps&against=cuda", ["cuda", "mps"])):
        models = browse(matrix_page(), fragment).partition('id="models"')[2].partition("</table>")[0]
        assert re.findall(r'<th scope="col">([^<]*)<', models) == ["Model, task, precision", *columns]
        differing = re.findall(r'<td class="[^"]*differs[^"]*" data-target="(\w+)"', models)
        assert differing == (columns * 2 if columns[1:] else []), "bert and vit differ"


def test_links_show_their_row_and_narrow_screens_cards(browse: Browse):
    visible = (
        "(box => box.top >= 0 && box.bottom <= innerHeight)(document.querySelector('%s').getBoundingClientRect())"
    )
    assert browse(matrix_page(), "#?q=vit", visible % "#matrix-filters")
    assert browse(matrix_page(), "#vit/fill-mask/cuda/float32", visible % "#models tr:nth-child(2) td:nth-child(3)")
    card = "getComputedStyle(document.querySelector('#models td:nth-child(3)'), '::before').content === '\"cuda\"'"
    assert browse(matrix_page(), "", card, width=400)
    assert browse(matrix_page(), "", f"!({card})")


def dialog_of(document: str) -> str:
    return document.partition("<dialog")[2].partition("</dialog>")[0]


def test_a_cell_opens_by_its_id_with_its_reason_as_text(browse: Browse):
    document = browse(matrix_page(), "#bert/fill-mask/mps/float32")
    dialog = dialog_of(document)
    assert "open" in dialog.partition(">")[0]
    assert "bert/fill-mask/mps/float32" in dialog
    assert "&lt;/script&gt;&lt;script&gt;" in dialog
    assert "of bert on mps" in dialog
    assert "<title>Compatibility matrix</title>" in document
    dialog = dialog_of(browse(matrix_page(), "#bert/fill-mask/openvino/float32"))
    assert '<a href="#rule-prior.embedding.medium">' in dialog, "an assumed cell names its rule and the rule's source"
    assert "docs/DECISIONS.md#declared-priors" in dialog
    broken = browse(matrix_page(), "#?cell=machines%2F%25zz%2Fcuda&family=nothing")
    assert " open" not in dialog_of(broken).partition(">")[0]
    assert "<dialog" in broken


def test_a_link_opens_the_same_view_and_what_is_opened_is_in_the_address(browse: Browse):
    links = "document.title = decodeURIComponent(location.hash + ' ' + document.getElementById('cell-link').hash);"
    document = browse(acting(matrix_page(), links), "#?q=ber&cell=machines%2Flab%252F1%2Fcuda")
    assert shown_models(document) == ["bert"]
    assert '<h2 id="cell-title">lab/1 on cuda</h2>' in document
    assert "<title>#?q=ber&amp;cell=machines/lab%2F1/cuda #?cell=machines/lab%2F1/cuda</title>" in document
    acts = f"""
        {set_field("q", "bert")}
        document.querySelector("#models tbody td:nth-of-type(3) button").click();
        document.title = decodeURIComponent(location.hash);
    """
    document = browse(acting(matrix_page(), acts))
    assert "<title>#?q=bert&amp;cell=bert/fill-mask/rocm/float32</title>" in document


def set_field(name: str, value: str) -> str:
    """A script that fills in a field of the page's filters, as a person does."""
    return f"""
        const form = document.querySelector("form.filters, #matrix-filters");
        form.elements.{name}.value = "{value}";
        form.dispatchEvent(new Event("input"));
    """


def acting(text: str, script: str) -> str:
    """A page in which a person does something: its policy is widened for one script, which runs last."""
    open_policy = re.sub(r"script-src '[^']*'", "script-src 'unsafe-inline'", text)
    return open_policy.replace("</body>", f"<script>{script}</script></body>")


def test_the_keyboard_reaches_every_cell_past_what_is_hidden(browse: Browse):
    document = browse(matrix_page())
    for name in ("families", "architectures", "machines", "models"):
        table = document.partition(f'id="{name}"')[2].partition("</table>")[0]
        assert table.count('tabindex="0"') == 1, "one stop for the tab key"
        assert table.count('tabindex="-1"') == table.count("<button") - 1
    keys = f"""
        {set_field("q", "vit")}
        const press = (key) =>
            document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {{key, bubbles:true}}));
        document.querySelector('#models button[tabindex="0"]').focus();
        ["ArrowRight", "ArrowUp", "ArrowDown"].forEach(press);
        document.activeElement.id = "here";
        document.activeElement.click();
    """
    document = browse(acting(matrix_page(), keys))
    cell = re.search(r"<td[^>]*>(<button[^>]*id=\"here\"[^>]*>)", document)
    assert cell
    assert 'tabindex="0"' in cell[1]
    assert '<h2 id="cell-title">vit/fill-mask/cuda/float32</h2>' in document


def test_reset_shows_everything_again(browse: Browse):
    clicks = "document.querySelector('#matrix-filters button[type=\"reset\"]').click();"
    document = browse(acting(matrix_page(), clicks), "#?q=vit&target=cuda")
    assert shown_models(document) == ["bert", "vit"]
    assert "2 of 2 rows" in document


TARGETS = ("cpu", "cuda", "mps", "xpu", "rocm")


def report_page(runs: tuple[RunLine, ...] = (), targets: Sequence[str] = TARGETS, number: int = 1) -> str:
    cells = [f"bert/fill-mask/{target}/float32" for target in targets]
    made = a_run("r1", 1, *cells, plan={"checks": ("builds", "backward")[:number]})
    plain, failed = lines_of(made, accelerator=HOSTILE), lines_of(made, ["builds"], accelerator=HOSTILE)
    lines = [
        replace(bad, error_message=HOSTILE) if good.requested_target == "cuda" else good
        for good, bad in zip(plain, failed, strict=True)
    ]
    reports = tuple(
        CellReport(
            verdict=Verdict(cell=cell, level=Level.HIGH, basis=Basis.MEASURED, evidence_ids=("e",)),
            lines=tuple(line for line in lines if line.cell_id == cell),
        )
        for cell in cells
    )
    made_report = Report(timestamp="2026-01-02", findings=(), checks=tuple(lines), cells=reports, runs=runs)
    return report_text(made_report, "html")


def cell_rows(document: str) -> list[tuple[str, str, str]]:
    """The target of each cell in the list, its classes and attributes, and whether it is open."""
    found = re.findall(r'<tr class="(cell[^"]*)" id="([^"]*)"([^>]*)><th.*?aria-expanded="(\w+)"', document)
    return [(id_.split("/")[2], f"{classes}{more}", opened) for classes, id_, more, opened in found]


def coverage_page() -> str:
    types = (
        TypeFacts(model_type="bert", family="embedding", architecture="encoder-only", task="fill-mask"),
        TypeFacts(
            model_type="mistral", family="text_generation", architecture="decoder-only", task="text-generation"
        ),
        TypeFacts(model_type="part", family="other", excluded=Excluded(obstacle="no_class", reason=HOSTILE)),
    )
    results = {
        "cpu": (CoverageStatus.PASSED, CoverageStatus.FAILED, CoverageStatus.EXCLUDED),
        "openvino": (CoverageStatus.PASSED, CoverageStatus.PASSED, CoverageStatus.EXCLUDED),
    }
    targets = tuple(
        TargetCoverage(
            target=target,
            results=tuple(
                Result(model_type=one.model_type, task=one.task, standing=standing, reason=HOSTILE)
                for one, standing in zip(types, standings, strict=True)
            ),
        )
        for target, standings in results.items()
    )
    return coverage_html(
        CoverageReport(
            timestamp="2026-01-02T00:00:00+00:00",
            command=HOSTILE,
            machine="a-machine",
            versions={"transformers": "5.5.4"},
            coverage=Coverage(precision="float32", types=types, targets=targets),
        )
    )


def shown_rows(document: str, table: str) -> list[str]:
    """The names in the rows of a table that aren't hidden."""
    body = document.partition(f'id="{table}"')[2].partition("<tbody>")[2].partition("</tbody>")[0]
    rows = re.findall(r'<tr([^>]*)><th scope="row">(?:<a[^>]*>)?([\w-]+)', body)
    return [name for attributes, name in rows if "hidden" not in attributes]


def test_filters_of_the_coverage(browse: Browse):
    for field, value, types in (
        ("q", "", ["bert", "mistral", "part"]),
        ("q", "ENCODER fill", ["bert"]),
        ("standing", "failed", ["mistral"]),
        ("standing", "passed", ["bert", "mistral"]),
        ("architecture", "not classified", ["part"]),
        ("family", "text_generation", ["mistral"]),
        ("trait", "no trait", ["bert", "mistral", "part"]),
        ("task", "fill-mask", ["bert"]),
    ):
        document = browse(acting(coverage_page(), set_field(field, value)))
        assert shown_rows(document, "types") == types, (field, value)
        assert f"{len(types)} of 3 types" in document
        assert "<title>Coverage of transformers 5.5.4</title>" in document


def in_list(document: str) -> list[str]:
    """The targets of the cells that are shown, in order."""
    return [target for target, attributes, _ in cell_rows(document) if "left-out" not in attributes]


def opened(document: str) -> list[str]:
    return [target for target, _, state in cell_rows(document) if state == "true"]


def test_cells_that_work_are_folded_links_open_their_cell_and_filters_choose_cells(browse: Browse):
    document = browse(report_page())
    assert "<title>Hardware compatibility report</title>" in document
    assert in_list(document) == ["cuda"], "a failure is never folded"
    assert opened(document) == []
    assert '<button type="button" class="toggle fold" aria-expanded="false">4 cells work</button>' in document
    assert document.count('<tr class="more" hidden="">') == 5 + 4, "each cell's details, and each pass in them"
    linked = browse(report_page(), "#bert/fill-mask/mps/float32")
    assert sorted(in_list(linked)) == ["cuda", "mps"]
    assert opened(linked) == ["mps"]
    document = browse(acting(report_page(), set_field("outcomes", "failed")))
    assert "1 of 5 cells" in document
    assert in_list(document) == ["cuda"]
    document = browse(acting(report_page(), set_field("outcomes", "passed")))
    assert sorted(in_list(document)) == ["cpu", "mps", "rocm", "xpu"], "a filter finds folded cells too"
    document = browse(acting(report_page(), "document.querySelector('.fold').click()"))
    assert in_list(document)[0] == "cuda"
    assert len(in_list(document)) == 5


def click(selector: str) -> str:
    """A step that clicks an element when it is there."""
    return f"((one) => one && (one.click() ?? true))(document.querySelector({json.dumps(selector)}))"


def details_of(document: str, cell: str) -> str:
    """The row of a cell after its first tag, and the row of its details."""
    return document.partition(f' id="{cell}"')[2].partition(">")[2].partition("</table>")[0]


@pytest.mark.parametrize("by", ["link", "click"])
def test_packed_cells_open_with_what_a_report_of_their_own_shows(browse: Browse, by: str):
    targets = [f"cuda:{number}" for number in range(150)]
    page, place = report_page(targets=targets, number=2), 137
    cell = f"bert/fill-mask/cuda:{place}/float32"
    assert f' id="{cell}"' not in page, "it is packed, in the second chunk"
    alone = browse(report_page(targets=[targets[place]], number=2))
    more = click('[data-more="cells"]:not([hidden]) button')
    wide = "document.querySelectorAll('tr.cell').length === 120"
    steps = [] if by == "link" else [more, wide, more, click(f'[id="{cell}"] .toggle')]
    opened_row = f"document.querySelector('[id=\"{cell}\"] + .more:not([hidden])')"
    document = browse(page, f"#{cell}" if by == "link" else "", *steps, opened_row)
    shown = details_of(document, cell)
    assert f"r1/{cell}/backward" in shown, "its evidence, in the details of its second check"
    assert shown == details_of(alone, cell)


def test_a_run_has_a_time_line_whose_bars_are_its_cells(browse: Browse):
    """Two cells overlap and take two workers; the third starts when the first worker is free."""
    run = a_run(
        "r1", 1, *(f"bert/fill-mask/{target}/float32" for target in TARGETS[:3]), plan={"checks": ("builds",)}
    )
    times = (("00:00", 4.0), ("00:01", 9.0), ("00:05", 5.0))
    lines = [
        replace(line, started_at=f"2026-01-01T00:{when}+00:00", duration_s=took)
        for line, (when, took) in zip(lines_of(run, ["builds"])[:1] + lines_of(run)[1:], times, strict=True)
    ]
    document = browse(
        report_text(Report(timestamp="2026-01-02", findings=(), checks=tuple(lines), runs=(run,)), "html")
    )
    drawing = document.partition('<svg class="workers"')[2].partition("</figure>")[0]
    assert dict(re.findall(r'class="bar (\w+)" d="([^"]*)"', drawing)) == {
        "failed": "M0.00 0.1h40.00v0.8h-40.00z",
        "passed": "M10.00 1.4h90.00v0.5h-90.00zM50.00 0.4h50.00v0.5h-50.00z",
    }
    assert re.findall(r"<span>([^<]*)</span>", drawing) == ["0 s", "2.5 s", "5 s", "7.5 s", "10 s"]
    rows = re.findall(r'<a href="#[^"]*">[^<]*/(\w+)/float32</a></th><td class="number">(\d)</td>', document)
    assert rows == [("cuda", "2"), ("mps", "1"), ("cpu", "1")], "the longest first, each with its worker"


def test_shapes_take_the_colors_of_a_forced_theme(browse: Browse):
    themed = """getComputedStyle(document.querySelector(".rail")).stroke ===
        getComputedStyle(Object.assign(document.body, { style: "color: GrayText" })).color"""
    assert browse(report_page(), "", themed, forced_colors="active")
    assert browse(report_page(), "", f"!({themed})")


def test_a_column_sorts_the_cells_and_broken_ones_stay_first(browse: Browse):
    unfold = "document.querySelector('.fold').click(); const sort = document.querySelector('#cell-table .sort');"
    up = browse(acting(report_page(), f"{unfold} sort.click();"))
    assert in_list(up) == ["cuda", "cpu", "mps", "rocm", "xpu"]
    assert 'aria-sort="ascending"' in up
    down = browse(acting(report_page(), f"{unfold} sort.click(); sort.click();"))
    assert in_list(down) == ["cuda", "xpu", "rocm", "mps", "cpu"]
    assert 'aria-sort="descending"' in down


def test_the_report_of_a_run_fits_a_screen_of_320_pixels(browse: Browse):
    run = a_run(
        "r1", 1, versions={"chromium (webgpu)": "156.0.8078.79-1~deb12u1", "onnxruntime (qnn)": "1.31.1"}, plan={}
    )
    frame = (
        f'<iframe width="320" height="640" style="border: 0" srcdoc="{html.escape(report_page((run,)))}"></iframe>'
    )
    script = """
        onload = () => {
            const page = document.querySelector("iframe").contentDocument;
            page.querySelectorAll("details").forEach((one) => { one.open = true; });
            document.title = page.documentElement.scrollWidth + " of " + page.documentElement.clientWidth;
        };
    """
    document = browse(f"<!doctype html><title>none</title><script>{script}</script>{frame}")
    wide, narrow = map(int, re.findall(r"<title>(\d+) of (\d+)</title>", document)[0])
    assert wide == narrow
    assert 300 <= narrow <= 320
