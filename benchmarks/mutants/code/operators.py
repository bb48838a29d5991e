"""The operators on our own code: each finds its sites in a file and their replacements.

The faults can turn a failure into a pass: a guard that never holds, an error that isn't raised, a failure reported as
a pass, a missing filter, a constant answer, a lost item, a tolerance ten times as wide.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Edit:
    """A replacement of the characters from `start` to `end` by `text`; `where` names the function."""

    start: int
    end: int
    text: str
    where: str


@dataclass(frozen=True, kw_only=True)
class Operator:
    """A kind of fault. `sites` yields its possible edits of a source text."""

    name: str
    describe: str
    suffix: str
    sites: Callable[[str], Iterator[Edit]]


_FRIENDLIER = {
    "Outcome": {"FAILED": "PASSED", "AMBIGUOUS": "PASSED", "SKIPPED": "PASSED", "NOT_RUN": "PASSED"}
    | dict.fromkeys(("PASSED_ON_FALLBACK", "CRASHED", "TIMEOUT", "OUT_OF_MEMORY"), "PASSED"),
    "Level": {"UNSUPPORTED": "HIGH", "LOW": "HIGH", "MEDIUM": "HIGH", "UNKNOWN": "HIGH"},
    "Basis": {"EXPIRED": "MEASURED", "PREDICTED": "MEASURED", "IMPORTED": "MEASURED", "ASSUMED": "MEASURED"},
    "Severity": {"CRITICAL": "INFO", "ERROR": "INFO", "WARNING": "INFO"},
}
"""Members of our enumerations, and the more favorable one."""

_TURNED: Mapping[type[ast.cmpop], tuple[str, str]] = {
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Lt: ("<", ">="),
    ast.LtE: ("<=", ">"),
    ast.Gt: (">", "<="),
    ast.GtE: (">=", "<"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
}
_SEQUENCE = re.compile(r"(?:list|Sequence)\[|tuple\[.*, \.\.\.\]$")
"""Annotations of sequences."""


class _Source:
    """A text with its tree, the offsets of nodes, and the enclosing functions."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self._lines = [0]
        for line in text.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._rows = text.splitlines(keepends=True)
        self._names: dict[ast.AST, str] = {}
        self._name(self.tree, "")

    def _name(self, node: ast.AST, name: str) -> None:
        for child in ast.iter_child_nodes(node):
            inner = name
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{name}.{child.name}".strip(".")
            self._names[child] = inner
            self._name(child, inner)

    def offset(self, row: int, column: int) -> int:
        """Return the offset of an `ast` position: rows from 1, columns in bytes."""
        return self._lines[row - 1] + len(self._rows[row - 1].encode()[:column].decode())

    def edit(self, node: ast.expr | ast.stmt, text: str) -> Edit:
        """Return the edit that replaces a node."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return Edit(
            start=self.offset(node.lineno, node.col_offset),
            end=self.offset(node.end_lineno, node.end_col_offset),
            text=text,
            where=self._names.get(node, "") or "the module",
        )

    def between(self, left: ast.expr, right: ast.expr, old: str, new: str) -> Edit | None:
        """Return the edit that replaces the word `old` between two expressions."""
        start, end = self.edit(left, "").end, self.edit(right, "").start
        pattern = re.compile(rf"\b{old}\b" if old[0].isalpha() else re.escape(old))
        found = pattern.search(self.text, start, end)
        if found is None:
            return None
        return Edit(start=found.start(), end=found.end(), text=new, where=self._names.get(left, "") or "the module")

    def walk(self) -> Iterator[ast.AST]:
        """Yield every node in the order of the text."""
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.expr) or not _is_text(node):
                yield node


def _is_text(node: ast.expr) -> bool:
    """Whether an expression is a text without anything to break."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _leaves(body: list[ast.stmt]) -> bool:
    return isinstance(body[-1], ast.Raise | ast.Return | ast.Continue | ast.Break)


def _guards(text: str, word: str) -> Iterator[Edit]:
    source = _Source(text)
    for node in source.walk():
        if isinstance(node, ast.If) and _leaves(node.body) and not _is_type_checking(node.test):
            yield source.edit(node.test, word)


def _is_type_checking(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def _comparisons(text: str) -> Iterator[Edit]:
    source = _Source(text)
    for node in source.walk():
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            old, new = _TURNED[type(node.ops[0])]
            if edit := source.between(node.left, node.comparators[0], old.replace(" ", r"\s+"), new):
                yield edit


def _connectives(text: str) -> Iterator[Edit]:
    source = _Source(text)
    for node in source.walk():
        if isinstance(node, ast.BoolOp):
            old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
            # The whole chain, or the grouping would change.
            if len(node.values) == 2 and (edit := source.between(node.values[0], node.values[1], old, new)):
                yield edit


def _raises(text: str) -> Iterator[Edit]:
    source = _Source(text)
    for node in source.walk():
        if isinstance(node, ast.Raise) and node.exc is not None:
            yield source.edit(node, "pass")


def _calls(text: str) -> Iterator[Edit]:
    source = _Source(text)
    for node in source.walk():
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield source.edit(node, "pass")


def _members(text: str) -> Iterator[Edit]:
    source = _Source(text)
    for node in source.walk():
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            better = _FRIENDLIER.get(node.value.id, {}).get(node.attr)
            if better:
                yield source.edit(node, f"{node.value.id}.{better}")


def _filters(text: str) -> Iterator[Edit]:
    source = _Source(text)
    for node in source.walk():
        if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            for test in (one for generator in node.generators for one in generator.ifs):
                yield source.edit(test, "True")


def _functions(source: _Source) -> Iterator[tuple[str, ast.Return]]:
    """Yield each `return` with the annotation of its function."""
    for node in source.walk():
        if isinstance(node, ast.FunctionDef) and node.returns is not None:
            kind = ast.unparse(node.returns)
            inner = {
                one
                for nested in ast.walk(node)
                if nested is not node and _is_function(nested)
                for one in ast.walk(nested)
            }
            yield from (
                (kind, one)
                for one in ast.walk(node)
                if isinstance(one, ast.Return) and one.value is not None and one not in inner
            )


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)


def _answers(text: str) -> Iterator[Edit]:
    source = _Source(text)
    for kind, node in _functions(source):
        assert node.value is not None
        if kind == "bool":
            yield from (source.edit(node.value, word) for word in ("True", "False"))
        elif kind.endswith("| None") and not _is_none(node.value):
            yield source.edit(node.value, "None")


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _items(text: str) -> Iterator[Edit]:
    source = _Source(text)
    for kind, node in _functions(source):
        assert node.value is not None
        empty = isinstance(node.value, ast.List | ast.Tuple) and not node.value.elts
        if _SEQUENCE.match(kind) and not empty:
            whole = source.edit(node.value, "")
            yield source.edit(node.value, f"({text[whole.start : whole.end]})[:-1]")


def _numbers(text: str) -> Iterator[Edit]:
    """Yield numbers assigned to names of a module or class."""
    source = _Source(text)
    for node in source.walk():
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant):
            value = node.value.value
            if isinstance(value, int | float) and not isinstance(value, bool) and value:
                yield source.edit(node.value, repr(value * 10))


def _lost_tables(text: str) -> Iterator[Edit]:
    """Yield removals of whole tables in TOML lists: a rule, a check, a tolerance."""
    for found in re.finditer(r"^\[\[[\w.]+\]\]\n(?:(?!^\[).*\n?)*", text, re.MULTILINE):
        yield Edit(start=found.start(), end=found.end(), text="", where=_table(text, found.start()))


def _raised_levels(text: str) -> Iterator[Edit]:
    for found in re.finditer(r'^(at_most|level) = "(unsupported|none|low|medium|unknown)"', text, re.MULTILINE):
        yield Edit(start=found.start(2), end=found.end(2), text="high", where=_table(text, found.start()))


def _loosened(text: str) -> Iterator[Edit]:
    for found in re.finditer(r"^[\w.]+ = ([0-9][0-9.e+-]*)\s*(?:#.*)?$", text, re.MULTILINE):
        if float(found[1]):
            yield Edit(
                start=found.start(1),
                end=found.end(1),
                text=repr(float(found[1]) * 10),
                where=_table(text, found.start()),
            )


def _narrowed(text: str) -> Iterator[Edit]:
    """Yield removals of the last item of TOML lists."""
    for found in re.finditer(r'(, "[^"\n]*")(?=\])', text):
        yield Edit(start=found.start(), end=found.end(), text="", where=_table(text, found.start()))


def _table(text: str, offset: int) -> str:
    """Return the id or heading of the TOML table at an offset."""
    headings = list(re.finditer(r"^\[.*$", text[: offset + 1] + text[offset + 1 :].partition("\n")[0], re.MULTILINE))
    begin = headings[-1].start() if headings else 0
    rest = text[begin:]
    following = re.search(r"\n\[", rest)
    body = rest[: following.start() + 1] if following else rest
    named = re.search(r'^(?:id|name) = "([^"]*)"', body, re.MULTILINE)
    return named[1] if named else (headings[-1][0] if headings else "the file")


OPERATORS: Mapping[str, Operator] = {
    one.name: one
    for one in (
        Operator(
            name="guard_never",
            describe="an early way out is never taken",
            suffix=".py",
            sites=lambda t: _guards(t, "False"),
        ),
        Operator(
            name="guard_always",
            describe="an early way out is always taken",
            suffix=".py",
            sites=lambda t: _guards(t, "True"),
        ),
        Operator(
            name="comparison_turned", describe="a comparison says the opposite", suffix=".py", sites=_comparisons
        ),
        Operator(name="and_or", describe="`and` and `or` exchanged", suffix=".py", sites=_connectives),
        Operator(name="error_swallowed", describe="an error isn't raised", suffix=".py", sites=_raises),
        Operator(
            name="call_dropped", describe="a call whose result nobody takes isn't made", suffix=".py", sites=_calls
        ),
        Operator(
            name="called_better",
            describe="an outcome, level, basis or severity is replaced by a better one",
            suffix=".py",
            sites=_members,
        ),
        Operator(
            name="filter_gone",
            describe="a comprehension takes what it should leave out",
            suffix=".py",
            sites=_filters,
        ),
        Operator(
            name="answer_fixed",
            describe="a question is answered the same way always: yes, no or nothing",
            suffix=".py",
            sites=_answers,
        ),
        Operator(
            name="item_lost", describe="a list that is given back lacks its last item", suffix=".py", sites=_items
        ),
        Operator(
            name="number_tenfold",
            describe="a number that has a name is ten times as large",
            suffix=".py",
            sites=_numbers,
        ),
        Operator(
            name="table_lost",
            describe="a rule, a check or another table is missing",
            suffix=".toml",
            sites=_lost_tables,
        ),
        Operator(name="level_raised", describe="a rule says `high`", suffix=".toml", sites=_raised_levels),
        Operator(
            name="number_loosened",
            describe="a number of the data is ten times as large",
            suffix=".toml",
            sites=_loosened,
        ),
        Operator(
            name="list_narrowed", describe="a list of the data lacks its last item", suffix=".toml", sites=_narrowed
        ),
    )
}
"""All operators, in the order of the tables."""
