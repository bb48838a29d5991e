"""The conftest.py files beside suites: which of them could change what a check means."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from generators.suites.suite_files import prepare_folder, suite_conftest
from hardware.testing import pytest_plugin
from hardware.testing.foreign_plugins import (
    GENERATED,
    NAME,
    digest_of_text,
    is_harmless,
    strange_conftests,
    unknown_plugins,
)

HARMLESS = """
import os
from pathlib import Path

import pytest

DATA = "data"


@pytest.fixture(scope="session")
def data_folder():
    return Path(os.getcwd()) / DATA
"""
STRANGE = [
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
]


def test_a_conftest_that_could_change_what_a_check_means_is_not_harmless() -> None:
    assert is_harmless(HARMLESS)
    assert [text for text in STRANGE if is_harmless(text)] == []


def test_plugins_that_are_neither_pytests_nor_ours_are_unknown() -> None:
    manager = pytest.PytestPluginManager()
    manager.register(pytest_plugin)
    assert unknown_plugins(manager) == ()
    manager.register(ModuleType("reruns"))
    manager.register(ModuleType("hardware.testing_but_another"))
    assert unknown_plugins(manager) == ("hardware.testing_but_another", "reruns")


def test_the_text_that_is_written_is_known_where_suites_run() -> None:
    """After a change of the template its hash goes before the others, which stay."""
    assert digest_of_text(suite_conftest()) in GENERATED


def test_strange_conftests_are_those_that_were_loaded_nearest_first(tmp_path, monkeypatch) -> None:
    suite = tmp_path / "tests" / "hwcompat" / "test_one.py"
    prepare_folder(suite.parent)
    near, far = suite.parent / NAME, tmp_path / NAME
    far.write_text("print('x')\n")
    (tmp_path / "tests" / NAME).write_text("never = 'loaded'\n")
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).endswith(NAME):
            monkeypatch.delitem(sys.modules, name)
    assert strange_conftests(suite) == ()
    for path in (near, far):
        monkeypatch.setitem(sys.modules, f"conftest_of_{path.parent.name}", SimpleNamespace(__file__=str(path)))
    assert strange_conftests(suite) == (far,)
    far.write_text(HARMLESS)
    assert strange_conftests(suite) == ()
    for data in (near.read_bytes() + b"print(1)\n", b"\xff\xfe"):
        near.write_bytes(data)
        assert strange_conftests(suite) == (near,)
    elsewhere = tmp_path / "elsewhere" / NAME
    elsewhere.parent.mkdir()
    elsewhere.write_text("print('x')\n")
    monkeypatch.setitem(sys.modules, "conftest_elsewhere", SimpleNamespace(__file__=str(elsewhere)))
    assert strange_conftests(suite) == (near, elsewhere)
