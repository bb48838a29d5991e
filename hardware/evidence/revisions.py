"""Declared revisions of the checking code, which expire evidence or exclude it.

`revisions.toml` divides the checking code into parts. Each part has a revision, which a developer raises when the
part decides something differently, and the fingerprints of its files that were declared for each revision. Evidence
carries both: it expires with the revision, and it doesn't count if the fingerprint was never declared. `python -m
hardware.evidence.revisions check` reports changed parts (`declare_revisions.py`).
"""

from __future__ import annotations

import fnmatch
import functools
import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from ..files import package_files
from ..target import Target
from .record import PlannedCell

ROOT = Path(__file__).parents[2]
"""The folder of the package `hardware`: a checkout, or the package `hwcompat` of an installation or a bundle."""

REVISIONS = Path(__file__).with_name("revisions.toml")
PACKED = "evidence/packed_parts.json"
"""In a bundle's package `hardware`: the versions of parts without files there, from when it was packed."""

PREFIX = "checker/"
"""The prefix of parts among the versions of a run."""

CHECK = "check "
BACKEND = "backend "
SUITES = "suites"
COMMON = ("runner", "reference", "backends", SUITES)
"""The parts that every result rests on."""

EXPORT = "export"

_PREFIX = r"\b(?:[rbuf]|rb|br|fr|rf)"
_STRINGS = (
    r'"""(?:\\.|[^\\])*?"""',
    r"'''(?:\\.|[^\\])*?'''",
    r'"(?:\\.|[^"\\\n])*"',
    r"'(?:\\.|[^'\\\n])*'",
)
_TOKENS = re.compile(
    rf"(?P<comment>#[^\n]*)|(?P<string>(?i:{_PREFIX})?(?:{'|'.join(_STRINGS)}))|(?P<joined>\\\n)|(?P<mark>[\n()\[\]{{}}])",
    re.DOTALL,
)
_REST_OF_LINE = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\n|\Z)")


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """A declared fingerprint: its revision, the decision (`first`, `bumped` or `same behavior`) and the reason."""

    fingerprint: str
    revision: int
    decision: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class RevisionPart:
    """A part of the checking code: its revision, patterns of its files, and the declared fingerprints.

    A pattern that starts with `!` excludes files; `*` matches slashes too.
    """

    name: str
    revision: int
    files: tuple[str, ...]
    fingerprints: tuple[Fingerprint, ...]

    def holds(self, name: str) -> bool:
        """Whether a file belongs to this part, by its name below the root."""
        outside = [pattern[1:] for pattern in self.files if pattern.startswith("!")]
        return _fits(name, [one for one in self.files if not one.startswith("!")]) and not _fits(name, outside)

    def declares(self, fingerprint: str, revision: int) -> bool:
        """Whether a fingerprint was declared for a revision."""
        return any((one.fingerprint, one.revision) == (fingerprint, revision) for one in self.fingerprints)


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """The value of evidence from before revisions were declared, on some targets: `revisions` of those parts that
    aren't at the first one.

    `hwcompat` is the version in that evidence, with the hash of its code; `templates` is the digest of its templates,
    from which the field `made_from` of old plans follows.
    """

    hwcompat: str
    targets: tuple[str, ...]
    revisions: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    templates: str = ""
    date: str = ""
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Revisions:
    """The content of `revisions.toml`."""

    parts: tuple[RevisionPart, ...]
    earlier: tuple[Earlier, ...] = ()

    def part(self, name: str) -> RevisionPart | None:
        """Return the part with a name, or None."""
        return next((one for one in self.parts if one.name == name), None)


@functools.cache
def load_revisions(path: Path = REVISIONS) -> Revisions:
    """Read `revisions.toml`."""
    plain = tomllib.loads(path.read_text(encoding="utf-8"))
    return Revisions(
        parts=tuple(
            RevisionPart(
                name=one["name"],
                revision=one["revision"],
                files=tuple(one["files"]),
                fingerprints=tuple(Fingerprint(**each) for each in one["fingerprints"]),
            )
            for one in plain["part"]
        ),
        earlier=tuple(Earlier(**(one | {"targets": tuple(one["targets"])})) for one in plain.get("earlier", ())),
    )


# Fingerprints


def checking_files(root: Path = ROOT) -> dict[str, Path]:
    """Return the files that parts are made of, by their names in a checkout.

    These are the package `hardware`, the templates of suites, and the code that renders them. A bundle has only the
    first.
    """
    templates = root / "templates"
    found = {f"hardware/{name}": path for name, path in package_files(root / "hardware").items()}
    found |= {f"templates/{path.relative_to(templates).as_posix()}": path for path in templates.rglob("*.j2")}
    found |= {f"generators/suites/{path.name}": path for path in (root / "generators" / "suites").glob("*.py")}
    return dict(sorted(found.items()))


def fingerprint_of(files: Mapping[str, bytes]) -> str:
    """Return the fingerprint of files by name: 12 hexadecimal digits.

    Comments, docstrings, blank lines and trailing whitespace don't count. The result doesn't depend on Python's
    version.
    """
    digest = hashlib.sha256()
    for name, data in sorted(files.items()):
        digest.update(f"{name}\0".encode() + normalized(name, data) + b"\0")
    return digest.hexdigest()[:12]


def normalized(name: str, data: bytes) -> bytes:
    """Return the part of a file that counts: code of Python, values of TOML, all of a template but its comments."""
    suffix = name.rpartition(".")[2]
    if suffix not in ("py", "toml", "j2"):
        return data
    text = data.decode("utf-8").replace("\r\n", "\n")
    if suffix == "toml":
        return json.dumps(tomllib.loads(text), sort_keys=True, default=str).encode()
    if suffix == "j2":
        return re.sub(r"\{#.*?#\}", "", text, flags=re.DOTALL).encode()
    return _code_alone(text).encode()


def _code_alone(source: str) -> str:
    """Return Python source without comments, string statements, blank lines and trailing whitespace.

    Python's own tokenizer differs between versions, so that the few tokens needed are found here.
    """
    kept: list[str] = []
    text: list[str] = []
    end = depth = 0
    begins = True  # nothing but whitespace yet in the logical line
    for token in _TOKENS.finditer(source):
        between, end = source[end : token.start()], token.end()
        text.append(between)
        begins = begins and not between.strip()
        if token["comment"] is not None:
            continue
        if token["string"] is not None:
            is_text = "f" not in token[0][:2].lower()  # a formatted string may call something
            if begins and depth == 0 and is_text and _REST_OF_LINE.match(source, end):
                continue
            text.append(f"\0{len(kept)}\0")
            kept.append(token["string"])
            begins = False
            continue
        text.append(token[0])
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(token[0], 0)
        begins = token[0] == "\n" and depth == 0
    text.append(source[end:])
    lines = (line.rstrip() for line in "".join(text).split("\n"))
    code = "\n".join(line for line in lines if line)
    return re.sub("\0(\\d+)\0", lambda found: kept[int(found[1])], code)


@functools.cache
def part_fingerprints(root: Path = ROOT) -> Mapping[str, str]:
    """Return the fingerprint of each part that has files below `root`, by name."""
    files = checking_files(root)
    needed = {part.name: [name for name in files if part.holds(name)] for part in load_revisions(_file(root)).parts}
    contents = {name: files[name].read_bytes() for name in {one for names in needed.values() for one in names}}
    return MappingProxyType(
        {part: fingerprint_of({name: contents[name] for name in names}) for part, names in needed.items() if names}
    )


@functools.cache
def checker_versions(root: Path = ROOT) -> Mapping[str, str]:
    """Return the versions of the checking code below `root`: `<revision>+<fingerprint>` by `checker/<part>`.

    In a bundle, parts without files have the versions from when it was packed.
    """
    packed = root / "hardware" / PACKED
    elsewhere = json.loads(packed.read_text(encoding="utf-8")) if packed.is_file() else {}
    here = part_fingerprints(root)
    return MappingProxyType(
        {
            PREFIX + part.name: f"{part.revision}+{here[part.name]}"
            if part.name in here
            else str(elsewhere.get(part.name, f"{part.revision}+missing"))
            for part in load_revisions(_file(root)).parts
        }
    )


def packed_parts() -> dict[str, str]:
    """Return the versions of parts with files outside the package `hardware`, which `PACKED` holds."""
    inside = [name for name in checking_files() if name.startswith("hardware/")]
    outside = [part.name for part in load_revisions().parts if not any(map(part.holds, inside))]
    return {name: checker_versions()[PREFIX + name] for name in outside}


def _file(root: Path) -> Path:
    own = root / "hardware" / "evidence" / REVISIONS.name
    return own if own.is_file() else REVISIONS


def _fits(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


# Comparison


def revision_of(value: str) -> str:
    """Return the revision in a value such as `2+0123456789ab`, which alone expires evidence."""
    return value.partition("+")[0]


def parts_for(target: Target, check: str = "", *, exports: bool = True) -> tuple[str, ...]:
    """Return the names of the parts that a result on a target depends on, with that of its check if it is named."""
    parts = [*COMMON, BACKEND + target.name, *([EXPORT] if exports else []), *([CHECK + check] if check else [])]
    known = {part.name for part in load_revisions().parts}
    return tuple(name for name in parts if name in known)


def modified_parts(versions: Mapping[str, str]) -> tuple[str, ...]:
    """Return the parts whose code in a run was never declared: its results don't count.

    Parts that this version doesn't have are among them. Older evidence without any parts has none.
    """
    return _undeclared(tuple(item for item in versions.items() if item[0].startswith(PREFIX)))


@functools.lru_cache(maxsize=64)
def _undeclared(parts: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    found = []
    for name, value in parts:
        part = load_revisions().part(name.removeprefix(PREFIX))
        revision, _, fingerprint = value.partition("+")
        if part is None or not revision.isdecimal() or not part.declares(fingerprint, int(revision)):
            found.append(name.removeprefix(PREFIX))
    return tuple(sorted(found))


def is_older(versions: Mapping[str, str]) -> bool:
    """Whether a run is from before revisions were declared."""
    return not any(name.startswith(PREFIX) for name in versions)


def earlier_revisions(versions: Mapping[str, str], target: Target) -> Mapping[str, int] | None:
    """Return the revisions of parts that aren't at the first one in older evidence of a target.

    None if no entry covers it.
    """
    version = versions.get("hwcompat", "")
    found = (one for one in load_revisions().earlier if one.hwcompat == version and target.name in one.targets)
    return next((one.revisions for one in found), None)


def earlier_made_from(digest: str) -> frozenset[str]:
    """Return the values of the field `made_from` of older plans whose suite was made from the recipe with this digest
    (empty if none is kept) and from templates of an entry `earlier`."""
    return frozenset(
        hashlib.sha256(digest.encode() + bytes.fromhex(one.templates)).hexdigest()[:16]
        for one in load_revisions().earlier
        if one.templates
    )


def recipe_moved(planned: PlannedCell, digest: str | None) -> bool:
    """Whether the recipe of a planned suite has changed; False if unknown.

    `digest` is that of today's recipe, empty if the weights aren't tiny and no recipe is kept. The field `made_from`
    of older plans is compared with its value for today's recipe.
    """
    if digest is None:
        return False
    if planned.recipe is not None:
        return planned.recipe != digest
    return planned.made_from is not None and planned.made_from not in earlier_made_from(digest)


def knows_check(versions: Mapping[str, str], check: str) -> bool:
    """Whether the code of a run had a check, by the versions that the run states."""
    return PREFIX + CHECK + check in versions


def suite_revisions(checks: Sequence[str], versions: Mapping[str, str] | None = None) -> str:
    """Return the template revisions of a suite with these checks as the suite states them: `suites 1`, and each check
    whose revision isn't 1. Without `versions`, today's."""
    found = checker_versions() if versions is None else versions
    names = [SUITES, *(CHECK + check for check in checks)]
    stated = {name: revision_of(found.get(PREFIX + name, "1")) for name in names}
    return ", ".join(f"{name} {one}" for name, one in stated.items() if name == SUITES or one != "1")


if __name__ == "__main__":
    from .declare_revisions import main

    main()
