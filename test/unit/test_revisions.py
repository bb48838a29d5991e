"""What a fingerprint counts, which parts there are, and how a developer declares that one of them changed."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hardware.backends.factory import built_in_targets, class_of
from hardware.evidence.revisions import (
    checking_files,
    fingerprint_of,
    load_revisions,
    part_fingerprints,
    parts_for,
)
from hardware.target import Target
from hardware.testing.checks import all_checks

ROOT = Path(__file__).parents[2]
COVERED = (
    *("backends/", "export/", "model/", "testing/", "workers/"),
    *("changes.py", "compare.py", "output_masks.py", "known_answer.py"),
)
"""The code below `hardware` that decides what a check says."""

CODE = '''"""What this module does."""

LIMIT = 1e-5
"""Why it is so."""

TEXT = """kept # not a comment

and this too"""


def error(got, want):  # relative
    """How far they are apart."""
    names = (
        "a",  # a string that stands alone on its line is a value here
        "b",
    )
    return max(got - want), f"{names}#"
'''


def moved(before: str, after: str) -> bool:
    assert before != after
    return fingerprint_of({"a.py": before.encode()}) != fingerprint_of({"a.py": after.encode()})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  # relative", ""),
        ("# relative", "# relative to the scale"),
        ('"""What this module does."""\n', ""),
        ("What this module does.", "What it does # now.\n\nIn more words."),
        ("Why it is so.", "Another reason."),
        ("    return max", "\n\n    return max"),
        ("LIMIT = 1e-5\n", "LIMIT = 1e-5   \n\n"),
        ("  # a string that stands alone on its line is a value here", ""),
        ("\n", "\r\n"),
    ],
)
def test_comments_docstrings_and_blank_lines_move_no_fingerprint(old: str, new: str) -> None:
    assert not moved(CODE, CODE.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("1e-5", "1e-4"),
        ("got - want", "want - got"),
        ("kept # not a comment", "kept"),
        ("comment\n\nand", "comment\nand"),
        ('        "a",', '        "c",'),
        ('{names}#"', '{names}"'),
        ("    return max", "    if got is None:\n        return max"),
        ("    names =", "    f'{print(got)}'\n    names ="),
    ],
)
def test_a_change_of_the_code_moves_the_fingerprint(old: str, new: str) -> None:
    assert moved(CODE, CODE.replace(old, new))


@pytest.mark.parametrize("name", ["a.toml", "a.py.j2"])
def test_comments_of_tables_and_templates_do_not_count_and_the_rest_does(name: str) -> None:
    text = {"a.toml": "limit = 2 # why\n", "a.py.j2": "{# why #}assert error <= 2\n"}[name]
    same, other = text.replace("why", "because"), text.replace("2", "3")
    first, second, third = (fingerprint_of({name: one.encode()}) for one in (text, same, other))
    assert first == second
    assert first != third


def test_every_file_of_the_checking_code_belongs_to_a_part_and_every_pattern_has_files() -> None:
    files, known = checking_files(), load_revisions()
    checking = [
        name
        for name in files
        if name.removeprefix("hardware/").startswith(COVERED)
        or name == "hardware/privateuse1.py"
        or (name.startswith("templates/") and "/repro/" not in name)
        or name == "generators/suites/render.py"
    ]
    assert len(checking) > 150
    assert [one for one in checking if not any(p.holds(one) for p in known.parts)] == []
    patterns = [pattern.removeprefix("!") for part in known.parts for pattern in part.files]
    without = [one for one in patterns if not any(Path(name).match(one) for name in files)]
    assert [one for one in without if not one.endswith("/*")] == []


def test_a_part_lies_in_the_package_that_a_bundle_carries_or_outside_of_it() -> None:
    files = checking_files()
    for part in load_revisions().parts:
        assert len({name.startswith("hardware/") for name in files if part.holds(name)}) == 1, part.name


def test_there_is_a_part_for_each_check_and_each_target() -> None:
    names = {part.name for part in load_revisions().parts}
    assert {f"check {one.name}" for one in all_checks()} == {one for one in names if one.startswith("check ")}
    assert {f"backend {one}" for one in built_in_targets()} == {one for one in names if one.startswith("backend ")}


@pytest.mark.parametrize("target", built_in_targets())
def test_results_rest_on_all_code_that_their_target_imports(target: str) -> None:
    parts = parts_for(Target(name=target), exports=class_of(Target(name=target)).EXPORTS)
    own = [part for part in load_revisions().parts if part.name in parts]
    folders = ("hardware/backends/", "hardware/export/", "hardware/workers/")
    needed = [name for name in reached(f"hardware/backends/{target}.py") if name.startswith(folders)]
    assert f"hardware/backends/{target}.py" in needed
    assert [name for name in needed if not any(part.holds(name) for part in own)] == []


def reached(start: str) -> set[str]:
    """The files of the package that a file imports, or those do, wherever the import stands."""
    found: set[str] = set()
    left = [Path(start)]
    while left:
        path = left.pop()
        if path.as_posix() not in found:
            found.add(path.as_posix())
            left += imported(path)
    return found


def imported(path: Path) -> Iterator[Path]:
    tree = ast.parse((ROOT / path).read_bytes())
    typing = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)]
    skipped = {id(inner) for node in typing for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level and id(node) not in skipped:
            base = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            places = [base.with_suffix(".py"), base / "__init__.py", *(base / f"{one.name}.py" for one in node.names)]
            yield from (one for one in places if (ROOT / one).is_file())


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what fingerprints are made of, in which a command runs."""
    leave = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "hardware", tmp_path / "hardware", ignore=leave)
    shutil.copytree(ROOT / "templates", tmp_path / "templates")
    shutil.copytree(ROOT / "generators" / "suites", tmp_path / "generators" / "suites", ignore=leave)
    done = declare(tmp_path, "same", "all", "--reason", "the copy", "--verified", "nothing")
    assert done.returncode == 0, done.stderr
    return tmp_path


def declare(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hardware.evidence.revisions", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def edit(folder: Path, name: str, old: str, new: str) -> None:
    path = folder / name
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_a_changed_comparison_moves_its_part_alone(checkout: Path) -> None:
    before = dict(part_fingerprints(checkout))
    edit(checkout, "hardware/compare.py", "_SMALLEST_SCALE = 1e-12", "_SMALLEST_SCALE = 1e-3")
    part_fingerprints.cache_clear()
    after = part_fingerprints(checkout)
    assert {name for name in before if before[name] != after[name]} == {"runner"}


def test_lint_fails_on_an_undeclared_change_until_somebody_decides(checkout: Path) -> None:
    assert declare(checkout, "check").returncode == 0
    edit(checkout, "templates/checks/backward.py.j2", "<=", "<")
    edit(checkout, "hardware/compare.py", "_SMALLEST_SCALE = 1e-12", "_SMALLEST_SCALE = 1e-3")
    failed = declare(checkout, "check")
    assert failed.returncode == 1
    assert [line.partition(":")[0] for line in failed.stderr.splitlines()[:2]] == ["runner", "check backward"]
    assert "revisions same runner 'check backward' --reason TEXT" in failed.stderr
    assert "revisions bump runner 'check backward' --reason TEXT" in failed.stderr

    file = checkout / "hardware/evidence/revisions.toml"
    before = file.read_text(encoding="utf-8").splitlines()
    assert declare(checkout, "same", "runner", "--reason", 'a "scale"', "--verified", "the suites").returncode == 0
    (added,) = [line for line in file.read_text(encoding="utf-8").splitlines() if line not in before]
    assert 'revision = 1, decision = "same behavior", reason = "a \\"scale\\" (verified: the suites)"' in added
    assert declare(checkout, "bump", "check backward", "--reason", "strictly less").returncode == 0
    assert declare(checkout, "check").returncode == 0
    part = {one.name: one for one in load_revisions.__wrapped__(file).parts}["check backward"]
    assert (part.revision, part.fingerprints[-1].decision) == (2, "bumped")


def test_the_same_behavior_is_not_declared_unless_it_was_verified(checkout: Path) -> None:
    edit(checkout, "hardware/compare.py", "_SMALLEST_SCALE = 1e-12", "_SMALLEST_SCALE = 1e-3")
    refused = declare(checkout, "same", "runner", "--reason", "no difference")  # the copy has no golden suites
    assert refused.returncode == 1
    assert "test/recorded failed" in refused.stderr
    assert declare(checkout, "check").returncode == 1


def test_an_unknown_part_is_named_with_those_that_there_are(checkout: Path) -> None:
    refused = declare(checkout, "bump", "runer", "--reason", "x")
    assert refused.returncode == 2
    assert "'runer'" in refused.stderr
    assert "runner" in refused.stderr
