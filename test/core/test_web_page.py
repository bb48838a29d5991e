"""Pages: what is embedded and sealed, their policy, options, and pages that are refused. No browser."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from made_page import MODEL, RUNTIME, captured, made_page, planned, recorded

from generators.compatibility.verdict import Reason
from generators.options import Options
from hardware.errors import ModelError, OutputError, UsageError
from hardware.evidence.pages import keep_seal, read_seal
from hardware.process import Ended, NoAnswer
from hwcompat.plugins.web_page import page_seal, render_page, web_page_command
from hwcompat.plugins.web_page.captured_test import AskedCall, NotCaptured
from hwcompat.plugins.web_page.captured_test import captured as asked_so_far
from hwcompat.plugins.web_page.page_seal import capture, require_page
from hwcompat.plugins.web_page.render_page import SCRIPTS, render, script_text
from hwcompat.plugins.web_page.web_page_command import write_page, write_web_page


def options(**given: object) -> Options:
    return Options(models=(), devices=(), fail_on=(), **given)


def make(folder: Path, page: Path, planned_suite: object = None, evidence: Path | None = None) -> None:
    suites = [planned_suite or planned()]
    write_web_page(options(evidence=evidence or folder), page, suites, recorded(), "python made.py")


def block(text: str, name: str) -> str:
    """What stands in the script element of that id."""
    found = re.search(rf'<script type="[^"]+" id="{name}">([^<]*)</script>', text)
    assert found, name
    return found[1]


def hash_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_the_seal_holds_hashes_limits_and_the_prediction() -> None:
    page = made_page()
    text = render(page)
    seal = json.loads(block(text, "seal"))
    assert hash_of(block(text, "seal").encode()) == page.id
    wanted = {
        "model-0": (MODEL, seal["files"][0]),
        "inputs": (captured().inputs, seal["inputs"]),
        "expected": (captured().expected, seal["expected"]),
        "script": (RUNTIME.script, seal["runtime"]["script"]),
        "wasm": (RUNTIME.wasm, seal["runtime"]["wasm"]),
    }
    for name, (data, sealed) in wanted.items():
        assert gzip.decompress(base64.b64decode(block(text, f"data-{name}"))) == data
        assert sealed == {**sealed, "sha256": hash_of(data), "bytes": len(data)}
    assert seal["files"][0]["nodes"] == {"product": "onnx.MatMul"}
    assert seal["tolerance"]["limit"] == 2e-5
    assert seal["run"]["plan"][0]["verdict"]["level"] == planned().verdict.level
    assert page.sealed["limited_by"] == ["static shapes"]


def test_the_policy_fetches_nothing_and_names_script_and_style() -> None:
    for device, evaluates in (("webgpu", False), ("webnn", True)):
        text = render(made_page(device))
        policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
        assert policy
        rules = {rule.split()[0]: rule.split()[1:] for rule in policy[1].split(";")}
        assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == ["'none'"]
        assert rules["img-src"] == ["data:"]
        assert set(rules) == {"default-src", "base-uri", "form-action", "img-src", "style-src", "script-src"}
        digest = base64.b64encode(hashlib.sha256(script_text().encode()).digest()).decode()
        assert f"'sha256-{digest}'" in rules["script-src"]
        assert f"<script>{script_text()}</script>" in text
        assert ("'unsafe-eval'" in rules["script-src"]) is evaluates
        assert not re.findall(r'(?:src|href)="(?!data:,|#)[^"]*"', text)
        assert "onclick" not in text
        assert 'style="' not in text
    for name in SCRIPTS:
        script = name.read_text(encoding="utf-8")
        assert "import " not in script.replace("await import(address)", ""), name
        for word in ("fetch(", "XMLHttpRequest", "WebSocket", "sendBeacon", "innerHTML", "localStorage"):
            assert word not in script, (name, word)


def test_the_page_says_what_to_do_without_its_script_and_without_webgpu() -> None:
    text = render(made_page())
    assert "JavaScript is off" in re.search(r"<noscript>(.*?)</noscript>", text, re.DOTALL)[1]
    assert "chrome://flags/#enable-unsafe-webgpu" in text
    assert "chrome://flags/#web-machine-learning-neural-network" in render(made_page("webnn"))
    assert 'role="status" aria-live="polite"' in text
    for name in ("builds", "matches_reference", "honours_mask", "runs_natively"):
        assert f'id="outcome-{name}">not run<' in text
    assert "prefers-reduced-motion" in text
    assert "prefers-color-scheme: dark" in text


def test_text_of_others_ends_no_element_and_every_reason_is_shown() -> None:
    page = made_page(suite=replace(captured(), asked={**captured().asked, "conditions": {"export": "</script><b>&"}}))
    text = render(page)
    assert "</script><b>" not in text
    assert json.loads(block(text, "seal"))["conditions"]["export"] == "</script><b>&"
    reasons = (Reason.of("text", text="static shapes"), Reason.of("text", text="on:\n a software adapter"))
    page = made_page(known=(replace(planned().verdict, reasons=reasons),))
    (known,) = page.sealed["known"]
    assert known["reason"] == "static shapes; on: a software adapter"
    assert known["reason"] in render(page)


def test_a_page_that_is_too_large_is_refused_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(render_page, "LARGEST", 100)
        with pytest.raises(ModelError, match=r"the maximum is 0 MiB") as refused:
            render(made_page())
    assert "1 model files" in refused.value.why
    assert "tiny model" in refused.value.fix
    monkeypatch.setattr(web_page_command, "seal", lambda *_: pytest.fail("it was exported"))
    profile = planned().profile
    large = replace(profile, recipe=replace(profile.recipe, parameters=110_000_000))
    with pytest.raises(ModelError, match="the maximum is 64 MiB") as refused:
        make(tmp_path, tmp_path / "p.zip", replace(planned(), profile=large))
    assert "its weights have 420 MiB" in refused.value.why
    render_page.require_small(64 * 2**20)


def test_the_zip_holds_one_page_and_the_same_bytes_for_the_same_page(tmp_path: Path) -> None:
    text = render(made_page())
    for name in ("a.zip", "b.zip"):
        write_page(tmp_path / name, "page.html", text)
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert archive.namelist() == ["page.html"]
        assert archive.read("page.html").decode() == text
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError):
        write_page(tmp_path / "file" / "c.zip", "page.html", text)


def test_a_path_that_cannot_be_written_is_refused_before_the_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.zip").mkdir()
    monkeypatch.setattr(web_page_command, "seal", lambda *_: pytest.fail("it was exported"))
    for place, why in (
        ("none/dir/p.zip", "No such file"),
        ("file/p.zip", "Not a directory"),
        ("folder.zip", "it is a folder"),
    ):
        with pytest.raises(OutputError, match="cannot be written") as refused:
            make(tmp_path, tmp_path / place)
        assert why in refused.value.why
    assert not (tmp_path / "none").exists()


def test_a_page_is_written_only_if_its_seal_is_kept_and_with_a_note_on_checks_that_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = made_page()
    assert keep_seal(tmp_path, page.text).name == f"{page.id}.json"
    assert read_seal(tmp_path, page.id) == page.sealed
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(web_page_command, "runtime_of", lambda _: RUNTIME)
    monkeypatch.setattr(web_page_command, "seal", lambda *_, **_words: page)
    with pytest.raises(OutputError, match="seal cannot be written"):
        make(tmp_path, tmp_path / "p.zip", evidence=tmp_path / "file")
    assert not (tmp_path / "p.zip").exists()
    capsys.readouterr()
    make(tmp_path, tmp_path / "p.zip")
    assert "the page can't run honours_mask (it reads outputs itself)" in capsys.readouterr().err
    whole = {**captured().asked, "not_captured": {}}
    whole["steps"] = {**whole["steps"], "honours_mask": whole["steps"]["matches_reference"]}
    monkeypatch.setattr(
        web_page_command, "seal", lambda *_, **_words: made_page(suite=replace(captured(), asked=whole))
    )
    make(tmp_path, tmp_path / "p.zip")
    assert "the page can't run" not in capsys.readouterr().err
    with pytest.raises(ModelError, match="honours_mask wasn't captured"):
        made_page(suite=replace(captured(), asked={**captured().asked, "not_captured": {}}))


def test_pytest_options_of_the_shell_change_no_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, str] = {}

    def ask(*_: object, environment: dict[str, str], limit_s: float) -> None:
        given.update(environment)
        raise NoAnswer(Ended(returncode=2, stdout="", stderr="nothing ran", seconds=1.0, limit_s=limit_s))

    monkeypatch.setenv("PYTEST_ADDOPTS", "-k builds")
    monkeypatch.setenv("PYTEST_PLUGINS", "none_such")
    monkeypatch.setattr(page_seal, "ask", ask)
    with pytest.raises(ModelError, match="couldn't be captured"):
        capture(tmp_path / "test_suite.py", {"GIVEN": "x"})
    assert given["GIVEN"] == "x"
    assert given["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] == "1"
    assert not {"PYTEST_ADDOPTS", "PYTEST_PLUGINS"} & set(given)


def test_a_page_is_of_one_cell_that_a_browser_runs_in_float32() -> None:
    for device, precision, reason in (
        ("cpu", "float32", "browsers don't run cpu"),
        ("webgpu:native", "float32", "browsers don't run webgpu:native"),
        ("webgpu", "float16", "computes in float32"),
    ):
        with pytest.raises(UsageError, match=reason):
            require_page([planned(device, precision=precision)])
    with pytest.raises(UsageError, match="a page is for one cell, and you chose 2"):
        require_page([planned(), planned("webnn")])
    assert require_page([planned()]) is planned()


def test_a_check_may_only_compare_an_error_with_a_limit() -> None:
    asked_so_far.check = "matches_reference"
    error = AskedCall({"what": "error", "pass": 0, "want": 0})
    assert error <= 2e-5
    assert error > 4e-5
    assert asked_so_far.steps.pop("matches_reference") == [
        {"what": "error", "pass": 0, "want": 0, "at_most": 2e-5},
        {"what": "error", "pass": 0, "want": 0, "more_than": 4e-5},
    ]
    with pytest.raises(NotCaptured):
        float(error)
    with pytest.raises(NotCaptured):
        bool(error)
