"""The option that names a place of evidence: a folder, or an address in object storage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..command_line import note
from ..errors import UsageError
from .address import Address, is_address, local_folder, parse_address


class EvidencePlace(click.ParamType[Path | Address]):
    """A folder as `Path`, an address such as `s3://bucket/prefix` as `Address`. A path would lose one slash of it."""

    name = "place"

    def __init__(self, *, file_okay: bool = True) -> None:
        self._path = click.Path(path_type=Path, file_okay=file_okay)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path | Address:
        """Raises `UsageError` for an address that holds credentials, or is none."""
        if isinstance(value, Path | Address):
            return value
        if is_address(str(value)):
            address = parse_address(str(value))
            return local_folder(address) or address
        found = self._path.convert(value, param, ctx)
        assert isinstance(found, Path)
        return found


def copied_home(address: Address) -> Path:
    """The folder that holds an up-to-date copy of what lies at an address, after a note of what was copied."""
    from .bucket import mirror

    done = mirror(address)
    others = f"; {done.others} other object(s) are left out, {done.example!r} among them" if done.others else ""
    note(f"{address}: {done.objects} object(s), {done.copied} of them copied now, read in {address.copy}{others}")
    return address.copy


def split_place(place: Path | Address) -> tuple[Path, Address | None]:
    """The folder that is read, and the address that it is a copy of, if it is one."""
    return (place.copy, place) if isinstance(place, Address) else (place, None)


def no_writing_there(address: Address, own: str) -> UsageError:
    """Why a run doesn't write to object storage, with what does it in two commands."""
    return UsageError(
        f"a run can't write to {address}",
        why="evidence is kept line by line as it is measured, and an object only appears as a whole",
        fix=f"Run with a folder, then publish it: {own} --run --evidence FOLDER; "
        f"python hardware_compatibility_reporter.py --evidence FOLDER --publish {address}",
    )
