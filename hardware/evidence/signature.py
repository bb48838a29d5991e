"""Sign a folder of evidence with an SSH key, and check such a signature.

Anyone who can write the folder can renew a seal (`seals.py`), but not a signature. OpenSSH signs (`ssh-keygen -Y`,
OpenSSH 8.0 and later), and nothing is sent anywhere.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from ..errors import BrokenInput, HwCompatError, UsageError, echo
from ..files import write_whole
from ..process import run
from ..safe_read import opened, read_text, reason_of
from .parquet import compacted_files

MANIFEST = "evidence.sha256"
SIGNATURE = f"{MANIFEST}.sig"
NAMESPACE = "hwcompat-evidence"
"""The namespace of the signature in OpenSSH: signatures of other data aren't accepted as evidence."""

_LONGEST = 64 * 1024 * 1024
_LIMIT_S = 60


@dataclass(frozen=True, kw_only=True)
class Checked:
    """The result of a check: who signed, and the files that were changed, removed or added since."""

    signer: str
    files: int
    changed: tuple[str, ...]
    missing: tuple[str, ...]
    added: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        """Whether the folder holds exactly what was signed."""
        return not (self.changed or self.missing or self.added)


def sign_evidence(folder: Path, key: Path) -> int:
    """Write the manifest of a folder's evidence and its signature. Return the number of files in it.

    `key` is a private SSH key, or a public one whose private key an agent holds. Raises `UsageError` if the folder
    holds no evidence, `HwCompatError` if OpenSSH doesn't sign.
    """
    digests = _digests(folder)
    if not digests:
        raise UsageError(f"no evidence in {echo(str(folder))}", fix="Give the evidence folder.")
    manifest = folder / MANIFEST
    write_whole(manifest, "".join(f"{digest}  {name}\n" for name, digest in digests.items()))
    (folder / SIGNATURE).unlink(missing_ok=True)
    _ssh_keygen(["sign", "-f", str(key), "-n", NAMESPACE, str(manifest)])
    return len(digests)


def check_evidence(folder: Path, signers: Path, identity: str) -> Checked:
    """Check the signature of a folder's evidence, and the folder against what was signed.

    `signers` is a file of allowed signers in OpenSSH's format, and `identity` names the signer. Raises `BrokenInput`
    if there is no valid signature of the manifest by that identity.
    """
    manifest = folder / MANIFEST
    try:
        text = read_text(manifest, longest=_LONGEST)
    except (OSError, ValueError) as error:
        why = "the folder was never signed" if isinstance(error, FileNotFoundError) else reason_of(error)
        raise BrokenInput(f"{echo(str(folder))} has no signature", why=why) from error
    signature = ["-f", str(signers), "-I", identity, "-n", NAMESPACE, "-s", str(folder / SIGNATURE)]
    try:
        _ssh_keygen(["verify", *signature], text)
    except HwCompatError as error:
        raise BrokenInput(f"the signature of {echo(str(folder))} isn't valid", why=error.why or error.what) from error
    signed = {name: digest for line in text.splitlines() for digest, _, name in [line.partition("  ")] if name}
    there = _digests(folder)
    return Checked(
        signer=identity,
        files=len(signed),
        changed=tuple(name for name in sorted(signed.keys() & there.keys()) if signed[name] != there[name]),
        missing=tuple(sorted(signed.keys() - there.keys())),
        added=tuple(sorted(there.keys() - signed.keys())),
    )


def _digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of evidence below a folder by its relative path."""
    found = {}
    for path in sorted([*folder.glob("*.jsonl"), *compacted_files(folder)]):
        with opened(path) as file:
            found[path.relative_to(folder).as_posix()] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def _ssh_keygen(words: list[str], given: str = "") -> None:
    try:
        # In our session: only there can it ask for a passphrase at the terminal.
        command = ["ssh-keygen", "-Y", *words]
        done = run(command, limit_s=_LIMIT_S, given=given.encode(), own_session=False)
    except FileNotFoundError as error:
        raise HwCompatError("ssh-keygen was not found", fix="Install OpenSSH 8.0 or later.") from error
    if done.timed_out:
        raise HwCompatError(f"ssh-keygen took longer than {_LIMIT_S} s", why="it may be waiting for a passphrase")
    if done.returncode:
        raise HwCompatError("ssh-keygen failed", why=" ".join((done.stderr or done.stdout).split())[:300])
