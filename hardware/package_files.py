"""The files that this package is made of: what a bundle carries, and what evidence expires with."""

from __future__ import annotations

from pathlib import Path

SUFFIXES = frozenset({".py", ".toml", ".json", ".ini", ".html", ".css", ".js", ".mjs", ".typed"})
"""Kinds of files of this package. Whatever else lies in its folders (bytecode, an editor's copy) is none of it."""


def package_files(root: Path) -> dict[str, Path]:
    """The files of the package at `root` by their names below it, with slashes, in the order of these names.

    Empty where there is no such folder.
    """
    found = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.suffix in SUFFIXES}
    return {name: path for name, path in sorted(found.items()) if path.is_file()}
