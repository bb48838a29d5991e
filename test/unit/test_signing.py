"""A signed folder of evidence: what is changed, removed or added later shows, and another key doesn't pass."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from hardware.errors import BrokenInput, UsageError
from hardware.evidence.signature import SIGNATURE, check_evidence, sign_evidence

ME = "me@example.org"


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="OpenSSH isn't installed")
def test_a_folder_is_whole_as_long_as_it_is_as_it_was_signed(tmp_path: Path) -> None:
    keys = [tmp_path / "key", tmp_path / "other"]
    for key in keys:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True, timeout=60)
    signers = tmp_path / "signers"
    signers.write_text(f"{ME} {keys[0].with_suffix('.pub').read_text()}")
    folder = tmp_path / "evidence"
    folder.mkdir()
    with pytest.raises(BrokenInput, match="never signed"):
        check_evidence(folder, signers, ME)
    with pytest.raises(UsageError, match="no evidence"):
        sign_evidence(folder, keys[0])
    for name in ("a-1.jsonl", "b-1.jsonl"):
        (folder / name).write_text('{"kind": "end"}\n')
    assert sign_evidence(folder, keys[0]) == 2
    found = check_evidence(folder, signers, ME)
    assert (found.files, found.is_whole) == (2, True)
    with pytest.raises(BrokenInput, match="isn't valid"):
        check_evidence(folder, signers, "somebody@example.org")

    (folder / "a-1.jsonl").write_text("{}\n")
    (folder / "b-1.jsonl").rename(folder / "c-1.jsonl")
    found = check_evidence(folder, signers, ME)
    assert not found.is_whole
    assert (found.changed, found.missing, found.added) == (("a-1.jsonl",), ("b-1.jsonl",), ("c-1.jsonl",))

    sign_evidence(folder, keys[1])
    with pytest.raises(BrokenInput, match="isn't valid"):
        check_evidence(folder, signers, ME)
    (folder / SIGNATURE).unlink()
    with pytest.raises(BrokenInput, match="isn't valid"):
        check_evidence(folder, signers, ME)
