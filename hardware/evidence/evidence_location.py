"""The command-line option for a place of evidence: a folder or an address in object storage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..command_line import note
from ..errors import UsageError
from .address import Address, is_address, local_folder, parse_address


class EvidenceLocation(click.ParamType[Path | Address]):
    """Parse a folder to `Path`, and `s3://bucket/prefix` to `Address`: a path would lose a slash."""

    name = "place"

    def __init__(self, *, file_okay: bool = True) -> None:
        self._path = click.Path(path_type=Path, file_okay=file_okay)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path | Address:
        """Return the place. Raises `UsageError` for an invalid address and for one that contains credentials."""
        if isinstance(value, Path | Address):
            return value
        if is_address(str(value)):
            address = parse_address(str(value))
            return local_folder(address) or address
        found = self._path.convert(value, param, ctx)
        assert isinstance(found, Path)
        return found


def fetch_remote(address: Address) -> Path:
    """Return the folder with an up-to-date copy of an address, after a note about what was copied."""
    from .bucket import mirror

    done = mirror(address)
    others = f"; skipped {done.others}" if done.others else ""
    note(f"{address}: {done.objects} object(s), {done.copied} copied now to {address.copy}{others}")
    return address.copy


def split_location(place: Path | Address) -> tuple[Path, Address | None]:
    """Return the folder to read, and the address that it is a copy of, if any."""
    return (place.copy, place) if isinstance(place, Address) else (place, None)


def read_only_location(address: Address) -> UsageError:
    """Return the error for a command that would write to object storage, with the two commands to use instead."""
    return UsageError(
        f"evidence in {address} can't be changed",
        why="evidence is written line by line, and object storage only stores whole objects",
        fix=f"Use a folder: hwcompat evidence merge {address} --evidence FOLDER copies it, "
        f"hwcompat evidence publish {address} --evidence FOLDER publishes it.",
    )
