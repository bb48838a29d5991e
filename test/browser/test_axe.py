"""axe-core finds no accessibility violation in the pages of commands, nor in a site that was built (`make axe`)."""

from __future__ import annotations

import functools
import html
import json
import os
import re
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import made_stress
import pytest
import report_parts
from evidence_lines import BERT, run_line
from recorded_machines import machine
from test_pages import coverage_page, matrix_page, report_page

from hardware.detection import detect
from hardware.evidence.runs import History, PastRun
from hwcompat.plugins.stress.stress_page import stress_html
from reports.document import Heading
from reports.formats import report_text
from reports.html.page import document_page

AXE = os.environ.get("AXE", "")
pytestmark = [pytest.mark.browser, pytest.mark.skipif(not AXE, reason="`make axe` sets AXE to axe.min.js")]
SITE = Path(__file__).parents[2] / "hwcompat-out/site"
RUN = """(() => {
    %s;
    const options = { resultTypes: ["violations"] };
    document.querySelectorAll("details").forEach((one) => { one.open = true; });
    axe.run({ exclude: ["#models tbody tr:nth-child(n+21)"] }, options).then(({ violations }) => {
        const found = violations.map((one) => `${one.id}: ${one.nodes.length} × ${one.nodes[0].target}`);
        localStorage.clear(); // the site keeps the scheme of the page before
        document.documentElement.dataset.axe = JSON.stringify(found);
    });
    return true;
})()"""


def pictures_page() -> str:
    """A report with trends and a drawn machine."""
    run = run_line(inventory=detect(machine("nvidia/h100-x8")).to_dict())
    past = [
        PastRun(run_id=one, started_at=f"{one}-01-01", machine="", versions={}, outcomes={}) for one in ("25", "26")
    ]
    history = History(runs=tuple(past), cells={BERT: ((0, {"failed": 1}), (1, {"passed": 1}))})
    return report_text(report_parts.report(report_parts.finding(BERT), machines=(run,), history=history), "html")


PAGES: dict[str, Callable[[], str]] = {
    "report": report_page,
    "pictures": pictures_page,
    "matrix": matrix_page,
    "coverage": coverage_page,
    "stress": lambda: stress_html(made_stress.report(made_stress.summary())),
    "document": lambda: document_page("Title", [Heading(level=1, text="Title"), "Text"], {"high": 2}),
}
KINDS = ("index", "tutorial", "models", "VERDICT", "measured/transformers-5.23.0", "reference/commands")
"""One page of the site of each kind; others have the same frame."""


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """The address of the site, whose search needs a server."""
    handler = functools.partial(SimpleHTTPRequestHandler, directory=SITE)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("name", [*PAGES, *(f"{one}.html" for one in KINDS if (SITE / f"{one}.html").exists())])
@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (1400, "dark"), (400, "light")])
def test_axe_finds_no_violation(browse: Callable[..., str], site: str, name: str, width: int, scheme: str):
    run, ended = RUN % Path(AXE).read_text(encoding="utf-8"), "'axe' in document.documentElement.dataset"
    page = PAGES[name]() if name in PAGES else f"{site}/{name}"
    document = browse(page, "", run, ended, width=width, prefers_color_scheme=scheme)
    (found,) = re.findall(r'<html[^>]* data-axe="([^"]*)"', document)
    assert json.loads(html.unescape(found)) == []
