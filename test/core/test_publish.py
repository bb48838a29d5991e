"""`--verify` of a selection leaves the good suites in the folder, whole, and no others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from generators.models.catalog import installed_version
from generators.models.recipe_store import load_recipe
from generators.suites.render import render
from generators.suites.suite_files import write_suite
from generators.suites.verify import Publication, Verification, VerifiedSuite, publish_suites
from hardware.cell import Cell
from hardware.errors import NothingMatched
from hardware.testing.suite_file import read_suite

CPU, CUDA = (Cell.parse(f"vit/image-classification/{target}/float32") for target in ("cpu", "cuda"))


@pytest.fixture
def planned() -> list[Any]:
    recipe = load_recipe("vit")
    if recipe is None:
        pytest.skip(f"no recipe ships for transformers {installed_version()}")
    texts = {cell: render(recipe, cell, ()) for cell in (CPU, CUDA)}
    return [SimpleNamespace(cell=one, text=text, file_name=f"test_{one.slug}.py") for one, text in texts.items()]


def judge(bad: Sequence[Cell] = (), skipped: Sequence[Cell] = ()) -> Callable[[Sequence[Path]], Verification]:
    """Return a verification that finds some suites bad and skips others."""

    def verify(paths: Sequence[Path]) -> Verification:
        found = []
        for path in paths:
            suite = read_suite(path)
            if suite is None:
                continue
            one = VerifiedSuite(path=path, cell=suite.cell, compiles=True, collected=True, passes=True)
            if suite.cell in skipped:
                found.append(replace(one, skipped="there are no weights"))
            elif suite.cell in bad:
                found.append(replace(one, problem="it can't fail"))
            else:
                found.append(replace(one, mutant="scaled_attention@0", caught_by="matches_reference"))
        if not found:
            raise NothingMatched("no suites to verify")
        return Verification(suites=tuple(found))

    return verify


def publish(planned: Sequence[Any], folder: Path, *, force: bool = False, **judged: Sequence[Cell]) -> Publication:
    return publish_suites(planned, folder, force=force, verify=judge(**judged))


def there(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in folder.glob("test_*.py")}


def test_good_suites_are_written_as_they_were_verified(planned, tmp_path):
    found = publish(planned, tmp_path / "suites")
    assert there(tmp_path / "suites") == {one.file_name: one.text for one in planned}
    assert (tmp_path / "suites" / "conftest.py").is_file()
    assert (found.exit_code, found.kept_back, found.taken_away) == (0, (), ())
    assert f"2 published in {tmp_path / 'suites'}" in found.text()


@pytest.mark.parametrize("judged", [{"bad": [CUDA]}, {"skipped": [CUDA]}])
def test_what_is_not_good_is_kept_back_and_what_lay_there_is_taken_away(planned, tmp_path, judged):
    good, other = planned
    write_suite(tmp_path, other.file_name, other.text)
    found = publish(planned, tmp_path, **judged)
    assert there(tmp_path) == {good.file_name: good.text}
    assert (found.published, found.kept_back) == ((good.file_name,), (other.file_name,))
    assert found.taken_away == (other.file_name,)
    assert found.exit_code == 1
    reason = "it can't fail" if "bad" in judged else "skipped, there are no weights"
    assert f"{other.file_name}: {reason}" in found.text()
    assert f"1 not published: {other.file_name}" in found.text()


def test_if_nothing_is_good_no_folder_is_made(planned, tmp_path):
    found = publish(planned, tmp_path / "suites", bad=[CPU, CUDA])
    assert not (tmp_path / "suites").exists()
    assert (found.exit_code, found.published, found.taken_away) == (1, (), ())
    assert publish(planned, tmp_path / "suites", skipped=[CPU, CUDA]).exit_code == NothingMatched.exit_code


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("CELL = ", "OTHER = ", "it has no CELL"),
        ('CELL = "vit/image-classification/cpu', 'CELL = "vit/image-classification/xpu', "it is the suite of vit/"),
    ],
)
def test_what_its_template_made_no_suite_of_its_cell_is_kept_back(planned, tmp_path, old, new, message):
    wrong = SimpleNamespace(**vars(planned[0]) | {"text": planned[0].text.replace(old, new, 1)})
    assert wrong.text != planned[0].text
    for others in ([], [planned[1]]):
        found = publish([wrong, *others], tmp_path)
        assert set(there(tmp_path)) == {one.file_name for one in others}
        assert found.kept_back == (wrong.file_name,)
        assert found.exit_code == 1
        assert message in found.text()


def test_what_a_person_edited_is_verified_where_it_lies_and_stays(planned, tmp_path):
    mine = planned[0].text.replace("PARAMETERS = ", "PARAMETERS = 0 + ")
    (tmp_path / planned[0].file_name).write_text(mine, encoding="utf-8")
    found = publish(planned, tmp_path, bad=[CPU])
    assert there(tmp_path)[planned[0].file_name] == mine
    assert found.edited == (planned[0].file_name,)
    assert (found.published, found.kept_back) == ((planned[1].file_name,), ())
    assert found.exit_code == 1  # it isn't good
    assert publish(planned, tmp_path, bad=[CPU], force=True).taken_away == ()
    assert there(tmp_path)[planned[0].file_name] == mine
    found = publish(planned, tmp_path, force=True)
    assert there(tmp_path) == {one.file_name: one.text for one in planned}
    assert found.edited == ()


def test_an_interruption_leaves_the_folder_as_it_was(planned, tmp_path):
    write_suite(tmp_path, planned[0].file_name, planned[0].text)
    before = there(tmp_path)

    def interrupted(_paths: Sequence[Path]) -> Verification:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        publish_suites(planned, tmp_path, force=False, verify=interrupted)
    assert there(tmp_path) == before
