"""The labelled failures: well formed, split as they say, and scored as a person would score them."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace

import pytest

from benchmarks.diagnosis import Answer, merging, right_operator
from benchmarks.failures import ASKED_FOR, FOLDER, HELD_OUT, OTHERS, SEEN, Failure, half_of, read
from reports.finding import Severity

HALVES = {half: read(half) for half in (SEEN, HELD_OUT)}
ALL = [one for failures in HALVES.values() for one in failures]
LEAST = 150
TARGETS = ("cpu", "cuda", "rocm", "mps", "xpu", "tpu", "openvino", "qnn", "webgpu", "webnn", "simulated")

FOLDERS_OF_MACHINES = re.compile(
    r"(?<![\w./<])/(?:home|root|tmp|work|Users|mnt|data|workspace|content|var/folders|opt/conda|usr/(?:local/)?lib/python)/"
    r"|~/\.|\b[A-Z]:\\\\?\w|\\Users\\",
)
ADDRESSES = re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+")


def test_there_are_enough_and_each_has_a_name_of_its_own():
    assert len(ALL) >= LEAST
    assert [name for name, count in Counter(one.id for one in ALL).items() if count > 1] == []
    assert min(map(len, HALVES.values())) >= 0.4 * len(ALL)


def test_the_hash_of_a_root_cause_says_the_half():
    for half, failures in HALVES.items():
        assert [one.id for one in failures if half_of(one.label.group) != half] == []


def test_labels_are_known_ones():
    severities = {str(severity) for severity in Severity}
    assert [one.id for one in ALL if one.label.error_type not in ASKED_FOR + OTHERS] == []
    assert [one.id for one in ALL if one.label.severity not in severities] == []


def test_each_error_type_that_is_asked_for_is_there():
    counted = Counter(one.label.error_type for one in ALL)
    assert {name: counted[name] for name in ASKED_FOR if counted[name] < 2} == {}


def test_every_target_is_there():
    targets = {one.target.partition(":")[0] for one in ALL}
    assert set(TARGETS) - targets == set()


# What follows compares lists of ids: no message of a test may quote the half that nobody looks at.


def test_an_entry_says_where_it_is_from_and_what_was_printed():
    assert {one.source for one in ALL} == {"run", "seeded", "thread"}
    assert [one.id for one in ALL if one.url.startswith("https://") != (one.source == "thread")] == []
    assert [one.id for one in ALL if (one.line is None) != bool(one.text)] == []
    assert [one.id for one in ALL if not (one.printed.strip() and one.why)] == []


def test_no_text_tells_a_machine_or_a_person():
    for half in HALVES:
        lines = (FOLDER / f"{half}.jsonl").read_text(encoding="utf-8").splitlines()
        assert [entry["id"] for entry in map(json.loads, lines) if _tells({**entry, "url": ""})] == []


def test_what_is_looked_for_is_found():
    assert all(_tells([text]) for text in ("/home/a/b.py", "~/.venv/a.py", "C:\\a", "somebody@example.org"))
    assert not _tells(["site-packages/torch/a.py", "/dev/kfd", "https://hub/home/x"])


def _tells(entry: object) -> bool:
    text = "\n".join(_texts(entry))
    return bool(FOLDERS_OF_MACHINES.search(text) or ADDRESSES.search(text))


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for key, item in value.items() for text in (str(key), *_texts(item))]
    return [text for item in value for text in _texts(item)] if isinstance(value, list) else []


def labelled(operator: str) -> Failure:
    return replace(ALL[0], label=replace(ALL[0].label, operator=operator))


@pytest.mark.parametrize(
    ("label", "named", "right"),
    [
        ("aten::lgamma", "aten.lgamma", True),
        ("Reshape, Transpose", "Reshape (4), Transpose (2)", True),
        ("Reshape, Transpose", "Transpose", True),
        ("Reshape", "Reshape, Transpose", False),
        ("Reshape", "", False),
    ],
)
def test_an_operator_is_right_if_nothing_else_is_named(label, named, right):
    answer = Answer(error_type="", severity="", operator=named)
    assert right_operator(labelled(label), answer) is right


def test_merging_counts_pairs_that_belong_together_and_pairs_that_dont():
    group = replace(ALL[0].label, group="one")
    other = replace(ALL[0].label, group="other")
    failures = [
        replace(ALL[0], id=name, label=label)
        for name, label in zip("abcd", (group, group, other, other), strict=True)
    ]
    findings = {"a": "1", "b": "1", "c": "1", "d": "2"}
    said = {name: Answer(error_type="", severity="", operator="", finding=found) for name, found in findings.items()}
    found = merging(failures, said)
    assert (found.together, found.pure, found.related, found.apart) == (3, 1, 2, 1)
