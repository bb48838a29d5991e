"""The parts of the checking code: together they hold every file that decides what a check says."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

from hardware.backends.factory import built_in_targets, class_of
from hardware.evidence.revisions import checking_files, load_revisions, parts_for
from hardware.target import Target
from hardware.testing.checks import all_checks

ROOT = Path(__file__).parents[2]
COVERED = (
    *(f"hardware/{folder}/" for folder in ("backends", "export", "testing")),
    *(f"hardware/{name}.py" for name in ("applied_fix", "compare", "known_answer", "output_masks", "privateuse1")),
    "generators/suites/render.py",
    "templates/",
)


def test_every_file_of_the_checking_code_belongs_to_a_part_and_every_pattern_has_files() -> None:
    files, parts = checking_files(), load_revisions().parts
    checking = [name for name in files if name.startswith(COVERED) and "/repro/" not in name]
    assert len(checking) > 100
    assert [one for one in checking if not any(part.holds(one) for part in parts)] == []
    patterns = [pattern.removeprefix("!") for part in parts for pattern in part.files]
    without = [one for one in patterns if not any(Path(name).match(one) for name in files)]
    assert [one for one in without if not one.endswith("/*")] == []
    for part in parts:  # a bundle carries the package, and of other parts what was known when it was packed
        assert len({name.startswith("hardware/") for name in files if part.holds(name)}) == 1, part.name
    names = {part.name for part in parts}
    assert {f"check {one.name}" for one in all_checks()} == {one for one in names if one.startswith("check ")}
    assert {f"backend {one}" for one in built_in_targets()} == {one for one in names if one.startswith("backend ")}


def test_results_rest_on_all_code_that_their_target_imports() -> None:
    folders = ("hardware/backends/", "hardware/export/", "hardware/workers/")
    for target in built_in_targets():
        parts = parts_for(Target(name=target), exports=class_of(Target(name=target)).EXPORTS)
        own = [part for part in load_revisions().parts if part.name in parts]
        needed = [name for name in reached(f"hardware/backends/{target}.py") if name.startswith(folders)]
        assert f"hardware/backends/{target}.py" in needed
        assert [name for name in needed if not any(part.holds(name) for part in own)] == []


def reached(start: str) -> set[str]:
    """Return the files of the package that a file imports, or those do, wherever the import stands."""
    found: set[str] = set()
    left = [start]
    while left:
        if (name := left.pop()) not in found:
            found.add(name)
            left += imported(name)
    return found


@functools.cache
def imported(name: str) -> list[str]:
    path, found = Path(name), []
    tree = ast.parse((ROOT / path).read_bytes())
    typing = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)]
    skipped = {id(inner) for node in typing for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level and id(node) not in skipped:
            base = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            found += [base.with_suffix(".py"), base / "__init__.py", *(base / f"{one.name}.py" for one in node.names)]
    return [one.as_posix() for one in found if (ROOT / one).is_file()]
