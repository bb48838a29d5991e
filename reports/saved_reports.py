"""Write reports into folders, and read earlier ones to compare with; such a file is untrusted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hwcompat.hardware.errors import BrokenInput, echo
from hwcompat.hardware.files import write_whole, writing
from hwcompat.hardware.safe_read import read_json, reason_of
from hwcompat.hardware.values import data_file

LARGEST = 256 * 1024 * 1024


def keep(text: str, folder: Path, name: str, option: str = "--output-dir") -> Path:
    """Write a text completely or not at all into a folder, which is created if needed; links aren't followed.

    Raises `OutputError`; `option` is what sets another folder.
    """
    path = folder / name
    with writing(f"{echo(str(path))} can't be written", f"Name another folder with {option}."):
        folder.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            raise OSError("the path is a link, and links are not followed")
        write_whole(path, text)
    return path


def read_kept(
    path: Path,
    schema: Path,
    noun: str,
    fix: str,
    *,
    only: Sequence[str] = (),
    renew: Callable[[Any], Any] = lambda data: data,
) -> dict[str, Any]:
    """Read the JSON object of a file and validate it; with `only` these parts alone.

    `renew` converts an older version that is still read. Raises `BrokenInput` with `fix`; `noun` names what was
    expected.
    """
    import jsonschema

    name = echo(path.name)
    try:
        data = renew(read_json(path, longest=LARGEST))
    except OSError as error:
        raise BrokenInput(f"{name} can't be read", why=reason_of(error), fix=fix) from error
    except ValueError as error:
        raise BrokenInput(f"{name} is not JSON", why=reason_of(error), fix=fix) from error
    rules = data_file(schema)
    wanted = rules["properties"]["schema_version"]["const"]
    given = data.get("schema_version") if isinstance(data, dict) else None
    if isinstance(given, int) and given != wanted:
        newer = "Use the version of hwcompat that created it, or a newer one."
        raise BrokenInput(
            f"{name} is a {noun} of schema version {given}",
            why=f"this version reads {wanted}",
            fix=newer if given > wanted else fix,
        )
    if isinstance(data, dict) and "compatibility" in data and "compatibility" not in rules["properties"]:
        raise BrokenInput(f"{name} is not a {noun}", why="it is a matrix", fix=fix)
    if only:
        parts = {part: rules["properties"][part] for part in ("schema_version", *only)}
        rules = rules | {"properties": parts, "required": list(parts), "additionalProperties": True}
    for wrong in jsonschema.Draft202012Validator(rules).iter_errors(data):
        place = "" if wrong.json_path == "$" else f"{echo(wrong.json_path)}: "
        raise BrokenInput(f"{name} is not a {noun}", why=f"{place}{echo(wrong.message)}", fix=fix)
    return dict(data)
