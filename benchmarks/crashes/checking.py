"""Invariants of the folders of a run, checked by a reader that is independent of the product.

The raw files are parsed with the standard library alone. Each function returns violations as sentences, or an empty
list.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

OUTCOMES = {
    *("passed", "passed_on_fallback", "ambiguous", "failed", "crashed"),
    *("timeout", "out_of_memory", "skipped", "not_run"),
}
BREAKDOWNS = {"crashed", "timeout", "out_of_memory"}
Line = Mapping[str, Any]
_WIDTHS = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2}


@dataclass
class Raw:
    """The raw lines of a folder of evidence by file. `torn` lists files whose last line is incomplete, `broken`
    earlier lines that can't be parsed."""

    bytes_of: dict[str, bytes] = field(default_factory=dict)
    lines: list[dict[str, Any]] = field(default_factory=list)
    digests: set[str] = field(default_factory=set)
    torn: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """Return the lines of one kind."""
        return [line for line in self.lines if line.get("kind") == kind]


def read_raw(folder: Path) -> Raw:
    """Read a folder of evidence; a missing folder is empty."""
    found = Raw()
    for path in sorted(folder.glob("*.jsonl")):
        data = found.bytes_of[path.name] = path.read_bytes()
        *whole, rest = data.split(b"\n")
        if rest:
            found.torn.append(path.name)
        for number, text in enumerate(whole, start=1):
            try:
                line = json.loads(text)
                if not isinstance(line, dict) or line.get("kind") not in ("run", "check", "end"):
                    raise ValueError("it is no line of evidence")
            except ValueError as error:
                found.broken.append(f"{path.name}, line {number}: {error}")
                continue
            found.lines.append(line)
            found.digests.add(hashlib.sha256(text).hexdigest())
    return found


def lost(raw: Raw, acknowledged: Path) -> list[str]:
    """Return acknowledged lines that are missing."""
    notes = [line.split() for path in sorted(acknowledged.glob("*.ack")) for line in path.read_text().splitlines()]
    return [f"a line of {name} was acknowledged and is gone" for digest, name in notes if digest not in raw.digests]


def changed(before: Raw, after: Raw) -> list[str]:
    """Return files that no longer start with their earlier bytes."""
    return [
        f"{name} was changed or is gone"
        for name, data in before.bytes_of.items()
        if not after.bytes_of.get(name, b"").startswith(data)
    ]


def half_lines(raw: Raw, killed: bool) -> list[str]:
    """Return incomplete lines that aren't allowed: in the middle of a file, or anywhere if no process was killed."""
    torn = [] if killed else [f"{name} ends in half a line, and nobody was killed" for name in raw.torn]
    return [*raw.broken, *torn]


def untold(raw: Raw) -> list[str]:
    """Return inconsistencies of runs: planned checks without a line in a complete run, checks with two lines, lines
    of unplanned checks or of another suite, and wrong counts."""
    found: list[str] = []
    ends = {line["run_id"]: line for line in raw.of_kind("end")}
    runs = raw.of_kind("run")
    checks: dict[str, list[dict[str, Any]]] = {}
    for line in raw.of_kind("check"):
        checks.setdefault(line["run_id"], []).append(line)
    for run in runs:
        found += _untold_of(run, checks.get(run["run_id"], []), ends.get(run["run_id"]))
    strangers = {*checks, *ends} - {run["run_id"] for run in runs}
    return [*found, *(f"run {name} has lines and no plan" for name in sorted(strangers))]


def _untold_of(
    run: Mapping[str, Any], lines: Sequence[Mapping[str, Any]], end: Mapping[str, Any] | None
) -> list[str]:
    name = run["run_id"]
    hashes = {cell["cell_id"]: cell["suite_hash"] for cell in run["plan"]}
    planned = {(cell["cell_id"], check) for cell in run["plan"] for check in cell["checks"]}
    lines_of: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        lines_of.setdefault((line["cell_id"], line["check_name"]), []).append(line)
    found = [f"{name}: {key} was not planned" for key in sorted(set(lines_of) - planned)]
    for key, own in sorted(lines_of.items()):
        outcomes = [line["outcome"] for line in own]
        if len(own) > 1 and not BREAKDOWNS & set(outcomes):
            found.append(f"{name}: {key} has {len(own)} lines")
        if set(outcomes) - OUTCOMES:
            found.append(f"{name}: {key} has an outcome that there isn't")
        if any(line["outcome"] == "not_run" and not line["error_message"] for line in own):
            found.append(f"{name}: {key} did not run, and nothing says why")
        if key[0] in hashes and {line["suite_hash"] for line in own} != {hashes[key[0]]}:
            found.append(f"{name}: {key} is of another suite than the one planned")
    if end is not None:
        found += [f"{name} has its end, and {key} has no line" for key in sorted(planned - set(lines_of))]
        counts = Counter(line["outcome"] for line in lines)
        if dict(counts) != dict(end["counts"]):
            found.append(f"{name} ends with the counts {end['counts']}, and its lines are {dict(counts)}")
    return found


def unfinished(raw: Raw) -> set[str]:
    """Return runs without an end that no other run resumes."""
    ended = {line["run_id"] for line in raw.of_kind("end")}
    ended |= {name for run in raw.of_kind("run") for name in run["resumes"]}
    return {run["run_id"] for run in raw.of_kind("run")} - ended


def incomplete(raw: Raw, wanted: Mapping[str, Sequence[str]]) -> list[str]:
    """Return cells for which no run completed all `wanted` checks, and unfinished runs."""
    whole = set()
    for run in raw.of_kind("run"):
        for cell in run["plan"]:
            done = {
                line["check_name"]
                for line in raw.of_kind("check")
                if (line["run_id"], line["cell_id"]) == (run["run_id"], cell["cell_id"])
                and line["outcome"] != "not_run"
            }
            if set(wanted.get(cell["cell_id"], ())) <= done:
                whole.add(cell["cell_id"])
    found = [f"{cell} was never carried out whole" for cell in sorted(set(wanted) - whole)]
    return [*found, *(f"run {name} is not over" for name in sorted(unfinished(raw)))]


def half_files(folder: Path, suites: Mapping[str, bytes]) -> list[str]:
    """Return incomplete files of suites, reports and cache; `suites` has the expected text of each suite."""
    found = [
        f"suites/{path.name} is not what was generated"
        for path in sorted((folder / "suites").glob("*.py"))
        if suites.get(path.name) != path.read_bytes()
    ]
    found += [why for path in sorted((folder / "reports").glob("[!.]*")) if (why := _wrong_report(path))]
    cache = folder / "cache"
    kept = [path for path in sorted(cache.rglob("*")) if path.is_file() and not path.name.startswith(".")]
    own = [path for path in kept if "exports" not in path.parts]
    found += [why for path in own if (why := _wrong_kept(path))]
    return [*found, *(why for one in sorted((cache / "exports").glob("[!.]*")) if (why := wrong_export(one)))]


def leftovers(folder: Path) -> list[str]:
    """Return leftovers of a killed process that no reader uses: partial files, work folders, temporary folders."""
    parts = [path for path in folder.rglob("*.part") if path.is_file()]
    work = [*(folder / "cache").glob("exports/export-*"), *(folder / "tmp").glob("hwcompat-*")]
    return sorted(str(path.relative_to(folder)) for path in (*parts, *work))


def _wrong_report(path: Path) -> str:
    data = path.read_bytes()
    try:
        if path.suffix in (".json", ".sarif"):
            json.loads(data)
        elif path.suffix == ".xml":
            ElementTree.fromstring(data)
        elif path.suffix == ".html" and not data.rstrip().endswith(b"</html>"):
            return f"{path.name} has no end"
        elif path.suffix == ".md":
            report = json.loads(path.with_suffix(".json").read_bytes()) if path.with_suffix(".json").exists() else {}
            if not data.endswith(b"\n") or not all(
                one["cell"].encode() in data for one in report.get("verdicts", ())
            ):
                return f"{path.name} is cut off"
    except (ValueError, ElementTree.ParseError) as error:
        return f"{path.name} is broken: {error}"
    return ""


def _wrong_kept(path: Path) -> str:
    if path.suffix == ".part":
        return ""  # No reader uses it.
    data = path.read_bytes()
    try:
        if path.suffix == ".json":
            json.loads(data)
        elif path.suffix == ".safetensors":
            return wrong_safetensors(path.name, data)
    except ValueError as error:
        return f"{path.name} is broken: {error}"
    return ""


def wrong_safetensors(name: str, data: bytes) -> str:
    """Return why bytes aren't a complete safetensors file, or an empty string. The header gives the length of the
    file, its shapes and offsets the length of each tensor."""
    if len(data) < 8:
        return f"{name} has no header"
    (length,) = struct.unpack("<Q", data[:8])
    try:
        header = json.loads(data[8 : 8 + length])
    except ValueError as error:
        return f"{name} has a broken header: {error}"
    header.pop("__metadata__", None)
    end = 0
    for tensor, facts in header.items():
        size = _WIDTHS.get(facts["dtype"], 1)
        for axis in facts["shape"]:
            size *= axis
        begin, stop = facts["data_offsets"]
        if stop - begin != size:
            return f"{name}: {tensor} has {stop - begin} bytes and not {size}"
        end = max(end, stop)
    return "" if len(data) == 8 + length + end else f"{name} has {len(data)} bytes and not {8 + length + end}"


def wrong_export(folder: Path) -> str:
    """Return why a folder of the cache isn't a complete export; an empty string for complete ones and work folders.

    A compressed model is stored with the facts of its original export.
    """
    if not folder.is_dir() or folder.name.startswith(("export-", "int8-")) or "-int8-" in folder.name:
        return ""
    try:
        facts = json.loads((folder / "verified.json").read_bytes())
    except (OSError, ValueError) as error:
        return f"export {folder.name} lacks its facts: {type(error).__name__}"
    for name, digest in facts["files"].items():
        path = folder / name
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            return f"export {folder.name}: {name} is not what was verified"
    return ""


def wrong_zip(path: Path) -> str:
    """Return why a file isn't a complete zip file, or an empty string."""
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
            return f"{path.name}: {broken} is broken" if broken else ""
    except zipfile.BadZipFile as error:
        return f"{path.name}: {error}"
