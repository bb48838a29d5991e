"""What is printed can be typed where the user is: in a checkout, in an installed package, from a script."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from hardware import command_names
from hardware.command_names import SCRIPTS, as_runnable, command_of, is_installed, own_command, program_of

ROOT = Path(__file__).parents[2]
TEXT = (
    "python run_test_generation.py --run; hardware_compatibility_reporter.py --merge; python -m hardware list; "
    "pip install -r requirements.txt"
)
DATA = (
    *(ROOT / "reports").rglob("*.toml"),
    ROOT / "hardware" / "doctor" / "remedies.toml",
    ROOT / "hardware" / "workers" / "environments.toml",
    ROOT / "hwcompat" / "plugins" / "triage" / "remedies" / "remedies.toml",
)


@pytest.fixture(autouse=True)
def fresh():
    is_installed.cache_clear()
    command_names._script.cache_clear()
    yield
    is_installed.cache_clear()
    command_names._script.cache_clear()


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder where the product was installed; returns that of the scripts, which is on the search path."""
    site, scripts = tmp_path / "site", tmp_path / "bin"
    site.mkdir()
    scripts.mkdir()
    (site / "run_test_generation.py").touch()
    for name in SCRIPTS.values():
        (scripts / name).touch(mode=0o755)
    monkeypatch.setattr(command_names, "_ROOT", site)
    monkeypatch.setattr(command_names, "_scripts_folder", lambda: scripts)
    monkeypatch.setattr(sys, "argv", ["-c"])
    monkeypatch.setenv("PATH", str(scripts))
    return scripts


def test_a_checkout_keeps_its_texts():
    assert not is_installed()
    assert as_runnable(TEXT) == TEXT
    assert program_of("run_test_generation") == "run_test_generation.py"
    assert program_of("hardware") == "python -m hardware"
    assert own_command("run_test_generation", ["--model", "a b"]) == "python run_test_generation.py --model 'a b'"


def test_installed_texts_name_scripts_and_extras(installed: Path):
    assert as_runnable(TEXT) == (
        "hwcompat --run; hwcompat-report --merge; hwcompat-hardware list; pip install 'hwcompat[openvino-only]'"
    )
    assert as_runnable("pip install -r requirements-onnx.txt, make setup-qnn or make setup-xla") == (
        "pip install 'hwcompat[onnx]', pip install 'hwcompat[qnn]' or pip install 'hwcompat[tpu]'"
    )
    assert "HWCOMPAT_WEB_PYTHON" in as_runnable("make setup-web")


def test_a_module_that_is_no_door_stays_as_it_is(installed: Path):
    assert (
        as_runnable("python -m hwcompat.plugins.stress.stress_child")
        == "python -m hwcompat.plugins.stress.stress_child"
    )


def test_a_script_that_no_shell_finds_is_named_by_its_place(installed: Path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.chdir(installed.parent)
    assert command_of("run_test_generation") == "bin/hwcompat"
    command_names._script.cache_clear()
    (installed / "deeper").mkdir()
    monkeypatch.chdir(installed / "deeper")
    monkeypatch.setenv("HOME", str(installed.parent))
    assert command_of("run_test_generation") == "~/bin/hwcompat"  # evidence and pages don't name whose home it is


def test_without_scripts_the_module_is_started(installed: Path, monkeypatch):
    for path in installed.iterdir():
        path.unlink()
    monkeypatch.setattr(command_names, "interpreter", lambda: "python3.11")
    assert command_of("run_test_generation") == "python3.11 -m run_test_generation"
    assert program_of("run_test_generation") == "python -m run_test_generation"


def test_whoever_started_a_script_is_told_of_scripts(installed: Path, monkeypatch):
    """As of an editable installation, whose files are those of the checkout."""
    monkeypatch.setattr(command_names, "_ROOT", ROOT)
    monkeypatch.setattr(sys, "argv", [str(installed / "hwcompat")])
    assert not is_installed()
    assert as_runnable("python run_test_generation.py --run, make setup-qnn") == "hwcompat --run, make setup-qnn"
    assert program_of("run_test_generation") == "hwcompat"
    assert own_command("run_test_generation", ["--run"]) == "hwcompat --run"


RIVALS = ("rival-warpt", "rival-torchbridge")


def test_scripts_and_extras_are_those_of_the_project():
    told = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    scripts = told["project"]["scripts"]
    assert {scripts[name].partition(":")[0].removesuffix(".__main__"): name for name in scripts} == SCRIPTS
    extras = told["tool"]["hwcompat"]["extras"]
    for name in ("", *(path.stem.partition("-")[2] for path in ROOT.glob("requirements-*.txt"))):
        if name not in (*("dev", "bundle", "audit", "package", "web"), *("docs", "s3-server", "profiles"), *RIVALS):
            assert command_names._extra(name).strip("'").removeprefix("hwcompat[").removesuffix("]") in extras


@pytest.mark.parametrize("path", DATA, ids=lambda path: path.name)
def test_data_whose_commands_were_replaced_can_still_be_read(installed: Path, path: Path):
    text = as_runnable(path.read_text(encoding="utf-8"))
    tomllib.loads(text)
    assert "install -r requirements" not in text
    assert "make setup-" not in text.replace(command_names._WEB, "")
    assert "run_test_generation.py" not in text
