"""Variables of the environment with whatever in them: a known word is taken, anything else refused in a line."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hostile import Hostile
from readers import check_terminal
from watched import Sentinel, Surroundings, invoked, refused_or

from hardware.applied_fix import VARIABLE as CHANGES
from hardware.applied_fix import current_changes, refuse_changes
from hardware.backends.simulated import SimulatedBackend
from hardware.evidence.revisions import checker_versions
from hardware.evidence.versions import FAULT_VARIABLE
from hardware.files import CACHE_VARIABLE, cache_folder
from hardware.target import Target
from hardware.testing.checkpoints import CHECKPOINTS_VARIABLE, checkpoint_folder, named_folders
from hardware.testing.graph_files import graph_file
from hardware.testing.pytest_environment import DEVICES_VARIABLE, requested_device
from hardware.testing.schedule import threads_for
from hardware.workers import environment_of, environment_versions
from reports.pseudonyms import KEY_VARIABLE, Pseudonyms

CELL = "mine/fill-mask/cpu/float32"


def text_of(hostile: Hostile) -> str:
    """What a variable can hold: no NUL; bytes that are no UTF-8 come as surrogates."""
    text = hostile.name().replace("\0", "")
    return os.fsdecode(os.fsencode(text.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")))[:50_000]


READERS: dict[str, Callable[[], Any]] = {
    CHANGES: lambda: (current_changes(), refuse_changes()),
    DEVICES_VARIABLE: lambda: requested_device(Target(name="cpu")),
    CHECKPOINTS_VARIABLE: lambda: (named_folders(), checkpoint_folder(CELL, "0" * 64)),
    f"{CHECKPOINTS_VARIABLE} ": lambda: graph_file(CELL, "0" * 64),
    "OMP_NUM_THREADS": lambda: threads_for(4, 8, os.environ["OMP_NUM_THREADS"]),
    FAULT_VARIABLE: lambda: SimulatedBackend(Target(name="simulated")),
    KEY_VARIABLE: lambda: Pseudonyms(["very-secret-model"]).text("very-secret-model"),
    "HWCOMPAT_QNN_PYTHON": lambda: (environment_of("qnn"), environment_versions()),
    "HWCOMPAT_WEB_PYTHON": lambda: environment_of("webgpu"),
    "HWCOMPAT_CHROMIUM": lambda: environment_of("webgpu"),
    "QNN_SDK_ROOT": lambda: checker_versions(),
}


@pytest.mark.fuzz(200)
def test_a_variable_is_understood_or_refused(
    fuzz: Any, place: Path, sentinel: Sentinel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    around = Surroundings(place.parent)

    for hostile in fuzz:
        name = hostile.choice(sorted(READERS))
        with monkeypatch.context() as patch:
            patch.setenv(name.strip(), text_of(hostile))
            refused_or(READERS[name])
    around.check()


@pytest.mark.fuzz(60)
def test_a_cache_is_a_folder_or_refused(fuzz: Any, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "file").write_text("kept")
    (place / "loop").symlink_to("loop")
    monkeypatch.chdir(place)
    for hostile in fuzz:
        named = hostile.choice(("file", "file/below", "/proc/x", "/dev/null/x", "a" * 300, "new", "\udcff", "loop/x"))
        with monkeypatch.context() as patch:
            patch.setenv(CACHE_VARIABLE, named)
            found = refused_or(cache_folder, "recipes")
        assert found is None or found.is_dir()
    assert (place / "file").read_text() == "kept"


@pytest.mark.fuzz(12)
def test_the_door_says_what_a_variable_is_wrong_about(
    fuzz: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    names = ("HWCOMPAT_DEVICE", "HWCOMPAT_PRECISION", "HWCOMPAT_TIMEOUT", "LOGLEVEL", "COLUMNS", CHANGES, "NO_COLOR")

    for hostile in fuzz:
        with monkeypatch.context() as patch:
            patch.setenv(hostile.choice(names), text_of(hostile))
            if os.environ.get("LOGLEVEL", "").upper() == "DEBUG":
                continue
            _, out, _ = invoked("generate", "--model", "bert", "--device", "cpu", "--list")
        check_terminal(out)


def test_nothing_is_imported_from_the_folder_that_a_command_is_given_in(
    place: Path, sentinel: Sentinel, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hardware.basic_detection import _read_torch
    from hwcompat.plugins.triage.remedies.try_remedies import child_environment, run_child

    monkeypatch.chdir(place)
    for name in ("torch", "numpy", "json", "transformers", "hardware", "generators", "click", "jinja2"):
        (place / f"{name}.py").write_text(f"open({str(sentinel.path)!r}, 'w').close()\n")
    assert _read_torch()
    cell = "nothing/x/cpu/float32"
    task = {"cell": cell, "asked": cell, "evidence": "", "folder": str(place), "command": "", "timeout_s": 1.0}
    run_child(task, child_environment(os.environ, {}), place / "log", 60.0)
    sentinel.check()
    said = (place / "log").read_text()
    assert "problem: " in said, said


def test_a_library_that_is_imported_from_there_would_be_seen(place: Path, sentinel: Sentinel) -> None:
    import subprocess
    import sys

    (place / "json.py").write_text(f"open({str(sentinel.path)!r}, 'w').close()\n")
    subprocess.run([sys.executable, "-c", "import json"], cwd=place, check=True)
    assert sentinel.path.exists()
    sentinel.path.unlink()
