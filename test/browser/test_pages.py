"""The pages in a real browser: their scripts run under the pages' own policy, from a file, without the network."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from generators.compatibility.matrix import build_matrix
from generators.compatibility.rules import load_rules
from generators.compatibility.verdict import Basis, Level, Reason, Verdict
from hardware.evidence.record import CheckLine, Outcome, RunLine
from hardware.workers.browsers import QUIET
from reports.cell_report import CellReport
from reports.coverage.coverage_facts import Coverage, Excluded, Result, Standing, TargetCoverage, TypeFacts
from reports.coverage.coverage_report import CoverageReport
from reports.formats import report_text
from reports.html.coverage_html import coverage_html
from reports.html.matrix_html import matrix_html
from reports.report import Report

pytestmark = pytest.mark.browser

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=document.title='owned'>"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

Browse = Callable[..., str]


@pytest.fixture
def browse(tmp_path: Path) -> Browse:
    """Opens a page and returns its document after its scripts ran; a message on the console is an error."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip(f"no browser was found; looked for {', '.join(NAMES)}")

    def document(text: str, fragment: str = "") -> str:
        page = tmp_path / "page.html"
        page.write_text(text, encoding="utf-8")
        command = [
            *(program, "--headless", "--no-sandbox", "--disable-gpu", *QUIET, "--enable-logging=stderr", "--v=0"),
            *(f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", f"{page.as_uri()}{fragment}"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        assert "CONSOLE" not in done.stderr, done.stderr
        return done.stdout

    return document


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


@pytest.mark.parametrize(
    ("fragment", "models", "rows"),
    [
        ("", ["bert", "vit"], "2 of 2"),
        ("#?q=fill+ber", ["bert"], "1 of 2"),
        ("#?target=cuda&level=low", ["vit"], "1 of 2"),
        ("#?target=mps&basis=measured", ["bert"], "1 of 2"),
        ("#?family=vision", ["vit"], "1 of 2"),
        ("#?architecture=encoder-only&q=fill", ["bert"], "1 of 2"),
        ("#?q=nothing", [], "0 of 2"),
    ],
)
def test_filters_of_the_matrix(browse: Browse, fragment: str, models: list[str], rows: str):
    document = browse(matrix_page(), fragment)
    assert shown_models(document) == models
    assert f"{rows} rows" in document


def test_a_target_that_is_chosen_leaves_its_column_alone(browse: Browse):
    head = browse(matrix_page(), "#?target=cuda").partition('id="models"')[2].partition("</thead>")[0]
    assert re.findall(r'<th scope="col">([^<]*)<', head) == ["Model, task, precision", "cuda"]


def test_a_cell_opens_by_its_id_with_its_reason_as_text(browse: Browse):
    document = browse(matrix_page(), "#bert/fill-mask/mps/float32")
    dialog = document.partition("<dialog")[2].partition("</dialog>")[0]
    assert "open" in dialog.partition(">")[0]
    assert "bert/fill-mask/mps/float32" in dialog
    assert "&lt;/script&gt;&lt;script&gt;" in dialog
    assert "of bert on mps" in dialog
    assert "<title>Compatibility matrix</title>" in document


def test_an_assumed_cell_names_its_rule_and_the_rules_source(browse: Browse):
    document = browse(matrix_page(), "#bert/fill-mask/openvino/float32")
    dialog = document.partition("<dialog")[2].partition("</dialog>")[0]
    assert '<a href="#rule-prior.embedding.medium">' in dialog
    assert "docs/DECISIONS.md#declared-priors" in dialog


def test_a_link_opens_the_same_view_and_the_same_cell(browse: Browse):
    links = "document.title = decodeURIComponent(location.hash + ' ' + document.getElementById('cell-link').hash);"
    document = browse(acting(matrix_page(), links), "#?q=ber&cell=machines%2Flab%252F1%2Fcuda")
    assert shown_models(document) == ["bert"]
    assert '<h2 id="cell-title">lab/1 on cuda</h2>' in document
    assert "<title>#?q=ber&amp;cell=machines/lab%2F1/cuda #?cell=machines/lab%2F1/cuda</title>" in document


def test_what_is_opened_and_searched_for_is_in_the_address(browse: Browse):
    acts = """
        const form = document.getElementById("matrix-filters");
        form.elements.q.value = "bert";
        form.dispatchEvent(new Event("input"));
        document.querySelector("#models tbody td:nth-of-type(3) button").click();
        document.title = decodeURIComponent(location.hash);
    """
    document = browse(acting(matrix_page(), acts))
    assert "<title>#?q=bert&amp;cell=bert/fill-mask/rocm/float32</title>" in document


def test_a_broken_link_shows_the_page(browse: Browse):
    document = browse(matrix_page(), "#?cell=machines%2F%25zz%2Fcuda&family=nothing")
    assert "<dialog" in document
    assert " open" not in document.partition("<dialog")[2].partition(">")[0]


def test_each_table_has_one_stop_for_the_tab_key(browse: Browse):
    document = browse(matrix_page())
    for name in ("families", "architectures", "machines", "models"):
        table = document.partition(f'id="{name}"')[2].partition("</table>")[0]
        assert table.count('tabindex="0"') == 1
        assert table.count('tabindex="-1"') == table.count("<button") - 1


def acting(text: str, script: str) -> str:
    """A page in which a person does something: its policy is widened for one script, which runs last."""
    open_policy = re.sub(r"script-src '[^']*'", "script-src 'unsafe-inline'", text)
    return open_policy.replace("</body>", f"<script>{script}</script></body>")


def test_arrow_keys_move_between_cells_past_what_is_hidden(browse: Browse):
    keys = """
        const form = document.getElementById("matrix-filters");
        form.elements.q.value = "vit";
        form.dispatchEvent(new Event("input"));
        const press = (key) =>
            document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles:true}));
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
    clicks = """
        const form = document.getElementById("matrix-filters");
        form.querySelector('button[type="reset"]').click();
    """
    document = browse(acting(matrix_page(), clicks), "#?q=vit&target=cuda")
    assert shown_models(document) == ["bert", "vit"]
    assert "2 of 2 rows" in document


def report_page(runs: tuple[RunLine, ...] = ()) -> str:
    lines = tuple(
        CheckLine(
            run_id="r1",
            cell_id=f"bert/fill-mask/{target}/float32",
            check_name="builds",
            outcome=outcome,
            subject="tiny",
            requested_target=target,
            actual_target=target,
            precision="float32",
            model="bert",
            task="fill-mask",
            suite_hash="h",
            started_at="2026-01-01",
            duration_s=0.1,
            error_message=HOSTILE if outcome is not Outcome.PASSED else "",
            accelerator=HOSTILE,
        )
        for target, outcome in zip(
            ("cpu", "cuda", "mps", "xpu", "rocm"),
            (Outcome.PASSED, Outcome.FAILED, *[Outcome.PASSED] * 3),
            strict=True,
        )
    )
    cells = tuple(
        CellReport(
            verdict=Verdict(cell=one.cell_id, level=Level.HIGH, basis=Basis.MEASURED, evidence_ids=("e",)),
            lines=(one,),
        )
        for one in lines
    )
    return report_text(Report(timestamp="2026-01-02", findings=(), checks=lines, cells=cells, runs=runs), "html")


def cell_attributes(document: str) -> dict[str, str]:
    return dict(re.findall(r'<details class="cell" id="([^"]*)"([^>]*)>', document))


def coverage_page() -> str:
    types = (
        TypeFacts(model_type="bert", family="embedding", architecture="encoder-only", task="fill-mask"),
        TypeFacts(
            model_type="mistral", family="text_generation", architecture="decoder-only", task="text-generation"
        ),
        TypeFacts(model_type="part", family="other", excluded=Excluded(obstacle="no_class", reason=HOSTILE)),
    )
    results = {
        "cpu": (Standing.PASSED, Standing.FAILED, Standing.EXCLUDED),
        "openvino": (Standing.PASSED, Standing.PASSED, Standing.EXCLUDED),
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


@pytest.mark.parametrize(
    ("field", "value", "types"),
    [
        ("q", "", ["bert", "mistral", "part"]),
        ("q", "ENCODER fill", ["bert"]),
        ("standing", "failed", ["mistral"]),
        ("standing", "passed", ["bert", "mistral"]),
        ("architecture", "not classified", ["part"]),
        ("family", "text_generation", ["mistral"]),
        ("trait", "no trait", ["bert", "mistral", "part"]),
        ("task", "fill-mask", ["bert"]),
    ],
)
def test_filters_of_the_coverage(browse: Browse, field: str, value: str, types: list[str]):
    script = f"""
        const form = document.querySelector("form.filters");
        form.elements.{field}.value = "{value}";
        form.dispatchEvent(new Event("input"));
    """
    document = browse(acting(coverage_page(), script))
    assert shown_rows(document, "types") == types
    assert f"{len(types)} of 3 types" in document
    assert "<title>Coverage of transformers 5.5.4</title>" in document


def test_filters_of_a_report_hide_cells_with_their_rows(browse: Browse):
    script = """
        const form = document.querySelector("form.filters");
        form.elements.outcomes.value = "failed";
        form.dispatchEvent(new Event("input"));
    """
    document = browse(acting(report_page(), script))
    assert "1 of 5 cells" in document
    cells = cell_attributes(document)
    assert [id_.split("/")[2] for id_, rest in cells.items() if "hidden" not in rest] == ["cuda"]


def test_a_link_opens_its_cell_and_failures_are_open_already(browse: Browse):
    before = cell_attributes(browse(report_page()))
    assert [id_.split("/")[2] for id_, rest in before.items() if " open" in rest] == ["cuda"]
    after = cell_attributes(browse(report_page(), "#bert/fill-mask/mps/float32"))
    assert [id_.split("/")[2] for id_, rest in after.items() if " open" in rest] == ["cuda", "mps"]


def test_what_stands_below_a_check_is_folded_unless_it_failed(browse: Browse):
    document = browse(report_page())
    assert "<title>Hardware compatibility report</title>" in document
    assert re.findall(r'class="toggle" aria-expanded="(\w+)"', document) == [
        "false",
        "true",
        "false",
        "false",
        "false",
    ]
    assert document.count('<tr class="more" hidden="">') == 4


def test_the_report_of_a_run_fits_a_screen_of_320_pixels(browse: Browse):
    run = RunLine(
        run_id="r1",
        started_at="2026-01-01",
        command="python run_test_generation.py --model bert --device webgpu --run",
        machine="lab",
        inventory={},
        versions={"chromium (webgpu)": "156.0.8078.79-1~deb12u1", "onnxruntime (qnn)": "1.31.1"},
        plan=(),
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
