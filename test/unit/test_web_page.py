"""Making a page: what is sealed, what stands in it, what it may do, and which pages aren't made. No browser."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import urllib.request
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from made_page import RUNTIME, captured, made_page, planned, product_model

from generators.compatibility.verdict import Reason
from generators.option_rules import refuse_together
from generators.options import Options
from hardware.detection import detect
from hardware.errors import ModelError, OutputError, UsageError
from hardware.evidence.pages import keep_seal, read_seal
from hardware.evidence.store import Evidence
from hardware.process import Ended, NoAnswer
from hwcompat.plugins.web_page import page_capture as capturing
from hwcompat.plugins.web_page import render_page, web_page_command
from hwcompat.plugins.web_page.captured_test import AskedCall, NotCaptured
from hwcompat.plugins.web_page.captured_test import captured as asked_so_far
from hwcompat.plugins.web_page.page_capture import capture
from hwcompat.plugins.web_page.page_seal import known_of, require_page
from hwcompat.plugins.web_page.render_page import render, script_text
from hwcompat.plugins.web_page.web_page_command import serve, write_page, write_web_page


def block(text: str, name: str) -> str:
    """What stands in the script element of that id."""
    found = re.search(rf'<script type="[^"]+" id="{name}">([^<]*)</script>', text)
    assert found, name
    return found[1]


def hash_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_everything_that_is_embedded_has_the_hash_that_was_sealed() -> None:
    page = made_page()
    text = render(page)
    seal = json.loads(block(text, "seal"))
    assert hash_of(block(text, "seal").encode()) == page.id
    wanted = {
        "model-0": (product_model(), seal["files"][0]),
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


@pytest.mark.parametrize(("device", "evaluates"), [("webgpu", False), ("webnn", True)])
def test_the_policy_lets_nothing_be_fetched_and_names_script_and_style(device: str, evaluates: bool) -> None:
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


def test_the_row_of_the_matrix_has_each_target_and_the_sealed_prediction() -> None:
    known = {verdict.cell.split("/")[2]: verdict for verdict in known_of(planned(), detect(), Evidence())}
    assert {"cpu", "cuda", "mps", "openvino", "webgpu", "webnn"} <= set(known)
    assert known["webgpu"] == planned().verdict
    assert "webnn:gpu" in {
        verdict.cell.split("/")[2] for verdict in known_of(planned("webnn:gpu"), detect(), Evidence())
    }


def test_a_text_that_ends_an_element_ends_none() -> None:
    page = made_page(suite=replace(captured(), asked={**captured().asked, "conditions": {"export": "</script><b>&"}}))
    text = render(page)
    assert "</script><b>" not in text
    assert json.loads(block(text, "seal"))["conditions"]["export"] == "</script><b>&"


def test_a_page_that_no_phone_could_hold_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render_page, "LARGEST", 100)
    with pytest.raises(ModelError, match=r"0 MiB is the most") as refused:
        render(made_page())
    assert "1 model files" in refused.value.why
    assert "tiny model" in refused.value.fix


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


@pytest.mark.parametrize(
    ("place", "why"),
    [("none/dir/p.zip", "No such file"), ("file/p.zip", "Not a directory"), ("folder.zip", "it is a folder")],
)
def test_a_place_that_cannot_be_written_is_refused_before_anything_is_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, why: str
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.zip").mkdir()
    monkeypatch.setattr(web_page_command, "seal", lambda *_: pytest.fail("it was exported"))
    with pytest.raises(OutputError, match="cannot be written") as refused:
        write_web_page(asked(evidence=tmp_path), tmp_path / place, [planned()], detect(), "python made.py")
    assert why in refused.value.why
    assert not (tmp_path / "none").exists()


def test_weights_that_make_a_page_too_large_are_refused_before_they_are_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_page_command, "seal", lambda *_: pytest.fail("it was exported"))
    profile = planned().profile
    large = replace(profile, recipe=replace(profile.recipe, parameters=110_000_000))
    with pytest.raises(ModelError, match="64 MiB is the most") as refused:
        write_web_page(
            asked(evidence=tmp_path),
            tmp_path / "p.zip",
            [replace(planned(), profile=large)],
            detect(),
            "python made.py",
        )
    assert "its weights alone have 420 MiB" in refused.value.why
    render_page.require_small(64 * 2**20)


def test_the_seal_stays_where_the_page_was_made(tmp_path: Path) -> None:
    page = made_page()
    assert keep_seal(tmp_path, page.text).name == f"{page.id}.json"
    assert read_seal(tmp_path, page.id) == page.sealed


def test_a_page_whose_seal_cannot_be_kept_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It could never come home."""
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(web_page_command, "runtime_of", lambda _: RUNTIME)
    monkeypatch.setattr(web_page_command, "seal", lambda *_, **_words: made_page())
    options = asked(web_page=tmp_path / "p.zip", evidence=tmp_path / "file")
    with pytest.raises(OutputError, match="seal cannot be kept"):
        write_web_page(options, tmp_path / "p.zip", [planned()], detect(), "python made.py")
    assert not (tmp_path / "p.zip").exists()


def test_whoever_makes_a_page_hears_what_it_cannot_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(web_page_command, "runtime_of", lambda _: RUNTIME)
    monkeypatch.setattr(web_page_command, "seal", lambda *_, **_words: made_page())
    write_web_page(asked(evidence=tmp_path), tmp_path / "p.zip", [planned()], detect(), "python made.py")
    assert "a page can't run honours_mask (it looks into outputs itself)" in capsys.readouterr().err
    whole = {**captured().asked, "not_captured": {}}
    whole["steps"] = {**whole["steps"], "honours_mask": whole["steps"]["matches_reference"]}
    monkeypatch.setattr(
        web_page_command, "seal", lambda *_, **_words: made_page(suite=replace(captured(), asked=whole))
    )
    write_web_page(asked(evidence=tmp_path), tmp_path / "p.zip", [planned()], detect(), "python made.py")
    assert "a page can't run" not in capsys.readouterr().err


def test_all_reasons_of_what_was_known_stand_in_the_page() -> None:
    reasons = (Reason.of("text", text="static shapes"), Reason.of("text", text="on:\n a software adapter"))
    page = made_page(known=(replace(planned().verdict, reasons=reasons),))
    (known,) = page.sealed["known"]
    assert known["reason"] == "static shapes; on: a software adapter"
    assert known["reason"] in render(page)


def test_what_limits_every_pass_is_sealed() -> None:
    assert made_page().sealed["limited_by"] == ["static shapes"]


def test_a_check_that_asked_nothing_and_says_not_why_makes_no_page() -> None:
    with pytest.raises(ModelError, match="nothing is known of what honours_mask asks"):
        made_page(suite=replace(captured(), asked={**captured().asked, "not_captured": {}}))


def test_what_a_shell_says_to_its_own_pytest_changes_no_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, str] = {}

    def asked(*_: object, environment: dict[str, str], limit_s: float) -> None:
        given.update(environment)
        raise NoAnswer(Ended(returncode=2, stdout="", stderr="nothing ran", seconds=1.0, limit_s=limit_s))

    monkeypatch.setenv("PYTEST_ADDOPTS", "-k builds")
    monkeypatch.setenv("PYTEST_PLUGINS", "none_such")
    monkeypatch.setattr(capturing, "ask", asked)
    with pytest.raises(ModelError, match="couldn't be computed"):
        capture(tmp_path / "test_suite.py", {"GIVEN": "x"})
    assert given["GIVEN"] == "x"
    assert given["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] == "1"
    assert not {"PYTEST_ADDOPTS", "PYTEST_PLUGINS"} & set(given)


def test_the_page_is_served_on_loopback_until_it_is_interrupted(capsys: pytest.CaptureFixture[str]) -> None:
    got = {}

    def wait() -> None:
        address = capsys.readouterr().out.split()[0]
        assert address.startswith("http://127.0.0.1:")
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(address, timeout=10) as answer:
            got["text"] = answer.read().decode()
        raise KeyboardInterrupt

    serve("<p>a page</p>", wait)
    assert got["text"] == "<p>a page</p>"


@pytest.mark.parametrize(
    ("device", "precision", "reason"),
    [
        ("cpu", "float32", "no browser runs cpu"),
        ("webgpu:native", "float32", "no browser runs webgpu:native"),
        ("webgpu", "float16", "computes in float32"),
    ],
)
def test_what_has_no_page_is_refused(device: str, precision: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        require_page([planned(device, precision=precision)])


def test_a_page_is_of_one_cell() -> None:
    with pytest.raises(UsageError, match="2 cells were chosen"):
        require_page([planned(), planned("webnn")])
    assert require_page([planned()]) is planned()


def asked(**given: object) -> Options:
    return Options(models=(), devices=(), fail_on=(), **given)


@pytest.mark.parametrize(
    "other", ["run", "bundle", "config", "list_cells", "check_folder", "update_folder", "upstream"]
)
def test_flags_that_do_not_go_with_a_page(other: str) -> None:
    with pytest.raises(UsageError, match="--web-page makes a page"):
        refuse_together(asked(web_page=Path("p.zip"), **{other: Path("x")}), format_given=False)
    with pytest.raises(UsageError, match="--serve goes with --web-page"):
        refuse_together(asked(serve=True), format_given=False)
    refuse_together(asked(web_page=Path("p.zip"), serve=True), format_given=False)


def test_a_check_that_does_more_with_an_error_than_hold_it_against_a_limit_is_not_captured() -> None:
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
