"""Recognize the format of a model file by its content, else by its suffix. The facts are in `file_formats.toml`."""

from __future__ import annotations

import functools
import tomllib
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .errors import BrokenInput, ModelRefused, echo
from .safe_read import is_folder, opened

_HEAD = 512
_ZIP = b"PK\x03\x04"


@dataclass(frozen=True, kw_only=True)
class FileFormat:
    """A format of model files, as `file_formats.toml` describes it; `text` is for files that aren't binary."""

    name: str
    says: str = ""
    why: str = ""
    fix: str = ""
    suffixes: tuple[str, ...] = ()
    begins: tuple[bytes, ...] = ()
    at: int = 0
    members: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    text: bool = False
    runs_code: bool = False
    error_type: str = "unsupported_format"

    def fits(self, head: bytes, members: Sequence[str]) -> bool:
        """Return whether a file's first bytes, or the names in a ZIP archive, are those of this format."""
        begins = any(head[self.at :].startswith(begin) for begin in self.begins)
        return begins or any(part in f"/{name}" for name in members for part in self.members)


@functools.cache
def formats() -> tuple[FileFormat, ...]:
    """Return all formats, in the order in which they are tried."""
    data = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["format"]
    return tuple(
        FileFormat(
            **{key: tuple(value) if isinstance(value, list) else value for key, value in one.items()}
            | {"begins": tuple(text.encode("latin-1") for text in one.get("begins", ()))}
        )
        for one in data
    )


@functools.cache
def graph_suffixes() -> tuple[str, ...]:
    """Return the suffixes of files that targets run."""
    return tuple(suffix for one in formats() if one.says for suffix in one.suffixes)


def by_suffix(name: str) -> FileFormat | None:
    """Return the format that a file's name states, None for other names."""
    return next((one for one in formats() if name.lower().endswith(one.suffixes)), None)


def format_name(path: Path) -> str:
    """Return the name in `file_formats.toml` of the format that a file's name states; empty for other names."""
    return found.name if (found := by_suffix(path.name)) else ""


def graph_format(path: Path) -> FileFormat | None:
    """Return the format of a file that targets run, None for an unknown one or a folder. Reads the first bytes, and
    the names in a ZIP archive.

    Raises `ModelRefused` for a format that none runs, `BrokenInput` for a file that can't be read or isn't what its
    name says.
    """
    shown, named = echo(path.name), by_suffix(path.name)
    if is_folder(path):
        held = (one for one in formats() if any((path / name).exists() for name in one.holds))
        found, head = None if (path / "config.json").exists() else next(held, None), b""
    else:
        head, members = _beginning(path)
        found = next((one for one in formats() if one.fits(head, members)), named)
    if found is None:
        return None
    if not found.says:
        raise ModelRefused(f"{shown} can't be tested", why=found.why, fix=found.fix, error_type=found.error_type)
    if found is not named:
        raise BrokenInput(
            f"{shown} isn't what its name says",
            why=f"it is a {found.says} file",
            fix=f"Name it *{found.suffixes[0]}.",
        )
    if not found.text and _is_text(head):
        raise BrokenInput(
            f"{shown} isn't a valid {found.says} file",
            why=f"it is text that begins with {echo(head.decode(errors='replace').strip()[:40])}",
            fix="Name the file itself; a browser may have saved a page instead.",
        )
    return found


def _beginning(path: Path) -> tuple[bytes, Sequence[str]]:
    try:
        with opened(path) as file:
            head = file.read(_HEAD)
            return head, zipfile.ZipFile(file).namelist() if head.startswith(_ZIP) else ()
    except zipfile.BadZipFile as error:
        raise BrokenInput(
            f"{echo(path.name)} is truncated",
            why="it is an archive whose list of files, at its end, is missing",
            fix="Copy it again, or export it again.",
        ) from error
    except (OSError, ValueError, NotImplementedError) as error:
        raise BrokenInput(f"{echo(path.name)} can't be read", why=" ".join(str(error).split())[:200]) from error


def _is_text(head: bytes) -> bool:
    """Return whether bytes are printable text; a character may be cut off at their end."""
    text = head.decode(errors="ignore")
    return len(text.encode()) > len(head) - 4 and all(char.isprintable() or char.isspace() for char in text)
