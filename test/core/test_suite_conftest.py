"""The conftest.py beside generated suites: what it says where our package isn't the one that is found, and that
another one in its place is seen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from generators.suites.suite_files import prepare_folder, suite_conftest
from hardware.evidence.record import EDITED, CheckLine
from hardware.evidence.store import read_folder
from hardware.evidence.writer import EvidenceWriter
from hardware.testing import measurement
from hardware.testing.foreign_plugins import GENERATED, NAME, digest_of_text, is_harmless, strange_conftests
from hardware.testing.pytest_plugin import EvidenceRecorder
from hardware.testing.suite_file import stamp

ROOT = Path(__file__).parents[2]


def plain_pytest(folder: Path, *, python_path: str = "") -> subprocess.CompletedProcess[str]:
    """`python -m pytest` in somebody's repository, whose top folder Python looks into first."""
    prepare_folder(folder / "tests" / "hwcompat")
    (folder / "tests" / "hwcompat" / "test_one.py").write_text("def test_one():\n    assert True\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "tests", "-q", "-p", "no:cacheprovider"],
        cwd=folder,
        env={**{k: v for k, v in os.environ.items() if k != "PYTHONPATH"}, "PYTHONPATH": python_path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("own_init", [True, False])
def test_another_package_called_hardware_is_named_and_the_bundle_offered(tmp_path, own_init):
    (tmp_path / "hardware").mkdir()
    (tmp_path / "hardware" / ("__init__.py" if own_init else "motor.py")).write_text("SPEED = 3\n")
    done = plain_pytest(tmp_path, python_path=str(ROOT))
    said = " ".join((done.stdout + done.stderr).split())
    if own_init:
        assert done.returncode == 2, said
        assert f"another one is in the way: {tmp_path / 'hardware'}" in said
        assert "--bundle suite.zip" in said
        assert "ModuleNotFoundError" not in said
    else:  # a folder without __init__.py gives way to a real package
        assert done.returncode == 0, said


def test_no_package_called_hardware_is_said_so(tmp_path):
    done = plain_pytest(tmp_path)
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 2, said
    assert "none is found" in said


def test_a_broken_installation_of_ours_keeps_its_own_error(tmp_path):
    (tmp_path / "pytest_needs.py").write_text("")
    (tmp_path / "hardware").mkdir()
    (tmp_path / "hardware" / "__init__.py").write_text("import a_library_that_is_missing\n")
    done = plain_pytest(tmp_path)
    assert done.returncode != 0
    assert "a_library_that_is_missing" in done.stdout + done.stderr


SUITE = stamp('CELL = "bert/fill-mask/cpu/float32"\n\n\ndef test_builds():\n    pass')
CHEATS = """
from hardware.testing.model_test import ModelTest
from hardware.testing.pytest_plugin import pytest_configure

ModelTest.error = ModelTest.recorded_error = lambda *_: 1e-9
"""


HARMLESS = """
import os
from pathlib import Path

import pytest

DATA = "data"


@pytest.fixture(scope="session")
def data_folder():
    return Path(os.getcwd()) / DATA
"""


@pytest.mark.parametrize(
    "text",
    [
        "import evil",
        "def pytest_runtest_call(item): pass",
        "import pytest\n@pytest.fixture(autouse=True)\ndef x(): pass",
        "import pytest\n@pytest.fixture(name='case')\ndef x(): pass",
        "def tmp_path(): pass",
        "print(1)",
        "import os\nos.environ['X'] = '1'",
        "import pytest\npytest.fail = print",
        "def f(x=g()): pass",
        "class A(metaclass=B): pass",
        "@evil\ndef x(): pass",
        "pytest_plugins = ['x']",
        "from os import path as pytest_x",
        "from . import helpers",
        "for pytest_plugins in [['x']]: pass",
        "x = [f(y) for y in z]",
        "broken(",
        "x = lambda a=f(): 0",
        "def f() -> g(): pass",
        "def __getattr__(name): pass",
        "def fixture(f): pass",
        "from os import *",
        "match h:\n    case pytest_x:\n        pass",
    ],
)
def test_a_conftest_that_could_change_what_a_check_means_is_not_harmless(text):
    assert is_harmless(HARMLESS)
    assert not is_harmless(text)


def test_the_text_that_is_written_is_known_where_suites_run():
    """After a change of the template its hash goes before the others, which stay."""
    assert digest_of_text(suite_conftest()) in GENERATED


def line_of_pytest(folder: Path, *words: str) -> tuple[CheckLine, str]:
    """The one line of evidence that plain pytest leaves in a folder, and what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HWCOMPAT_EVIDENCE": str(folder / "evidence")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    (line,) = read_folder(folder / "evidence").checks
    return line, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("others", "options", "marked"),
    [
        ({}, [], False),
        ({"tests/hwcompat/conftest.py": CHEATS}, [], True),
        ({"tests/hwcompat/conftest.py": CHEATS}, ["--import-mode=importlib"], True),
        ({"tests/hwcompat/conftest.py": suite_conftest() + "\n"}, [], True),
        ({"conftest.py": HARMLESS}, [], False),
        ({"conftest.py": HARMLESS.replace("(scope", "(autouse=True, scope")}, [], True),
        ({"tests/hwcompat/conftest.py": suite_conftest().replace("\n", "\r\n")}, [], False),
        ({"tests/conftest.py": CHEATS}, [], True),
        ({"tests/conftest.py": CHEATS}, ["--import-mode=importlib"], True),
        ({"conftest.py": CHEATS, "tests/later/conftest.py": ""}, [], True),
        ({"conftest.py": suite_conftest()}, [], False),
        ({"tests/later/conftest.py": CHEATS}, [], True),
        ({"tests/later/conftest.py": HARMLESS}, [], False),
        ({"conftest.py": HARMLESS, "pytest.ini": "[pytest]\nusefixtures = data_folder\n"}, [], True),
        ({"my_conftest.py": CHEATS}, ["-p", "my_conftest"], True),
        ({"tests/hwcompat/conftest.py": CHEATS}, ["--noconftest", "-p", "hardware.testing.pytest_plugin"], False),
        ({"cheats.py": CHEATS}, ["-p", "cheats"], True),
        ({"cheats.py": CHEATS, "conftest.py": suite_conftest()}, ["-o", "addopts=-p cheats"], True),
        ({"cheats.py": CHEATS, "pytest.ini": "[pytest]\naddopts = -p cheats\n"}, [], True),
        ({"cheats.py": CHEATS}, ["-p", "no:cheats"], False),
    ],
)
def test_what_ran_beside_another_conftest_or_plug_in_is_marked_as_edited(tmp_path, others, options, marked):
    folder = tmp_path / "tests" / "hwcompat"
    prepare_folder(folder)
    (folder / "test_bert.py").write_text(SUITE)
    for name, text in others.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(text.encode())
    later = (
        tmp_path / "tests" / "later"
    )  # collected after the suite: its conftest.py takes the place of others in sys.modules
    later.mkdir(exist_ok=True)
    (later / "test_later.py").write_text("def test_later():\n    assert True\n")
    line, said = line_of_pytest(tmp_path, "tests", f"--rootdir={tmp_path}", *options)
    assert (EDITED in line.conditions) is marked, said


@pytest.mark.parametrize(("conftest", "marked"), [(CHEATS, True), (HARMLESS, False)])
def test_a_suite_that_cant_be_imported_beside_another_conftest_is_marked_as_edited(tmp_path, conftest, marked):
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "test_bert.py").write_text(
        stamp(
            'import a_module_that_is_missing\n\nCELL = "bert/fill-mask/cpu/float32"\n\n\ndef test_builds():\n    pass'
        )
    )
    line, said = line_of_pytest(tmp_path, "-p", "hardware.testing.pytest_plugin", ".")
    assert (line.error_type, EDITED in line.conditions) == ("missing_dependency", marked), said


def test_which_conftests_were_loaded_is_told_nearest_first_and_the_generated_one_is_none(tmp_path, monkeypatch):
    suite = tmp_path / "tests" / "hwcompat" / "test_one.py"
    prepare_folder(suite.parent)
    near, far = suite.parent / "conftest.py", tmp_path / "conftest.py"
    far.write_text("x = 1\n")
    (tmp_path / "tests" / "conftest.py").write_text("never = 'loaded'\n")
    loaded = [module for module in sys.modules.values() if not str(getattr(module, "__file__", "")).endswith(NAME)]
    others = [name for name, module in sys.modules.items() if module not in loaded]
    for name in others:
        monkeypatch.delitem(sys.modules, name)
    far.write_text("print('x')\n")
    assert strange_conftests(suite) == ()
    for path in (near, far):
        monkeypatch.setitem(sys.modules, f"conftest_of_{path.parent.name}", SimpleNamespace(__file__=str(path)))
    assert strange_conftests(suite) == (far,)
    near.write_text(near.read_text() + "print(1)\n")
    assert strange_conftests(suite) == (near, far)
    near.write_bytes(b"\xff\xfe")
    assert strange_conftests(suite) == (near, far)


@pytest.mark.parametrize(
    ("isolated", "edited", "kept"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_only_isolated_suites_as_they_were_generated_keep_references(tmp_path, monkeypatch, isolated, edited, kept):
    monkeypatch.setattr(measurement, "keeps_references", True)
    suite = tmp_path / "test_bert.py"
    suite.write_text(SUITE + "# more\n" * edited)
    recorder = EvidenceRecorder(EvidenceWriter(tmp_path, "r1") if isolated else None)
    recorder.pytest_runtest_setup(SimpleNamespace(path=suite, name="test_builds"))
    assert measurement.keeps_references is kept
