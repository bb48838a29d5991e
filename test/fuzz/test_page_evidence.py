"""What a page saved on somebody's phone, held against the seal: no changed line gets in, no other seal is read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from made_page import made_page, saved, written
from watched import Sentinel, Surroundings, refused_or

from hardware.evidence.merge import merge_evidence
from hardware.evidence.pages import SEALS, keep_seal, read_seal


@pytest.mark.fuzz(120)
def test_a_changed_line_is_never_taken_in(fuzz: Any, place: Path, sentinel: Sentinel) -> None:
    page = made_page("webgpu")
    folder, source = place / "evidence", place.parent / "from-a-phone"
    whole = written(page)
    keep_seal(folder, page.text)
    free = ("duration_s", "latency_ms", "peak_memory_bytes", "error_message", "traceback", "unseen", "started_at")
    free += ("ended_at", "reason", "error_type", "batch", "sequence_length")
    taken = []

    for hostile in fuzz:
        lines = json.loads(json.dumps(whole))
        at = hostile.randrange(len(lines))
        lines[at] = hostile.changed(lines[at], most=2)
        shutil.rmtree(source, ignore_errors=True)
        path = saved(source, whole)
        path.write_bytes(b"".join(hostile.line(line) + b"\n" for line in lines))
        around = Surroundings(place.parent, folder)
        if refused_or(merge_evidence, path, folder) is None:
            assert {one.name for one in folder.iterdir()} == {SEALS}
        else:
            taken.append(path)
            differing = {key for key in {*whole[at], *lines[at]} if whole[at].get(key) != lines[at].get(key)}
            # What is left out says nothing, or what a reader takes for it: that it is of our own tests.
            differing -= {
                key for key in differing if key not in lines[at] and whole[at][key] in ("", "hwcompat", None, {})
            }
            assert differing <= {*free, "inventory"} | {key for key in lines[at] if key not in whole[at]}, differing
            for one_file in folder.glob("*.jsonl"):
                one_file.unlink()
        around.check()


def test_what_a_page_wrote_is_taken_in(place: Path) -> None:
    page = made_page("webgpu")
    keep_seal(place / "evidence", page.text)
    (found,) = merge_evidence(saved(place / "from-a-phone", written(page)), place / "evidence")
    assert found.state == "taken"


@pytest.mark.fuzz(120)
def test_a_seal_is_its_own_hash_or_refused(fuzz: Any, place: Path, sentinel: Sentinel) -> None:
    page = made_page("webgpu")
    sealed = json.loads(page.text)
    (place.parent / "outside.json").write_text(page.text)

    for hostile in fuzz:
        text = json.dumps(hostile.changed(sealed)) if hostile.random() < 0.7 else hostile.text()
        try:
            kept = keep_seal(place, text)
        except UnicodeEncodeError:  # a seal is ASCII; nobody else's is kept
            continue
        refused_or(read_seal, place, kept.stem)
        kept.write_bytes(hostile.bytes(kept.read_bytes()) + b" ")
        assert refused_or(read_seal, place, kept.stem) is None
        assert refused_or(read_seal, place, hostile.name()) is None
        assert refused_or(read_seal, place, "../../outside") is None
