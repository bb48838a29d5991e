"""Results that others published: `Row`, the importers that read rows, and safe readers for their files.

An importer is one file of `importers/`, or an entry point of the group `hwcompat.importers`. It reads a format and
judges nothing; `generators/compatibility/published_rows.py` maps rows to cells.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BrokenInput, HwCompatError, echo
from ..plain_text import one_line, size_text
from ..registry import Registry
from ..safe_read import is_folder, is_plain_file, opened, parsed_json, reason_of

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_LARGEST = 64 * 1024 * 1024
"""The maximum size of a file in bytes, decompressed. The largest known one has 1.2 MB."""

HARNESS = "harness"
"""The outcome of a row that failed because of its set-up or a download. Such rows are dropped and counted."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One published result, in the words of its source.

    `source` is the repository or package, with the file after a colon. `model` is the published name, `model_type`
    the type if the source names one; `confidence` says how it was found if that isn't certain. `device` is the SKU,
    `route` the runtime. `outcome` is a word of `published.toml`.
    """

    source: str
    model: str
    target: str
    outcome: str
    model_type: str = ""
    confidence: str = ""
    device: str = ""
    route: str = ""
    precision: str = ""
    mode: str = "inference"
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Importer:
    """A format: what it is, `rows`, which reads a file or folder, and the license of the source if it has one."""

    about: str
    rows: Callable[[Path], Iterable[Row]]
    license: str = ""


IMPORTERS: Registry[Importer] = Registry(
    group="hwcompat.importers", package=f"{__package__}.importers", kind=Importer, noun="importer"
)


def read_rows(importer: Importer, path: Path) -> list[Row]:
    """Return all rows of a file or folder. Raises `BrokenInput` if any part of it isn't of the format."""
    try:
        rows = list(importer.rows(path))
    except HwCompatError:
        raise
    except Exception as error:  # the file has another shape, or the importer is a plugin's
        why = f"{type(error).__name__}: {one_line(str(error), longest=120)}"
        raise refused(path, f"it isn't {importer.about} ({why})") from error
    if not rows:
        raise refused(path, f"it has no result; {importer.about} was expected")
    return rows


def refused(path: Path, why: str) -> BrokenInput:
    """Return the error for a file that isn't of its format."""
    return BrokenInput(f"{echo(str(path))} can't be imported", why=why)


def files_in(path: Path, *patterns: str) -> list[Path]:
    """Return the file `path`, or the files below the folder `path` that match a pattern. Raises `BrokenInput`."""
    if is_plain_file(path):
        return [path]
    if not is_folder(path):
        raise refused(path, "there is no such file or folder")
    found = sorted({one for pattern in patterns for one in path.rglob(pattern) if is_plain_file(one)})
    if not found:
        raise refused(path, f"it contains no {' or '.join(patterns)}")
    return found


def text_of(path: Path) -> str:
    """Return the text of a UTF-8 file, decompressed if it ends in .gz. Raises `BrokenInput`."""
    try:
        with opened(path) as file, gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file as plain:
            data = plain.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise ValueError(f"it is larger than {size_text(_LARGEST)}")
        return data.decode("utf-8-sig")
    except (OSError, EOFError, ValueError) as error:
        raise refused(path, reason_of(error)) from error


def csv_of(path: Path, *needed: str, delimiter: str = ",") -> Iterator[Mapping[str, str]]:
    """Yield the rows of a CSV file with a heading, without comments (#).

    Raises `BrokenInput` if the file lacks a column or a row is cut off.
    """
    reader = csv.reader(io.StringIO(text_of(path), newline=""), delimiter=delimiter, strict=True)
    try:
        heading = next(reader, [])
        if lacking := [name for name in needed if name not in heading]:
            raise refused(path, f"its first line has no column {echo(lacking[0])}")
        for row in reader:
            if not any(row) or row[0].startswith("#"):
                continue
            if len(row) != len(heading):
                raise refused(path, f"line {reader.line_num} has {len(row)} values, not {len(heading)}")
            yield dict(zip(heading, row, strict=True))
    except csv.Error as error:
        raise refused(path, f"line {reader.line_num}: {error}") from error


def json_of(path: Path) -> Any:
    """Return the value of a JSON file. Raises `BrokenInput`."""
    try:
        return parsed_json(text_of(path), finite=False)
    except ValueError as error:
        raise refused(path, reason_of(error)) from error


def yaml_of(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file of plain values. Raises `BrokenInput`, also for merge keys and tags."""
    text = text_of(path)
    try:
        import yaml
    except ImportError as error:
        raise HwCompatError("YAML can't be read", why="PyYAML isn't installed", fix="pip install pyyaml") from error
    if "<<:" in text:  # nested merges take exponential time
        raise refused(path, "it merges keys (<<)")
    try:
        found = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise refused(path, one_line(str(error), longest=160)) from error
    if not isinstance(found, dict):
        raise refused(path, "it isn't a mapping")
    return found


def xml_of(path: Path) -> Element:
    """Return the root of an XML file. Raises `BrokenInput`, also if it declares a document type or entities."""
    from xml.etree import ElementTree

    text = text_of(path)
    if "<!DOCTYPE" in text or "<!ENTITY" in text:  # entities can expand to gigabytes
        raise refused(path, "it declares a document type")
    try:
        return ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError, RecursionError) as error:
        raise refused(path, reason_of(error if isinstance(error, Exception) else ValueError())) from error


def below(path: Path, name: str) -> str:
    """Return the part of a path from the last folder `name` on, with slashes; else the file's name."""
    parts = path.parts
    places = [place for place, part in enumerate(parts) if part == name]
    return "/".join(parts[places[-1] :]) if places else path.name
