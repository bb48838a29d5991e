"""A signed folder of evidence: what is changed, removed or added later shows, and another key doesn't pass."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from hardware.errors import BrokenInput, UsageError
from hardware.evidence.signature import SIGNATURE, check_evidence, sign_evidence

ME = "me@example.org"

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="OpenSSH isn't installed")


def new_key(path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True, timeout=60)
    return path


@pytest.fixture
def signed(tmp_path: Path) -> tuple[Path, Path]:
    """A signed folder with two files, and the list of those who may sign."""
    key = new_key(tmp_path / "key")
    signers = tmp_path / "signers"
    signers.write_text(f"{ME} {key.with_suffix('.pub').read_text()}")
    folder = tmp_path / "evidence"
    folder.mkdir()
    for name in ("a-1.jsonl", "b-1.jsonl"):
        (folder / name).write_text('{"kind": "end"}\n')
    assert sign_evidence(folder, key) == 2
    return folder, signers


def test_a_folder_as_it_was_signed_is_whole(signed):
    found = check_evidence(*signed, ME)
    assert (found.files, found.is_whole) == (2, True)


def test_what_was_changed_removed_or_added_is_named(signed):
    folder, signers = signed
    (folder / "a-1.jsonl").write_text("{}\n")
    (folder / "b-1.jsonl").rename(folder / "c-1.jsonl")
    found = check_evidence(folder, signers, ME)
    assert not found.is_whole
    assert (found.changed, found.missing, found.added) == (("a-1.jsonl",), ("b-1.jsonl",), ("c-1.jsonl",))


def test_a_signature_by_another_key_or_of_another_manifest_is_refused(signed, tmp_path):
    folder, signers = signed
    with pytest.raises(BrokenInput, match="isn't valid"):
        check_evidence(folder, signers, "somebody@example.org")
    sign_evidence(folder, new_key(tmp_path / "other"))
    with pytest.raises(BrokenInput, match="isn't valid"):
        check_evidence(folder, signers, ME)
    (folder / SIGNATURE).unlink()
    with pytest.raises(BrokenInput, match="isn't valid"):
        check_evidence(folder, signers, ME)


def test_a_folder_that_was_never_signed_and_one_without_evidence_say_so(signed, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(BrokenInput, match="never signed"):
        check_evidence(empty, signed[1], ME)
    with pytest.raises(UsageError, match="no evidence"):
        sign_evidence(empty, tmp_path / "key")
