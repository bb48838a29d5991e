"""Verifying suites without running any: which files are taken, which break is tried, and what is reported of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from front_doors import invoke

from generators.models.catalog import installed_version
from generators.models.recipe_store import load_recipe
from generators.mutants.model_anatomy import SMALLEST_CHANGE
from generators.mutants.mutation_operators import OPERATORS, Mutant
from generators.mutants.orders import Made, Order
from generators.mutants.rounds import Ran
from generators.suites import verify
from generators.suites.render import render
from generators.suites.suite_files import PlannedSuite
from generators.suites.verify import Publication, Verification, VerifiedSuite, order_for, verify_suites
from hardware.cell import Cell
from hardware.errors import NothingMatched
from hardware.evidence.record import CheckLine, Outcome, Stage
from hardware.testing.check_lines import line_for
from hardware.testing.runner import Limits
from hardware.testing.suite_file import SuiteFile

CPU = "vit/image-classification/cpu/float32"
CUDA = "vit/image-classification/cuda/float32"
LIMITS = Limits(timeout_s=10)


def write(folder: Path, name: str, cell: str = CPU, old: str = "", new: str = "") -> Path:
    recipe = load_recipe("vit")
    if recipe is None:
        pytest.skip(f"no recipe ships for transformers {installed_version()}")
    text = render(recipe, Cell.parse(cell), ())
    assert old in text
    path = folder / name
    path.write_text(text.replace(old, new) if old else text, encoding="utf-8")
    return path


class Rounds:
    """Replaces the runner: suites do as their names say, and what was asked is kept."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[str], dict[str, Order]]] = []

    def __call__(
        self, suites: Sequence[SuiteFile], orders: Mapping[Path, Order], folder: Path, **_: Any
    ) -> list[Ran]:
        self.asked.append(([suite.path.name for suite in suites], {p.name: order for p, order in orders.items()}))
        return [self._ran(suite, orders[suite.path]) for suite in suites]

    def _ran(self, suite: SuiteFile, order: Order) -> Ran:
        name = suite.path.name
        facts: dict[str, dict[str, Any]] = {check: {"outcome": Outcome.PASSED} for check in suite.checks}
        if "unimportable" in name:
            wrong = {"outcome": Outcome.FAILED, "stage": Stage.IMPORT, "error_message": "ImportError: x"}
            facts = dict.fromkeys(suite.checks, wrong)
        elif "unheard" in name:
            left_out = {"outcome": Outcome.NOT_RUN, "error_type": "deselected", "error_message": "pytest left it out"}
            facts["matches_reference"] = left_out
        elif "failing" in name or (order.mutants and "blind" not in name):
            facts["matches_reference"] = {"outcome": Outcome.FAILED, "error_type": "numerical_mismatch"}
        lines: list[CheckLine] = [line_for(suite, "r", check, **fact) for check, fact in facts.items()]
        operator = order.mutants[0].partition("@")[0] if order.mutants else ""
        mutant = Mutant(operator=operator, seed=0, site="layer 1", side="under test", describe="a break")
        return Ran(lines=tuple(lines), made=Made(mutant=mutant, change=0.3) if operator else Made())


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> Rounds:
    made = Rounds()
    monkeypatch.setattr(verify, "run_round", made)
    return made


def verified(folder: Path, **given: Any) -> dict[str, VerifiedSuite]:
    found = verify_suites(sorted(folder.glob("test_*.py")), limits=LIMITS, **given)
    return {one.path.name: one for one in found}


def test_a_suite_that_does_all_four_is_good(tmp_path: Path, rounds: Rounds) -> None:
    write(tmp_path, "test_a.py")
    one = verified(tmp_path)["test_a.py"]
    assert one.is_good
    assert (one.caught_by, one.site) == ("matches_reference", "layer 1")
    assert one.mutant in order_for(Cell.parse(CPU)).mutants
    assert Verification(suites=(one,)).exit_code == 0


@pytest.mark.parametrize(
    ("name", "steps", "message"),
    [
        ("test_blind.py", (True, True, True), "it can't fail"),
        ("test_failing.py", (True, True, False), "unbroken, matches_reference failed"),
        ("test_unimportable.py", (True, False, False), "pytest doesn't collect it: ImportError: x"),
        ("test_unheard.py", (True, False, False), "pytest doesn't collect it: pytest left it out"),
    ],
)
def test_what_a_suite_does_not_do_is_named(
    tmp_path: Path, rounds: Rounds, name: str, steps: tuple[bool, bool, bool], message: str
) -> None:
    write(tmp_path, name)
    one = verified(tmp_path)[name]
    assert (one.compiles, one.collected, one.passes) == steps
    assert message in one.problem
    assert not one.is_good
    found = Verification(suites=(one,))
    assert found.exit_code == 1
    assert f"{name}: " in found.text()
    broken = [bool(order.mutants) for _, orders in rounds.asked for order in orders.values()]
    assert any(broken) is (name == "test_blind.py")  # a suite that fails unbroken isn't broken too


def test_files_that_cannot_run_are_told_from_files_that_are_no_suites(tmp_path: Path, rounds: Rounds) -> None:
    (tmp_path / "test_own.py").write_text("def test_mine():\n    assert True\n")
    (tmp_path / "test_syntax.py").write_text("CELL = (\n")
    write(tmp_path, "test_return.py", old="PARAMETERS = ", new="return\nPARAMETERS = ")
    write(tmp_path, "test_cell.py", old=f'CELL = "{CPU}"', new='CELL = "nothing"')
    found = verified(tmp_path)
    assert {name: one.compiles for name, one in found.items()} == {
        "test_syntax.py": False,
        "test_return.py": False,
        "test_cell.py": True,
    }
    assert "has an invalid CELL" in found["test_cell.py"].problem
    assert Verification(suites=tuple(found.values())).exit_code == 1
    assert not any(suites for suites, _ in rounds.asked)


def test_what_cannot_be_verified_here_is_skipped_with_the_reason(tmp_path: Path, rounds: Rounds) -> None:
    write(tmp_path, "test_weights.py", old="PARAMETERS = ", new='MODEL_REVISION = "abc"\nPARAMETERS = ')
    write(tmp_path, "test_tf32.py", cell="vit/image-classification/cuda/tf32")
    found = verified(tmp_path)
    assert "only `hwcompat run` provides" in found["test_weights.py"].skipped
    assert "tf32" in found["test_tf32.py"].skipped
    done = Verification(suites=tuple(found.values()))
    assert done.exit_code == 5
    assert "2 skipped" in done.text()


def test_a_skipped_suite_neither_fails_nor_hides_the_others(tmp_path: Path, rounds: Rounds) -> None:
    write(tmp_path, "test_a.py")
    write(tmp_path, "test_weights.py", old="PARAMETERS = ", new='MODEL_REVISION = "abc"\nPARAMETERS = ')
    assert Verification(suites=tuple(verified(tmp_path).values())).exit_code == 0
    write(tmp_path, "test_blind.py", cell="vit/image-classification/openvino/float32")
    assert Verification(suites=tuple(verified(tmp_path).values())).exit_code == 1


def test_suites_of_other_targets_run_on_cpu_and_that_is_said(tmp_path: Path, rounds: Rounds) -> None:
    write(tmp_path, "test_cuda.py", cell=CUDA)
    found = verified(tmp_path)
    assert rounds.asked
    assert all(order.on_cpu for _, orders in rounds.asked for order in orders.values())
    assert "1 are for other targets" in Verification(suites=tuple(found.values())).text()


def test_an_edited_copy_of_a_suite_is_verified_beside_it(tmp_path: Path, rounds: Rounds) -> None:
    write(tmp_path, "test_a.py")
    write(tmp_path, "test_blind_copy.py", old="<= case.tolerance", new="< 1e9")
    found = verified(tmp_path)
    assert {name: one.is_good for name, one in found.items()} == {"test_a.py": True, "test_blind_copy.py": False}
    assert all(len(suites) == 1 for suites, _ in rounds.asked)


def test_patterns_choose_cells(tmp_path: Path, rounds: Rounds) -> None:
    write(tmp_path, "test_a.py")
    write(tmp_path, "test_b.py", cell=CUDA)
    assert list(verified(tmp_path, select=["*/cuda/*"])) == ["test_b.py"]
    assert list(verified(tmp_path, skip=["*/cuda/*"])) == ["test_a.py"]
    with pytest.raises(NothingMatched):
        verified(tmp_path, select=["gpt2/*"])
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "test_own.py").write_text("def test_mine():\n    assert True\n")
    with pytest.raises(NothingMatched, match="no suites"):
        verified(tmp_path / "own")


def test_the_break_follows_from_the_cell_and_any_may_come_first() -> None:
    orders = {number: order_for(Cell.parse(f"type{number}/fill-mask/cpu/float32")) for number in range(200)}
    assert orders[0] == order_for(Cell.parse("type0/fill-mask/cpu/float32"))
    assert all(sorted(order.mutants) == sorted(f"{name}@0" for name in OPERATORS) for order in orders.values())
    assert {order.mutants[0].partition("@")[0] for order in orders.values()} == set(OPERATORS)

    least = {p: order_for(Cell.parse(f"vit/image-classification/cpu/{p}")).least for p in ("float32", "bfloat16")}
    assert least["float32"] == SMALLEST_CHANGE
    assert least["bfloat16"] == pytest.approx(0.16)


def test_what_is_verified_is_a_folder_or_the_selection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    empty = Verification(suites=())
    seen: list[tuple[object, ...]] = []

    def verified(_asked: object, paths: Sequence[Path], _progress: object, *, choose: bool) -> Verification:
        seen.append(("verified", paths, choose))
        return empty

    def published(planned: Sequence[PlannedSuite], folder: Path, **_options: object) -> Publication:
        seen.append(("published", [one.cell.id for one in planned], folder))
        return Publication(folder=folder, verification=empty, published=(), kept_back=(), taken_away=(), edited=())

    monkeypatch.setattr("generators.suites.verify.verify_asked", verified)
    monkeypatch.setattr("generators.suites.verify.publish_suites", published)
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "test_a.py").touch()
    for words in ("made", "--output-dir made"):
        invoke("verify", *words.split())
        assert seen.pop() == ("verified", [Path("made/test_a.py")], True)
    invoke("verify", "--model", "bert", "--device", "cpu", "--output-dir", "new")
    assert seen.pop() == ("published", ["bert/fill-mask/cpu/float32"], Path("new"))
    for words, message in (("none", "none isn't a folder of suites"), ("made --run", "No such option '--run'")):
        done = invoke("verify", *words.split())
        assert (done.code, message in done.err) == (4, True)
