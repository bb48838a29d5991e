"""Check the text that users read for words that this project doesn't use: `python test/support/banned_words.py`.

It checks string literals of the product, docstrings of commands and of what the Python reference lists, TOML files,
schemas, templates and hand-written pages. A string without a space is a key or a name.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("hardware", "generators", "reports", "hwcompat", "templates")
PAGES = ("*.md", "docs/**/*.md", "examples/**/*.md")
MEASURED = "docs/measured/"  # Pages that commands wrote, maybe long ago.

WORDS = (
    *("sealed", "nobody", "nowhere", "mend(?:s|ed|ing)?", "hands on|handed on", "comes? home", "stand-ins?"),
    *("(?:is|are|was|were|be) told(?! apart)", "(?:is|are|was|were|be) said", "loud weights", "speaks? for"),
    *("lines that speak", "as grave as", r"subjects?(?!\s*=)", "declared", "(?:level|measured|predicted):? none"),
)
"""Patterns: `subject` would be weights, `declared` an assumed level, `none` an unsupported one."""

PLAIN_ROOMS = ("hardware/",)
"""Where `PLAIN_WORDS` and the schemas are checked too; the rest of the product is to follow."""

PLAIN_WORDS = (
    *("nor (?:does|do|is|are|has|can)", "as it is", "nothing (?:here )?(?:says|tells)", "counts? for nothing"),
    *("(?:is|are|wasn't|weren't) heard", "is silent", "(?:isn't|aren't|is not) here", "holds? (?:no|none of)"),
    *("lies? (?:there|outside|beside|in the)", r"(?<!there\s)is no (?!such|longer|real)[a-z]+"),
    *("(?:optim|quant|initial|normal|special)is(?:e|es|ed|ing|ation|ations)", "behaviours?", "modelling"),
)
"""Riddles, inversions and British spelling."""

_PLAN = "the declared revisions of the checking code"
OTHER_MEANING: Mapping[str, Mapping[str, str]] = {
    "CHANGELOG.md": {"declared": "a name that changed", "sealed": "a name that changed"},
    "docs/ADDING_A_RULE.md": {"declared": "a name in older files"},
    "docs/DECISIONS.md": {"declared": _PLAN},
    "docs/EXPIRY.md": {"declared": _PLAN},
    "docs/RESOURCE_POOL.md": {"declared": "sizes that a caller declares"},
    "docs/VERDICT.md": {"declared": "a name in older files"},
    "hardware/evidence/damage.py": {"subject": "a column of evidence"},
    "hardware/evidence/declare_revisions.py": {"declared": _PLAN},
    "hardware/evidence/record.py": {"declared": _PLAN},
    "hardware/evidence/versions.py": {"declared": _PLAN},
    "hardware/testing/suite_file.py": {"declared": _PLAN},
}
"""Words with another meaning in a file, and that meaning, by file."""


def python_texts(source: str, *, documented: bool = False) -> Iterator[tuple[int, str]]:
    """Yield line and text of string literals; of docstrings those of commands, and with `documented` all public."""
    hidden: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        name, marks = getattr(node, "name", None) or "", getattr(node, "decorator_list", ())
        is_command = any(re.search(r"\b(?:command|group)\b", ast.unparse(one)) for one in marks)
        body = getattr(node, "body", None)
        if isinstance(body, list) and not is_command and (not documented or name.startswith("_")):
            hidden |= {id(one.value) for one in body if isinstance(one, ast.Expr)}
        if isinstance(node, ast.JoinedStr):
            hidden |= {id(one) for one in node.values}
            parts = (str(one.value) if isinstance(one, ast.Constant) else "{}" for one in node.values)
            yield node.lineno, "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in hidden:
            yield node.lineno, node.value


def data_texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of the string values of a TOML or JSON file."""
    waiting: list[object] = [json.loads(source) if source.startswith("{") else tomllib.loads(source)]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield source.count("\n", 0, max(source.find(one.strip().partition("\n")[0]), 0)) + 1, one
        elif isinstance(one, dict | list):
            waiting += one.values() if isinstance(one, dict) else one


def template_texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield a Jinja template without its comments; of its code the strings in double quotes remain."""
    plain = re.sub(r"\{#.*?#\}", lambda found: "\n" * found[0].count("\n"), source, flags=re.DOTALL)
    yield 1, re.sub(r"\{[%{].*?[%}]\}", lambda found: " ".join(re.findall(r'"[^"\n]*"', found[0])), plain)


def texts() -> Iterator[tuple[str, int, str]]:
    """Yield file, line and text of everything that users read."""
    listed = re.findall(r"(?m)^::: ([\w.]+)$", (ROOT / "docs/reference/python.md").read_text(encoding="utf-8"))
    public = {f"{one.replace('.', '/')}.py" for name in listed for one in (name, name.rpartition(".")[0])}
    paths = {*ROOT.glob("*.py"), *(one for top in PRODUCT for one in (ROOT / top).rglob("*"))}
    for path in sorted(paths | {one for pattern in PAGES for one in ROOT.glob(pattern)}):
        name = path.relative_to(ROOT).as_posix()
        is_schema = name.startswith(PLAIN_ROOMS) and name.endswith(".json") and path.parent.name == "schemas"
        if not (is_schema or path.suffix in (".py", ".toml", ".j2", ".md")) or name.startswith(MEASURED):
            continue
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".py":
            found = python_texts(text, documented=name in public)
        else:
            readers = {".toml": data_texts, ".json": data_texts, ".j2": template_texts}
            found = readers.get(path.suffix, lambda page: iter([(1, page)]))(text)
        yield from ((name, *one) for one in found)


def findings(name: str, line: int, text: str) -> Iterator[str]:
    """Yield each banned word in a text, with its place."""
    words = (*WORDS, *PLAIN_WORDS) if name.startswith(PLAIN_ROOMS) else WORDS
    spaced = r"(?<![\w.=-])(?:" + "|".join(words).replace(" ", r"\s+") + r")(?![\w-])"
    for found in re.finditer(spaced, text, re.IGNORECASE) if re.search(r"\s", text.strip()) else ():
        word = " ".join(found[0].lower().split())
        if word not in OTHER_MEANING.get(name, {}):
            near = " ".join(text[max(found.start() - 40, 0) : found.end() + 40].split())
            yield f"{name}:{line + text.count(chr(10), 0, found.start())}: {word!r} in: {near}"


def main() -> int:
    """Print each finding; return 1 if there is one."""
    found = [one for text in texts() for one in findings(*text)]
    print("\n".join(found or ["No banned words in the text that users read."]))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
