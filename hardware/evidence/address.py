"""Addresses of evidence in object storage, such as `s3://bucket/prefix`.

Credentials come from the environment or the store's own configuration: an address that contains a password or a
signature is refused and never printed.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError, echo
from ..files import cache_folder

_ADDRESS = re.compile(r"(?P<protocol>[A-Za-z][A-Za-z0-9+.-]*)://(?P<rest>.*)", re.DOTALL)
_PLAIN = re.compile(r"[A-Za-z0-9@._~!$'()*,;=/ +-]*")
_USER = re.compile(r"^[^/]*@")
_CONTAINER_BEFORE_HOST = frozenset({"abfs", "abfss", "wasb", "wasbs"})
"""Protocols of Azure, in which the part before an `@` is a container and not a user."""


@dataclass(frozen=True, kw_only=True)
class Address:
    """An address in object storage: fsspec's name of the protocol, and the rest without a slash at the end."""

    protocol: str
    rest: str

    def __str__(self) -> str:
        return f"{self.protocol}://{self.rest}"

    @property
    def copy(self) -> Path:
        """Return the folder in the cache that holds a copy of the objects. Raises `OutputError`."""
        return cache_folder("object-storage") / hashlib.sha256(str(self).encode()).hexdigest()[:24]


def is_address(text: str) -> bool:
    """Whether a text is meant as an address and not as a path."""
    return _ADDRESS.fullmatch(text) is not None or "::" in text


def parse_address(text: str) -> Address:
    """Return the address in a text. Raises `UsageError`, which repeats nothing that may be a secret."""
    found = _ADDRESS.fullmatch(text)
    if found is None or "::" in text:
        raise UsageError("not an evidence address", fix="For example: s3://bucket/prefix")
    protocol, rest = found["protocol"].lower(), found["rest"].rstrip("/")
    user, at, _ = rest.partition("/")[0].rpartition("@")
    if "?" in rest or "#" in rest or ":" in user or (at and protocol not in _CONTAINER_BEFORE_HOST):
        raise UsageError(
            f"the address {shown(text)} contains more than a location",
            why="credentials and signatures don't belong in an address: it is printed and stored in commands",
            fix="Set them in the store's own variables or files, for example AWS_PROFILE or AWS_ACCESS_KEY_ID.",
        )
    parts = rest.split("/")
    if (not parts[0] and protocol not in ("memory", "file", "local")) or ".." in parts or not _PLAIN.fullmatch(rest):
        raise UsageError(f"{shown(text)} is not an evidence address", fix="For example: s3://bucket/prefix")
    return Address(protocol=protocol, rest=rest)


def shown(text: str) -> str:
    """Return an address without its user, its password and everything after a question mark."""
    found = _ADDRESS.fullmatch(text)
    if found is None:
        return echo(text.partition("?")[0])
    rest = re.split(r"[?#]", found["rest"], maxsplit=1)[0]
    return echo(f"{found['protocol']}://{_USER.sub('…@', rest)}")


def local_folder(address: Address) -> Path | None:
    """Return the folder that an address on this machine's own disk names, or None for any other address."""
    if address.protocol not in ("file", "local"):
        return None
    return Path("/" + address.rest.lstrip("/"))
