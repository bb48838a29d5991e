"""No text that users read has a banned word, and the check sees one wherever such text stands."""

from __future__ import annotations

from collections.abc import Iterable

import banned_words as checked
import pytest


def _found(texts: Iterable[tuple[int, str]], name: str = "hardware/some.py") -> list[str]:
    return [one.split(": ", 1)[1] for line, text in texts for one in checked.findings(name, line, text)]


def test_no_text_that_users_read_has_a_banned_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert checked.main() == 0, capsys.readouterr().out


def test_a_banned_word_is_found_in_strings_and_docstrings_of_commands_alone() -> None:
    source = '''
"""Nobody reads this docstring."""  # and nobody this comment
KEYS = {"subject": "sealed"}
@cli.command()
def shown():
    """Say what is told by nobody."""
    raise UsageError(f"the {name} is told", why="it comes "
        "home", fix=f"Mend {name}.")
'''
    found = _found(checked.python_texts(source))
    assert [one.split("'")[1] for one in found] == ["is told", "nobody", "is told", "comes home", "mend"]
    assert any("nobody" in one for one in _found(checked.python_texts('"""Seen by nobody."""', documented=True)))


def test_a_banned_word_is_found_in_data_and_templates() -> None:
    assert _found(checked.data_texts('[a]\nsays = "nobody knows"'))
    assert _found(checked.data_texts('{"a": [{"description": "What is told"}]}'))
    found = _found(checked.template_texts('{# sealed #}{{ subject | join }} {{ "as grave as that" }}<p>A subject'))
    assert [one.split("'")[1] for one in found] == ["as grave as", "subject"]


def test_a_word_of_another_meaning_counts_only_elsewhere() -> None:
    text = [(1, "before revisions were declared")]
    assert _found(text)
    assert not _found(text, "docs/EXPIRY.md")
    assert not _found([(1, "they can't be told apart: subject=SUBJECT")])


def test_each_file_with_another_meaning_still_has_the_word() -> None:
    for name, words in checked.OTHER_MEANING.items():
        text = " ".join((checked.ROOT / name).read_text(encoding="utf-8").lower().split())
        assert all(word in text for word in words), name


def test_riddles_and_british_spelling_are_found_in_the_rooms_that_are_plain() -> None:
    texts = [
        (1, "it is no folder"),
        (1, "nor does it run"),
        (1, "run as it is"),
        (1, "an unknown optimisation level"),
    ]
    assert len(_found(texts)) == len(texts)
    assert not _found(texts, "elsewhere/some.py")
    assert not _found([(1, "there is no such folder"), (1, "it is no longer there"), (1, "optimisation")])
