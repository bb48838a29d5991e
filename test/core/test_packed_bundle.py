"""Bundles: the same bytes for the same suites, whole or refused, and evidence of the revisions that packed them."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from given_recipes import module_recipe
from recorded_machines import XEON, computer

from generators.model_profile import profile_of
from generators.plan import PlannedSuite
from generators.run import plan_job
from generators.suites.bundle import bundle_files, packed, write_bundle
from hardware.cell import Cell
from hardware.detection import detect
from hardware.errors import BrokenInput, OutputError, UsageError
from hardware.evidence.record import Outcome
from hardware.evidence.revisions import PREFIX, checker_versions, modified_parts
from hardware.testing.bundle_runner import read_bundle
from hardware.testing.check_lines import line_for
from hardware.testing.session import exit_code
from hardware.testing.suite_file import SuiteFile

VERSIONS = {"torch": "2.9.0"}
BERT = Cell.parse("bert/fill-mask/cpu/float32")


@pytest.fixture(scope="module")
def planned() -> Sequence[PlannedSuite]:
    return plan_job([profile_of("bert")], ["auto", "cuda"], ["float32"], detect(computer(XEON)))


@pytest.fixture(scope="module")
def archive(planned: Sequence[PlannedSuite]) -> bytes:
    return packed("suite", planned, VERSIONS)[1]


@pytest.fixture
def unpacked(archive: bytes, tmp_path: Path) -> Path:
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        opened.extractall(tmp_path)
    return tmp_path / "suite"


def test_an_untouched_bundle_is_whole_and_of_the_revisions_that_made_it(planned: Any, unpacked: Path) -> None:
    assert (unpacked / "run.py").is_file()
    readme = (unpacked / "README.md").read_text(encoding="utf-8")
    assert "doesn't contain checkpoints" not in readme
    assert planned[0].device.name in readme
    carried = read_bundle(unpacked)
    assert [one.suite.cell.id for one in carried] == sorted(one.cell.id for one in planned)
    assert {str(one.suite.cell.target): one.required for one in carried} == {"cpu": False, "cuda": True}
    assert {one.suite.cell.id: one.verdict for one in carried} == {
        one.cell.id: json.loads(json.dumps(one.verdict.to_dict())) for one in planned
    }
    assert json.loads((unpacked / "bundle.json").read_text())["made_with"] == VERSIONS
    assert checker_versions(unpacked / "hwcompat") == checker_versions()
    assert modified_parts(checker_versions(unpacked / "hwcompat")) == ()


def test_edited_suites_are_packed_as_they_are(planned: Any) -> None:
    name = planned[0].file_name
    _, other = packed("suite", planned, VERSIONS, {name: b"# mine\n"})
    assert zipfile.ZipFile(io.BytesIO(other)).read(f"suite/suites/{name}") == b"# mine\n"


def test_a_bundle_has_the_same_bytes_and_is_a_zip_file(planned: Any, archive: bytes, tmp_path: Path) -> None:
    names = write_bundle(tmp_path / "new" / "suite.zip", planned, VERSIONS)
    assert (tmp_path / "new" / "suite.zip").read_bytes() == archive
    assert {"run.py", "README.md", "bundle.json", "suites/conftest.py", "hwcompat/hardware/compare.py"} <= set(names)
    files = bundle_files("suite", planned, VERSIONS)
    own = [data.decode() for name, data in files.items() if not name.startswith("hwcompat/")]
    assert not any("torch==" in text or str(Path(__file__).parents[2]) in text for text in own)
    for name in ("suite.tar", "..zip", "suite"):
        with pytest.raises(UsageError, match="isn't a zip file"):
            write_bundle(tmp_path / name, planned, VERSIONS)
    with pytest.raises(OutputError, match="can't be written"):
        write_bundle(tmp_path / "new" / "suite.zip" / "x.zip", planned, VERSIONS)


def test_code_of_the_users_own_is_not_packed(planned: Any, tmp_path: Path) -> None:
    own = replace(planned[0], profile=SimpleNamespace(asked="own_net:make", recipe=module_recipe(), folder=None))
    with pytest.raises(UsageError, match="own_net:make can't be packed"):
        write_bundle(tmp_path / "suite.zip", [own], VERSIONS)
    assert not (tmp_path / "suite.zip").exists()


def test_real_weights_of_a_checkpoint_are_named_and_not_packed(planned: Any, tmp_path: Path) -> None:
    profile = replace(planned[0].profile, folder=tmp_path)
    files = bundle_files("suite", [replace(planned[0], profile=profile)], VERSIONS)
    assert b"doesn't contain checkpoints" in files["README.md"]
    assert f"It needs:\n{planned[0].cell.model}" in files["README.md"].decode()
    assert max(map(len, files.values())) < 1_000_000


def test_a_bundle_whose_checking_code_was_edited_is_a_modified_checker(unpacked: Path) -> None:
    code = unpacked / "hwcompat/hardware/compare.py"
    code.write_text(code.read_text().replace("_SMALLEST_SCALE = 1e-12", "_SMALLEST_SCALE = 1e3"))
    page = unpacked / "hwcompat/hardware/workers/web/index.html"
    page.write_text(page.read_text() + " ")
    assert modified_parts(checker_versions(unpacked / "hwcompat")) == ("backend webgpu", "backend webnn", "runner")


def test_a_bundle_that_lacks_a_part_is_a_modified_checker(unpacked: Path) -> None:
    (unpacked / "hwcompat/hardware/evidence/packed_parts.json").unlink()
    assert "check builds" in modified_parts(checker_versions(unpacked / "hwcompat"))
    assert checker_versions(unpacked / "hwcompat")[f"{PREFIX}check builds"] == "1+missing"


def test_a_bundle_that_is_not_whole_is_refused(unpacked: Path) -> None:
    whole = json.loads((unpacked / "bundle.json").read_text())
    for plan in ("{", json.dumps({**whole, "schema_version": 99})):
        (unpacked / "bundle.json").write_text(plan)
        with pytest.raises(BrokenInput, match="Unpack the bundle again"):
            read_bundle(unpacked)
    (unpacked / "bundle.json").write_text(json.dumps(whole))
    (unpacked / "suites" / whole["suites"][0]["file"]).unlink()
    with pytest.raises(BrokenInput, match="Unpack the bundle again"):
        read_bundle(unpacked)


def test_the_exit_code_of_a_run_follows_its_lines() -> None:
    suite = SuiteFile(path=Path("test_x.py"), cell=BERT, subject="tiny", checks=("builds",), suite_hash="")
    passed, failed, unreached, left_out = (
        line_for(suite, "r", "builds", outcome=outcome, error_type=error_type)
        for outcome, error_type in (
            (Outcome.PASSED, ""),
            (Outcome.FAILED, "numerical_mismatch"),
            (Outcome.NOT_RUN, "not_reached"),
            (Outcome.NOT_RUN, "deselected"),
        )
    )
    for lines, missing, code in (
        ([passed], False, 0),
        ([passed, left_out], False, 0),
        ([passed, unreached], False, 1),
        ([passed, failed], False, 1),
        ([passed], True, 1),
        ([left_out, left_out], False, 5),
        ([unreached], False, 1),
        ([], False, 5),
    ):
        assert exit_code(lines, missing=missing) == code
