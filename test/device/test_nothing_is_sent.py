"""No command of ours reaches beyond this machine, with nothing in its environment or home that keeps libraries quiet.

What a command starts counts as its own: children, workers, browsers, node. `conftest.py` holds every other test to
the same; this file is where no command can be forgotten.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import click
import pytest
from command_line import REPOSITORY, CommandLine, Ran
from front_doors import commands

from generators.compatibility.published_rows import SHIPPED
from hardware.backends.factory import get_backend
from hardware.export.onnx_export import missing_packages
from hwcompat.cli.earlier_scripts import GENERATION, REPORTER, commands_of

pytestmark = pytest.mark.slow

OPENVINO = "bert/fill-mask/openvino/float32"
FAILING = "git/image-text-to-text/cpu/float32"  # decoding with a cache, by a fault of the library
FAULT = "{}/failing.log"

GENERATE = "run_test_generation.py"
REPORT = "hardware_compatibility_reporter.py"
INVENTORY = "-m hardware"
PROGRAM = "-m hwcompat"
OTHERS = {"init", "upstream", "evidence sign", "mcp", "enable"}
"""Commands that other tests run under the same watch."""
RUN = "--model bert --model git --device cpu --device openvino --run --skip git/*/openvino/*"

# What each command is asked, and the exit code that says that it did its work.
ASKED: dict[str, dict[str, int]] = {
    GENERATE: {
        "--list-devices": 0,
        "--model bert --device all --list": 0,
        "--priority high --architectures encoder-only --tasks all --precision bfloat16 --device known": 0,
        "--model no-one/no-such-model --device cpu": 1,
        "--model no-one/bert-small --allow-tiny --device cpu --list": 0,
        "--model bert --device cpu --bundle {}/bundle.zip": 0,
        "--model bert --device webgpu --web-page {}/page.zip": 0,
        "--check {}/suites": 0,
        "--update {}/suites": 0,
        "--verify {}/suites --select bert/*": 0,
        "--explain bert/fill-mask/qnn/float32": 0,
        "--hardware-compatibility --format html --by model": 0,
        "--coverage-report --targets cpu,openvino": 0,
        "--calibration --format json": 0,
        "--backlog openvino": 0,
        "--mesh data=2 --model bert --device cpu": 0,
        "--place --in-turn --model bert --inventory {}/inventory.json --pin bert=inventory/cpu": 0,
        "--place --model bert --device cpu --forbid bert=cpu": 1,
        "--refresh --dry-run": 0,
        "--model bert --device cpu --run --distributed ray": 0,
    },
    REPORT: {
        "--collect-all --matrix --test-hardware --format html": 1,
        "--check-model bert --device openvino --memory 8GiB": 0,
        "--check-model git --device cpu": 1,
        "--compare {}/evidence {}/evidence": 0,
        f"--localize {OPENVINO}": 0,
        f"--repro {FAILING} --output-dir {{}}/repro": 0,
        f"--try-remedies {FAILING}": 0,
        f"--diagnose {FAULT}": 1,
        "--stress {}/stress.json": 0,
        "--merge {}/evidence --compact --collect-all --evidence {}/merged": 1,
        "--evidence {}/evidence --publish memory://bucket/prefix": 0,
    },
    INVENTORY: {
        "list --format json --smart": 0,
        "list --all": 0,
        "monitor --format json --count 1": 0,
        "doctor": 0,
        "compare {}/inventory.json {}/inventory.json": 0,
        "device-spec simulated": 0,
        "evidence check {}/evidence --signers {}/signers --identity me": 4,
        "capabilities": 0,
        "fit --memory-gb 0.1": 0,
        "recommend --architecture speech": 0,
    },
    PROGRAM: {
        "doctor --no-check": 0,
        "classify bert --json": 0,
        "completion bash": 0,
        "fit bert --memory 8GiB": 0,
        "calibration --external": 0,
        "ops cpu --operator exp --operators-of mamba --precision float32 --coverage --breadth": 0,
        "ops cpu --onnx --operator onnx.abs": 0,
        "ops qnn --mode support": 0,
        "devices probe cpu": 0,
        "compare-devices cpu simulated --model bert --task fill-mask --steps 2 --keep {}/kept": 0,
        f"evidence import table {SHIPPED} --source-version 1 --license MIT --published 2026-11-01 --target cpu "
        "--evidence {}/merged": 0,
        "evidence clear-flaky bert/fill-mask/cpu/float32 --reason x --evidence {}/evidence": 4,
    },
}
BEFORE = (
    "list --format json --output {}/inventory.json",
    "stress cpu ram --duration 1 --warmup 0 --format json --output {}/stress.json",
)
"""What `python -m hardware` makes for the others."""

ELSEWHERE = (
    "--dims --length --config --update-expected --upstream --serve --address --host --host-python --host-patience "
)
ELSEWHERE += "--host-checkpoint --rules --costs --library --write --allow-run --expected"
"""Options of jobs that other files run, which `conftest.py` watches as it does this one."""

TAKES_LONG = (
    "--repro",
    "--localize",
    "--try-remedies",
    "--mesh",
    "--place",
    "--verify",
    "--check-model",
    "doctor",
    "fit",
    "ops",
    "devices probe",
    "compare-devices",
    "--model bert --device webgpu",
    "--collect-all --matrix --test-hardware --format html",
    "--hardware-compatibility --format html --by model",
)
"""Commands that other tests run as well, under the same watch, but from a home that has been seen before."""

HOW = (
    "--shard --timeout --jobs --resume --durable --measure --allow-fallback --force --template-dir --no-redact "
    "--machine --baseline --fail-on --previous --fail-under --output-dir --evidence --report-dir --debug --quiet "
    "--precision --batch --context --training --without-memory --suites --anonymise-models --anonymize-models --task "
    "--model --check --no-check --record --replay --output --duration --warmup --interval --keep --key --tflops "
    "--vendor --class --methods --ci --devcontainer --install --inputs --allow-code"
)
"""Options that start nothing of their own."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A home in which nobody has ever refused or agreed to anything."""
    folder = tmp_path_factory.mktemp("home")
    return {"HOME": str(folder), **{f"XDG_{name}_HOME": str(folder / name) for name in ("CONFIG", "DATA", "STATE")}}


def _run(command_line: CommandLine, folder: Path, command: str, words: str, home: dict[str, str]) -> Ran:
    own = words.replace("{}", str(folder)).split()
    if command == GENERATE:
        where = {"--output-dir": "suites", "--evidence": "evidence", "--report-dir": "reports"}
        made = not any(option in own for option in ("--run", "--check", "--update", "--verify"))
        where["--output-dir"] = "others" if made else "suites"
        own += [word for option, name in where.items() for word in (option, str(folder / name))]
    elif command == REPORT and not {"--evidence", "--compare", "--stress", "--diagnose"} & set(own):
        own += ["--evidence", str(folder / "evidence")]
    streams = folder / "streams"
    return command_line.python(streams, *command.split(), *own, env=home)


@pytest.fixture(scope="module")
def ran(command_line: CommandLine, tmp_path_factory: pytest.TempPathFactory, home: dict[str, str]) -> Path:
    """The folder of a run on cpu and openvino, and of what other commands read."""
    folder = tmp_path_factory.mktemp("quiet")
    run = _run(command_line, folder, GENERATE, RUN, home)
    assert run.code == 1, run.err  # git
    assert "failed" in run.err
    assert run.network == []
    for words in BEFORE:
        made = _run(command_line, folder, INVENTORY, words, home)
        assert made.code == 0, made.err
        assert made.network == []
    Path(FAULT.format(folder)).write_text("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    return folder


@pytest.mark.parametrize(
    ("command", "words"),
    [
        pytest.param(command, words, marks=[pytest.mark.extended] if words.startswith(TAKES_LONG) else [])
        for command, asked in ASKED.items()
        for words in asked
    ],
)
def test_a_command_reaches_nothing(
    command: str, words: str, ran: Path, command_line: CommandLine, home: dict[str, str]
) -> None:
    if "--web-page" in words and (why := get_backend("webgpu").missing() or missing_packages()):
        pytest.skip(f"target webgpu isn't here: {why}")
    if "--distributed" in words and importlib.util.find_spec("ray") is None:
        pytest.skip("Ray isn't installed: make setup-ray")
    done = _run(command_line, ran, command, words, home)
    assert done.code == ASKED[command][words], done.out[-2000:] + done.err
    assert done.network == []


def lines(command: str, text: str) -> list[list[str]]:
    """The lines of the program that a line of `ASKED` becomes."""
    if command == PROGRAM:
        return [text.split()]
    if command == INVENTORY:
        return [text.split() if text.startswith("evidence") else ["devices", *text.split()]]
    return commands_of(text.split(), *((GENERATION, "generate") if command == GENERATE else (REPORTER, "report")))


def test_no_option_and_no_command_is_forgotten() -> None:
    asked = [line for command, texts in ASKED.items() for text in texts for line in lines(command, text)]
    asked += [line for text in BEFORE for line in lines(INVENTORY, text)] + lines(GENERATE, RUN)
    there = {words: one for words, one in commands() if not isinstance(one, click.Group)}
    used = {words for words in there for line in asked if tuple(line[: len(words)]) == words}
    assert {" ".join(words) for words in there.keys() - used} == OTHERS
    params = [option for one in there.values() for option in one.params if isinstance(option, click.Option)]
    options = {name for one in params for name in (*one.opts, *one.secondary_opts) if name.startswith("--")}
    named = {word.partition("=")[0] for line in asked for word in line if word.startswith("--")}
    assert options - named - set(HOW.split()) - set(ELSEWHERE.split()) == set()
    assert named - options == set()


PLANTED = (
    "import urllib.request; urllib.request.urlopen('http://192.0.2.1/')",
    "import ctypes, socket, struct; libc = ctypes.CDLL(None); "
    "name = struct.pack('@H', 2) + bytes([0, 80, 192, 0, 2, 1]) + bytes(8); "
    "raise SystemExit(libc.connect(libc.socket(2, 1, 0), name, 16) != 0)",
)
"""Code that connects: by Python, and by the C library alone."""


def test_a_command_that_does_reach_out_is_caught(command_line: CommandLine, tmp_path: Path, network) -> None:
    """As a module of a user's that a run imports in its child."""
    for number, code in enumerate(PLANTED):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "mine.py").write_text(
            f"import torch\n\n\ndef factory():\n    exec({code!r})\n    return torch.nn.Linear(4, 4)\n",
            encoding="utf-8",
        )
        paths = {"PYTHONPATH": f"{folder}:{REPOSITORY}"}
        done = command_line.run(folder, "--model", "mine:factory", "--device", "cpu", "--run", env=paths)
        assert done.code != 0
        assert {one.address for one in done.network} == {"192.0.2.1 port 80"}
    assert network.take()


def test_what_a_library_sends_by_itself_is_caught_and_not_sent_after_the_product_was_imported(
    command_line: CommandLine, tmp_path: Path, home: dict[str, str], network
) -> None:
    """OpenVINO sends without the product, so that silence under our commands means something."""
    done = command_line.python(tmp_path / "without", "-c", "import openvino", env=home)
    assert done.code == 0, done.err
    assert {one.address.partition(" at ")[0] for one in done.network} == {"look-up"}
    assert network.take()
    code = "import hardware, openvino, nncf, optimum.intel, onnxruntime, transformers, duckdb"
    done = command_line.python(tmp_path / "with", "-c", code, env=home)
    assert done.code == 0, done.err
    assert done.network == []
