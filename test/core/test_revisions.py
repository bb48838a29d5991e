"""What a fingerprint counts, and how a developer declares that a part of the checking code changed."""

from __future__ import annotations

import functools
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from hardware.evidence import declare_revisions, revisions
from hardware.evidence.revisions import fingerprint_of, load_revisions, part_fingerprints

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
PLAIN = [
    ("  # relative", ""),
    ("# relative", "# relative to the scale"),
    ('"""What this module does."""\n', ""),
    ("What this module does.", "What it does # now.\n\nIn more words."),
    ("Why it is so.", "Another reason."),
    ("    return max", "\n\n    return max"),
    ("LIMIT = 1e-5\n", "LIMIT = 1e-5   \n\n"),
    ("  # a string that stands alone on its line is a value here", ""),
    ("\n", "\r\n"),
]
DECIDES = [
    ("1e-5", "1e-4"),
    ("got - want", "want - got"),
    ("kept # not a comment", "kept"),
    ("comment\n\nand", "comment\nand"),
    ('        "a",', '        "c",'),
    ('{names}#"', '{names}"'),
    ("    return max", "    if got is None:\n        return max"),
    ("    names =", "    f'{print(got)}'\n    names ="),
]


def moves(old: str, new: str, text: str = CODE, name: str = "a.py") -> bool:
    """Whether a replacement changes the fingerprint of a file."""
    changed = text.replace(old, new)
    assert changed != text
    return fingerprint_of({name: text.encode()}) != fingerprint_of({name: changed.encode()})


def test_code_moves_a_fingerprint_and_comments_docstrings_and_blank_lines_dont() -> None:
    assert [one for one in PLAIN if moves(*one)] == []
    assert [one for one in DECIDES if not moves(*one)] == []
    for name, text in (("a.toml", "limit = 2 # why\n"), ("a.py.j2", "{# why #}assert error <= 2\n")):
        assert not moves("why", "because", text, name)
        assert moves("2", "3", text, name)
    assert moves("#", "", "a # b", "a.txt")


REVISIONS = """
[[part]]
name = "runner"
revision = 1
files = ["hardware/compare.py"]
fingerprints = [
    { fingerprint = "0123456789ab", revision = 1, decision = "first", reason = "the first" },
]

[[part]]
name = "check backward"
revision = 1
files = ["templates/checks/backward.py.j2"]
fingerprints = [
]
"""


class Checkout:
    """A folder with two files of the checking code, the parts that they belong to, and the command that declares."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "hardware" / "evidence" / "revisions.toml"
        self.compare = folder / "hardware" / "compare.py"
        for path, text in (
            (self.file, REVISIONS),
            (self.compare, "scale = 1\n"),
            (folder / "templates" / "checks" / "backward.py.j2", "assert error <= 1\n"),
            (folder / "hardware" / "__init__.py", ""),
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def declare(self, *words: str) -> Result:
        return CliRunner().invoke(declare_revisions.cli, words)

    def part(self, name: str) -> revisions.RevisionPart | None:
        return load_revisions.__wrapped__(self.file).part(name)


@pytest.fixture
def verifications() -> list[int]:
    """The exit codes of the verifications, in order."""
    return []


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verifications: list[int]) -> Checkout:
    found = Checkout(tmp_path)
    loaded = functools.cache(lambda _path=None: load_revisions.__wrapped__(found.file))
    monkeypatch.setattr(revisions, "load_revisions", loaded)
    monkeypatch.setattr(declare_revisions, "load_revisions", loaded)
    monkeypatch.setattr(declare_revisions, "part_fingerprints", lambda: part_fingerprints.__wrapped__(tmp_path))
    monkeypatch.setattr(declare_revisions, "REVISIONS", found.file)
    monkeypatch.setattr(declare_revisions, "run", lambda *_, **__: SimpleNamespace(returncode=verifications.pop(0)))
    assert found.declare("same", "all", "--reason", "the copy", "--verified", "nothing").exit_code == 0
    return found


def test_lint_fails_on_an_undeclared_change_until_it_is_declared(checkout: Checkout) -> None:
    found = checkout.declare("check")
    assert (found.exit_code, found.output) == (0, "All 2 parts are declared.\n")
    assert checkout.part("check backward").fingerprints[0].decision == "first"
    checkout.compare.write_text("scale = 2\n", encoding="utf-8")
    failed = checkout.declare("check")
    assert failed.exit_code == 1
    assert [line.partition(": ")[0] for line in failed.output.splitlines()] == [
        "runner",
        "Decides as before?    python -m hardware.evidence.revisions same runner --reason TEXT",
        "Decides differently?  python -m hardware.evidence.revisions bump runner --reason TEXT",
    ]
    before = checkout.file.read_text(encoding="utf-8").splitlines()
    words = ("--reason", 'a "scale"', "--verified", "the suites")
    assert checkout.declare("same", "runner", *words).exit_code == 0
    (added,) = [line for line in checkout.file.read_text(encoding="utf-8").splitlines() if line not in before]
    assert 'revision = 1, decision = "same behavior", reason = "a \\"scale\\" (verified: the suites)"' in added
    assert checkout.declare("check").exit_code == 0
    assert "runner: nothing changed" in checkout.declare("same", "runner", *words).output

    checkout.compare.write_text("scale = 3\n", encoding="utf-8")
    assert "'check backward'" not in checkout.declare("check").output
    assert checkout.declare("bump", "runner", "--reason", "another scale").exit_code == 0
    assert checkout.declare("check").exit_code == 0
    part = checkout.part("runner")
    assert (part.revision, part.fingerprints[-1].revision, part.fingerprints[-1].decision) == (2, 2, "bumped")
    assert checkout.part("check backward").revision == 1


def test_the_same_behavior_is_not_declared_unless_it_was_verified(checkout, verifications) -> None:
    checkout.compare.write_text("scale = 2\n", encoding="utf-8")
    for codes, name in (([1], "test/recorded"), ([0, 1], "the mutants of the checks")):
        verifications[:] = codes
        refused = checkout.declare("same", "runner", "--reason", "no difference")
        assert (refused.exit_code, verifications) == (1, [])
        assert f"{name} failed" in refused.output
        assert checkout.declare("check").exit_code == 1
    verifications[:] = [0, 0]
    assert checkout.declare("same", "runner", "--reason", "no difference").exit_code == 0
    reason = checkout.part("runner").fingerprints[-1].reason
    assert reason == "no difference (verified: test/recorded and the mutants of the checks)"


def test_an_unknown_part_is_named_with_those_that_there_are(checkout: Checkout) -> None:
    refused = checkout.declare("bump", "runer", "--reason", "x")
    assert refused.exit_code == 2
    assert "'runer'" in refused.output
    assert "runner, check backward" in refused.output
