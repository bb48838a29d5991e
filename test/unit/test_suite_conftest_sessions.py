"""Plain pytest on generated suites: which package and which plugins it found, and what that makes of the results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from generators.suites.suite_files import prepare_folder, suite_conftest
from hardware.evidence.record import EDITED
from hardware.evidence.store import read_folder
from hardware.testing.suite_file import stamp

pytestmark = pytest.mark.forks

ROOT = Path(__file__).parents[2]
SUITE = stamp('CELL = "bert/fill-mask/cpu/float32"\n\n\ndef test_builds():\n    pass')
NOT_IMPORTED = stamp(
    'import a_module_that_is_missing\n\nCELL = "bert/fill-mask/cpu/float32"\n\n\ndef test_builds():\n    pass'
)
PLUGIN = ["-p", "hwcompat.hardware.testing.pytest_plugin"]
CHEATS = """
from hardware.testing.model_test import ModelTest
from hardware.testing.pytest_plugin import pytest_configure

ModelTest.error = ModelTest.recorded_error = lambda *_: 1e-9
"""
HARMLESS = 'import pytest\n\n\n@pytest.fixture(scope="session")\ndef data_folder():\n    return "data"\n'
OWN = "tests/hwcompat/conftest.py"
SESSIONS: list[tuple[Mapping[str, str], Sequence[str], bool]] = [
    ({}, [], False),
    ({OWN: CHEATS}, [], True),
    ({OWN: CHEATS}, ["--import-mode=importlib"], True),
    ({OWN: suite_conftest() + "\n"}, [], True),
    ({OWN: suite_conftest().replace("\n", "\r\n")}, [], False),
    ({OWN: CHEATS}, ["--noconftest", *PLUGIN], False),
    ({"conftest.py": HARMLESS}, [], False),
    ({"conftest.py": HARMLESS.replace("(scope", "(autouse=True, scope")}, [], True),
    ({"conftest.py": HARMLESS, "pytest.ini": "[pytest]\nusefixtures = data_folder\n"}, [], True),
    ({"conftest.py": suite_conftest()}, [], False),
    ({"conftest.py": CHEATS, "tests/later/conftest.py": ""}, [], True),
    ({"tests/conftest.py": CHEATS}, [], True),
    ({"tests/conftest.py": CHEATS}, ["--import-mode=importlib"], True),
    ({"tests/later/conftest.py": CHEATS}, [], True),
    ({"tests/later/conftest.py": HARMLESS}, [], False),
    ({"my_conftest.py": CHEATS}, ["-p", "my_conftest"], True),
    ({"cheats.py": CHEATS}, ["-p", "cheats"], True),
    ({"cheats.py": CHEATS}, ["-p", "no:cheats"], False),
    ({"cheats.py": CHEATS, "conftest.py": suite_conftest()}, ["-o", "addopts=-p cheats"], True),
    ({"cheats.py": CHEATS, "pytest.ini": "[pytest]\naddopts = -p cheats\n"}, [], True),
    ({"conftest.py": CHEATS, "tests/hwcompat/test_bert.py": NOT_IMPORTED}, PLUGIN, True),
    ({"conftest.py": HARMLESS, "tests/hwcompat/test_bert.py": NOT_IMPORTED}, PLUGIN, False),
]
DRIVER = """
import json, os, sys
import hypothesis, pytest
from hardware.detection import detect
from hardware.evidence.versions import versions_of
from hardware.testing import pytest_plugin

versions_of(detect())  # once for all sessions, like importing plugins
pytest.main(["--version"])
for folder, options in json.loads(sys.argv[1]):
    if (child := os.fork()) == 0:
        os.chdir(folder)
        os.environ["HWCOMPAT_EVIDENCE"] = os.path.join(folder, "evidence")
        sys.path.insert(0, folder)
        os._exit(pytest.main(["-q", "-p", "no:cacheprovider", *options]))
    os.waitpid(child, 0)
"""


def test_results_beside_another_conftest_or_plugin_are_marked_as_edited(tmp_path: Path) -> None:
    """Each session has a process of its own, forked from one that imported pytest and our plugin."""
    asked = []
    for number, (files, options, _) in enumerate(SESSIONS):
        folder = tmp_path / str(number)
        prepare_folder(folder / "tests" / "hwcompat")
        later = "def test_later():\n    assert True\n"  # its conftest.py takes the place of others in sys.modules
        suites = {"tests/hwcompat/test_bert.py": SUITE, "tests/later/test_later.py": later}
        for name, text in (suites | dict(files)).items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(text.encode())
        asked.append((str(folder), ["tests", f"--rootdir={folder}", *options]))
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, json.dumps(asked)], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    wrong = []
    for (folder, _), (files, options, marked) in zip(asked, SESSIONS, strict=True):
        lines = read_folder(Path(folder) / "evidence").checks
        if [EDITED in line.conditions for line in lines] != [marked]:
            wrong.append((sorted(files), options, lines))
        elif NOT_IMPORTED in files.values():
            assert [line.error_type for line in lines] == ["missing_dependency"]
    assert wrong == [], done.stdout + done.stderr


@pytest.mark.parametrize(
    ("package", "python_path", "code", "messages"),
    [
        ("__init__.py", True, 2, ["Python found another package: {folder}/hwcompat", "hwcompat bundle suite.zip"]),
        ("motor.py", True, 0, []),  # a folder without __init__.py gives way to a real package
        ("", False, 2, ["it wasn't found"]),
    ],
)
def test_another_package_called_hwcompat_is_named_and_the_bundle_offered(
    tmp_path: Path, package: str, python_path: bool, code: int, messages: Sequence[str]
) -> None:
    if package:
        (tmp_path / "hwcompat").mkdir()
        (tmp_path / "hwcompat" / package).write_text("SPEED = 3\n")
    done = plain_pytest(tmp_path, str(ROOT) if python_path else "")
    shown = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == code, shown
    assert [one for one in messages if one.format(folder=tmp_path) not in shown] == []
    assert "ModuleNotFoundError" not in shown


def test_a_broken_installation_of_ours_keeps_its_own_error(tmp_path: Path) -> None:
    (tmp_path / "hwcompat").mkdir()
    (tmp_path / "hwcompat" / "__init__.py").write_text("import a_library_that_is_missing\n")
    done = plain_pytest(tmp_path, "")
    assert done.returncode != 0
    assert "a_library_that_is_missing" in done.stdout + done.stderr


def plain_pytest(folder: Path, python_path: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m pytest` in a repository, whose top folder Python looks into first."""
    prepare_folder(folder / "tests" / "hwcompat")
    (folder / "tests" / "hwcompat" / "test_one.py").write_text("def test_one():\n    assert True\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "tests", "-q", "-p", "no:cacheprovider"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": python_path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
