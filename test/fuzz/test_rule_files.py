"""Rule files from anywhere: rules that are whole, or one line that names file, rule and field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hostile import Hostile
from watched import Sentinel, limited, refused_or

from generators.compatibility.rule import read_rules
from generators.compatibility.rules import RULES_FOLDER

SHIPPED = sorted(RULES_FOLDER.glob("*.toml"))


def broken(hostile: Hostile, text: str) -> bytes:
    """A file of TOML with a value replaced, or with bytes changed."""
    lines = text.splitlines()
    for _ in range(hostile.randint(1, 3)):
        at = hostile.randrange(len(lines))
        key, sign, value = lines[at].partition(" = ")
        kind = hostile.randrange(5)
        if kind == 0 and sign:
            lines[at] = f"{key} = '''{hostile.text()}'''"
        elif kind == 1 and sign:
            lines[at] = f"{hostile.choice(('a.b', 'id', '[x]', key))} = {value}"
        elif kind == 2 and sign:
            values = ("1", "true", "[]", "{}", "1979-05-27", "inf", "nan", "9" * 50, "[[1]]", '""')
            lines[at] = f"{key} = {hostile.choice(values)}"
        elif kind == 3:
            lines.insert(at, lines[hostile.randrange(len(lines))])
        else:
            del lines[at]
            lines = lines or [""]
    data = "\n".join(lines).encode(errors="surrogatepass")
    return hostile.bytes(data) if hostile.random() < 0.2 else data


@pytest.mark.fuzz(300)
def test_a_rule_file_is_read_or_refused(fuzz: Any, place: Path, sentinel: Sentinel) -> None:
    path = place / "mine.toml"
    texts = [one.read_text(encoding="utf-8") for one in SHIPPED]

    for hostile in fuzz:
        path.write_bytes(broken(hostile, hostile.choice(texts)))
        for rule in refused_or(read_rules, path) or ():
            assert rule.targets
            assert rule.reason.strip()


def test_tricks_of_size_and_depth_are_refused_at_once(place: Path) -> None:
    deep = (
        "a" + ".a" * 50_000 + " = 1",
        "a = " + "[" * 100_000,
        "a = " + "{b = " * 50_000,
        "[" + "a." * 50_000 + "a]",
    )
    large = ("a = " + "1" * 100_000, '"a"' + '."a"' * 50_000 + " = 1", "x" * 900_000, "- " * 400_000)
    for text in (*deep, *large):
        (place / "mine.toml").write_text(text)
        assert limited(read_rules, place / "mine.toml", memory=300 << 20) is None, text[:8]
