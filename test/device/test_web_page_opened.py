"""Pages of checks in real browsers, opened from disk by keyboard alone; what they save, merged by the reporter.

Needs the environment that `make setup-web` makes, and is skipped by name where it isn't there.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import signal
import subprocess
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import CommandLine, Ran

from hardware.backends.factory import get_backend
from hardware.evidence.pages import SEALS, keep_seal, seal_text
from hardware.export.onnx_export import missing_packages
from hardware.workers import environment_of

ENVIRONMENT = environment_of("webgpu")
REASON = get_backend("webgpu").missing() or missing_packages()
NO_WEBNN = get_backend("webnn").missing()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.skipif(bool(REASON), reason=f"target webgpu isn't here: {REASON}"),
]
READER = Path(__file__).with_name("web_page_reader.py")
CHECKS = [
    "builds",
    "matches_reference",
    "matches_recorded",
    "honours_mask",
    "batch_invariance",
    "attention_agrees",
    "runs_natively",
]


@dataclass(frozen=True, kw_only=True)
class Made:
    """A page on disk, where its seal is kept, and how the command that made it ended."""

    ran: Ran
    page: Path
    api: str

    @property
    def evidence(self) -> Path:
        return self.ran.folder / "evidence"

    @property
    def text(self) -> str:
        return self.page.read_text(encoding="utf-8")


def make(command_line: CommandLine, folder: Path, device: str) -> Made:
    archive = folder / "page.zip"
    ran = command_line.run(folder, "--model", "bert", "--device", device, "--web-page", archive)
    assert ran.code == 0, ran.err
    with zipfile.ZipFile(archive) as packed:
        (name,) = packed.namelist()
        packed.extract(name, folder)
    return Made(ran=ran, page=folder / name, api=device.partition(":")[0])


@pytest.fixture(scope="module")
def made(command_line: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(command_line, tmp_path_factory.mktemp("web-page"), "webgpu")


def opened(made: Made, folder: Path, page: str | Path = "", **more: Any) -> dict[str, Any]:
    """What a reader with a keyboard sees of the page."""
    address = page if isinstance(page, str) and page else Path(page or made.page).as_uri()
    browser = environment_of(made.api).browser
    assert browser is not None
    asked = {"page": address, "api": made.api, "program": str(browser.path), "folder": str(folder), **more}
    done = subprocess.run(
        [str(ENVIRONMENT.python), str(READER), json.dumps(asked)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def report(command_line: CommandLine, made: Made, file: str | Path, folder: Path) -> tuple[int, dict[str, Any], str]:
    """The exit code, the JSON report and the notes of the reporter that takes a file in."""
    words = ("--merge", file, "--evidence", made.evidence, "--collect-all", "--format", "json")
    ran = command_line.python(folder, "hardware_compatibility_reporter.py", *words)
    return ran.code, json.loads(ran.out) if ran.out.strip() else {}, ran.err


def altered(made: Made, folder: Path, change: Callable[[dict[str, bytes]], None], *, seal_again: bool) -> Path:
    """The page with other bytes in it; the seal is that of these bytes, or stays what it was."""
    text = made.text
    blocks = {name: gzip.decompress(base64.b64decode(data)) for name, data in _blocks(text).items()}
    before = dict(blocks)
    change(blocks)
    for name in blocks:
        if blocks[name] != before[name]:
            data = base64.b64encode(gzip.compress(blocks[name])).decode()
            text = re.sub(rf'(id="data-{name}">)[^<]*', rf"\g<1>{data}", text)
    if seal_again:
        sealed = json.loads(re.search(r'id="seal">([^<]*)', text)[1])
        sealed["expected"]["sha256"] = hashlib.sha256(blocks["expected"]).hexdigest()
        for number, file in enumerate(sealed["files"]):
            file["sha256"] = hashlib.sha256(blocks[f"model-{number}"]).hexdigest()
        seal = seal_text(sealed)
        keep_seal(made.evidence, seal)
        text = re.sub(r'(id="seal">)[^<]*', lambda match: match[1] + seal, text)
    path = folder / "altered.html"
    path.write_text(text, encoding="utf-8")
    return path


def _blocks(text: str) -> dict[str, str]:
    found = re.findall(r'<script type="application/octet-stream" id="data-([a-z0-9-]+)">([^<]*)', text)
    return {name: data for name, data in found if name not in ("wasm", "script")}


def one_weight(blocks: dict[str, bytes]) -> None:
    """Change one number of the first matrix that the example is multiplied by."""
    import onnx

    model = onnx.load_from_string(blocks["model-0"])
    constants = {one.name: one for one in model.graph.initializer}
    used = (name for node in model.graph.node if node.op_type == "MatMul" for name in node.input)
    matrix = next(constants[name] for name in used if name in constants)
    values = onnx.numpy_helper.to_array(matrix).copy()
    values[tuple(np.array(values.shape) // 2)] += 1.0
    matrix.CopyFrom(onnx.numpy_helper.from_array(values, matrix.name))
    blocks["model-0"] = model.SerializeToString()


def one_expected_number(blocks: dict[str, bytes]) -> None:
    values = np.frombuffer(blocks["expected"][: 2 * 16 * 512 * 8], dtype=np.float64).copy()
    values[1000] += 1.0
    blocks["expected"] = values.tobytes() + blocks["expected"][values.nbytes :]


def test_by_keyboard_on_a_narrow_screen_it_passes_and_says_that_the_adapter_is_software(
    made: Made, command_line: CommandLine, tmp_path: Path
) -> None:
    found = opened(made, tmp_path, width=320)
    assert found["script"]
    assert set(found["before"].values()) == {"not run"}
    assert found["rows"] == dict.fromkeys(CHECKS, "passed")
    assert (found["outline"], found["live"]) == ("solid", "polite")
    assert found["way back"] == ["save"]
    assert found["wide"] == 320
    assert not found["overlaps"]
    assert found["fetched"] == [made.page.as_uri()]
    assert not [line for line in found["said"] if line.startswith(("error", "pageerror"))], found["said"]
    assert "swiftshader (software)" in found["verdict"]
    assert "they don't count for a GPU" in found["verdict"]
    assert "Fallback adapter" in found["facts"]
    code, told, err = report(command_line, made, found["file"], tmp_path)
    assert code == 0, err
    (verdict,) = told["verdicts"]
    assert (verdict["cell"], verdict["level"]) == ("bert/fill-mask/webgpu/float32", "medium")
    assert verdict["basis"] == "measured"
    assert any("on a software adapter" in reason["text"] for reason in verdict["reasons"])


LIES = """
  const own = GPU.prototype.requestAdapter;
  const info = { vendor: "nvidia", architecture: "ampere", device: "", description: "", isFallbackAdapter: false };
  let asked = 0;
  GPU.prototype.requestAdapter = async function (...given) {
    const adapter = await own.apply(this, given);
    if (asked++ < 2) Object.defineProperty(adapter, "info", { value: info });
    return adapter;
  };
"""


@pytest.mark.nightly
def test_the_device_that_computed_counts_and_not_the_adapter_that_was_described(
    made: Made, command_line: CommandLine, tmp_path: Path
) -> None:
    found = opened(made, tmp_path, before=[LIES])
    assert "swiftshader (software)" in found["verdict"]
    assert "nvidia" not in found["facts"]
    code, told, err = report(command_line, made, found["file"], tmp_path)
    assert code == 0, err
    assert any("on a software adapter" in reason["text"] for reason in told["verdicts"][0]["reasons"])


@pytest.mark.parametrize("change", [pytest.param(one_weight, marks=pytest.mark.nightly), one_expected_number])
def test_a_page_with_something_wrong_in_it_fails_and_its_evidence_says_unsupported(
    made: Made, command_line: CommandLine, tmp_path: Path, change: Callable[[dict[str, bytes]], None]
) -> None:
    page = altered(made, tmp_path, change, seal_again=True)
    found = opened(made, tmp_path, page)
    assert found["rows"]["builds"] == "passed"
    assert found["rows"]["matches_reference"] == "failed"
    assert found["rows"]["honours_mask"] == "failed"
    assert "It doesn't work here" in found["verdict"]
    own = Made(ran=Ran(pid=0, code=0, out="", err="", folder=tmp_path), page=page, api="webgpu")
    keep_seal(own.evidence, re.search(r'id="seal">([^<]*)', page.read_text(encoding="utf-8"))[1])
    code, told, err = report(command_line, own, found["file"], tmp_path / "report")
    assert code == 1, err
    assert told["verdicts"][0]["level"] == "unsupported"


def test_a_page_that_was_changed_after_it_was_sealed_runs_nothing_and_its_evidence_is_refused(
    made: Made, command_line: CommandLine, tmp_path: Path
) -> None:
    found = opened(made, tmp_path, altered(made, tmp_path, one_weight, seal_again=False))
    assert found["rows"] == {"builds": "failed", **dict.fromkeys(CHECKS[1:], "not run")}
    assert "model-0" in found["text"]
    code, _, err = report(command_line, made, found["file"], tmp_path)
    assert not found["overlaps"]
    assert code != 0
    assert "the page's files were changed: model-0" in err


def test_without_webgpu_nothing_passes_and_the_page_says_what_to_do(
    made: Made, command_line: CommandLine, tmp_path: Path
) -> None:
    found = opened(made, tmp_path, before=["Object.defineProperty(navigator, 'gpu', { value: undefined });"])
    assert set(found["rows"].values()) == {"not run"}
    assert "Nothing was tested: this browser has no WebGPU" in found["verdict"]
    assert "chrome://flags" in found["text"]
    code, told, err = report(command_line, made, found["file"], tmp_path)
    assert "taken" in err, err
    assert {check["outcome"] for check in told["checks"] if check["actual_target"] is None} == {"not_run"}
    assert code in (0, 1)


def test_without_javascript_it_can_be_read(made: Made, tmp_path: Path) -> None:
    found = opened(made, tmp_path, script=False)
    assert "JavaScript is off" in found["text"]
    assert "Results before this run" in found["text"]


@pytest.mark.nightly
def test_it_is_served_on_loopback_and_ends_on_an_interruption(
    made: Made, command_line: CommandLine, tmp_path: Path
) -> None:
    words = ("--model", "bert", "--device", "webgpu", "--web-page", tmp_path / "page.zip", "--serve")
    process = command_line.start(tmp_path, *words)
    try:
        until = time.monotonic() + 120
        while "http://127.0.0.1:" not in (out := (tmp_path / "out").read_text()) and time.monotonic() < until:
            assert process.poll() is None, (tmp_path / "err").read_text()
            time.sleep(0.2)
        address = re.search(r"http://127\.0\.0\.1:\d+/\S+", out)
        assert address, out
        found = opened(made, tmp_path, address[0])
    finally:
        process.send_signal(signal.SIGINT)
    assert command_line.wait(process, tmp_path).code == 0
    assert set(found["rows"].values()) == {"passed"}
    assert found["fetched"] == [address[0]]
    assert len(list((tmp_path / "evidence" / SEALS).glob("*.json"))) == 1


@pytest.mark.skipif(bool(NO_WEBNN), reason=f"target webnn isn't here: {NO_WEBNN}")
@pytest.mark.parametrize(
    ("device", "said"),
    [("webnn", "cpu context"), pytest.param("webnn:gpu", "context", marks=pytest.mark.extended)],
)
@pytest.mark.nightly
def test_webnn_runs_too_and_says_what_was_only_requested(
    command_line: CommandLine, tmp_path: Path, device: str, said: str
) -> None:
    made = make(command_line, tmp_path, device)
    found = opened(made, tmp_path)
    assert said in found["verdict"]
    if device == "webnn":
        assert set(found["rows"].values()) == {"passed"}
    elif "no context" not in found["verdict"]:
        assert "requested" in found["verdict"]
    code, told, err = report(command_line, made, found["file"], tmp_path)
    assert "taken" in err, err
    assert told["verdicts"][0]["level"] != "high" or device == "webnn"
    assert code in (0, 1)


@pytest.mark.nightly
def test_the_page_measures_what_the_suite_measures_in_the_same_browser(
    made: Made, command_line: CommandLine, tmp_path: Path
) -> None:
    ran = command_line.run(tmp_path, "--model", "bert", "--device", "webgpu", "--run")
    assert ran.code == 0, ran.err
    suite = ran.lines("bert/fill-mask/webgpu/float32")
    saved = Path(opened(made, tmp_path)["file"]).read_text(encoding="utf-8").splitlines()
    page = {line["check_name"]: line for line in map(json.loads, saved) if line["kind"] == "check"}
    assert list(page) == list(suite) == CHECKS
    for name, line in page.items():
        assert line["outcome"] == suite[name].outcome
        assert line["suite_hash"] == suite[name].suite_hash
        assert line.get("max_rel_error") == (suite[name].max_rel_error and pytest.approx(suite[name].max_rel_error))
        assert line["native_ops"] == suite[name].native_ops
        assert line["offloaded_ops"] == suite[name].offloaded_ops
        for condition in (
            ("shapes", "stands_in", "adapter") if name != "builds" else ()
        ):  # a suite loads nothing there
            assert line["conditions"].get(condition) == suite[name].conditions.get(condition)
