"""Pin the dependencies of our requirements in tested versions, and look up advisories for all of them.

`python -m benchmarks.dependencies constraints` prints `constraints.txt` for the current environment; `audit` queries
advisory services. A package that a service didn't check never counts as one without advisories.
"""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
WEB = ROOT / "hardware" / "workers" / "web"
CONSTRAINTS = ROOT / "constraints.txt"
NOT_ASKED = 5
_AUDIT = ("--no-deps", "--disable-pip", "--format", "json", "--progress-spinner", "off")
_HEAD = """\
# What our requirements bring along, in the versions that were tested (Linux on x86-64, Python 3.11, torch for CPU).
# pip heeds them by -c, and installs nothing because of this file. Made by: make constraints
"""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The answer of a service: how many packages it checked, their advisories, and why others weren't checked."""

    of: str
    looked_at: int = 0
    known: tuple[str, ...] = ()
    not_asked: str = ""

    @property
    def exit_code(self) -> int:
        """1 if there are advisories, else 5 if a package wasn't checked, else 0."""
        return 1 if self.known else NOT_ASKED if self.not_asked else 0

    def text(self) -> str:
        """Return a summary line and one line per advisory."""
        summary = f"{self.of}: {self.looked_at} package(s) looked at, {len(self.known)} advisories"
        return "\n  ".join([f"{summary}; NOT ASKED: {self.not_asked}" if self.not_asked else summary, *self.known])


def requirements_in(path: Path) -> Iterator[Requirement]:
    """Yield the requirements of a file."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if text := line.partition("#")[0].strip():
            yield Requirement(text)


def pinned() -> dict[str, list[Requirement]]:
    """Return what we pin, by its place: requirements.txt, or an extra or a dependency group in pyproject.toml.

    Groups that a group includes, and extras of ours that an extra includes, aren't repeated in it.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found = {"requirements.txt": list(requirements_in(ROOT / "requirements.txt"))}
    for kind, places in (
        ("extra", project["project"]["optional-dependencies"]),
        ("group", project["dependency-groups"]),
    ):
        for name, texts in places.items():
            requirements = [Requirement(text) for text in texts if isinstance(text, str)]
            found[f"{kind} {name}"] = [one for one in requirements if one.name != project["project"]["name"]]
    return found


def pinned_names() -> set[str]:
    """Return the packages that our requirements name directly."""
    return {canonicalize_name(one.name) for requirements in pinned().values() for one in requirements}


def brought_along() -> dict[str, str]:
    """Return the versions of indirect dependencies in this environment, by package name.

    Raises `PackageNotFoundError` if a package of the group `dev`, or one of its dependencies, isn't installed.
    """
    places = pinned()
    dev = ("requirements.txt", "group onnx", "group diffusion", "group dev")
    waiting = [(one.name, tuple(one.extras)) for place in dev for one in places[place]]
    seen: dict[tuple[str, tuple[str, ...]], str] = {}
    while waiting:
        name, extras = waiting.pop()
        key = (canonicalize_name(name), extras)
        if key in seen:
            continue
        found = importlib.metadata.distribution(name)
        seen[key] = found.version
        for text in found.requires or ():
            one = Requirement(text)
            if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
                waiting.append((one.name, tuple(sorted(one.extras))))
    return {name: version for (name, _), version in sorted(seen.items()) if name not in pinned_names()}


def audit_python(tool: Sequence[str], service: str) -> Asked:
    """Check every pinned Python version with a service of pip-audit."""
    ours = [*pinned().values(), [*requirements_in(CONSTRAINTS)]]
    pins = sorted({f"{canonicalize_name(one.name)}{one.specifier}" for place in ours for one in place})
    with tempfile.TemporaryDirectory(prefix="hwcompat-audit-") as folder:
        file = Path(folder) / "pins.txt"
        file.write_text("\n".join(pins) + "\n", encoding="utf-8")
        done = _run([*tool, "--requirement", str(file), "--vulnerability-service", service, *_AUDIT], ROOT)
    return read_pip_audit(done, f"Python ({service})")


def read_pip_audit(done: subprocess.CompletedProcess[str], of: str) -> Asked:
    """Parse pip-audit's JSON. Its exit code is 0 even if its service knew none of the packages."""
    rows = _json(done.stdout).get("dependencies")
    if not isinstance(rows, list):
        return Asked(of=of, not_asked=_last_line(done))
    skipped = [row for row in rows if "skip_reason" in row]
    known = [
        f"{row['name']} {row['version']}: {one['id']}, fixed in {', '.join(one['fix_versions']) or 'no version'}"
        for row in rows
        for one in row.get("vulns", ())
    ]
    why = f"{len(skipped)} of {len(rows)}, first {skipped[0]['skip_reason']}" if skipped else ""
    return Asked(of=of, looked_at=len(rows) - len(skipped), known=tuple(known), not_asked=why)


def audit_npm(tool: Sequence[str]) -> Asked:
    """Check the lock file of the browser packages with npm's registry."""
    return read_npm_audit(_run([*tool, "audit", "--json", "--package-lock-only"], WEB), "npm")


def read_npm_audit(done: subprocess.CompletedProcess[str], of: str) -> Asked:
    """Parse `npm audit --json`. Without an answer of the registry it has an error and no count."""
    answer = _json(done.stdout)
    counted = answer.get("metadata", {}).get("dependencies", {}).get("total")
    if counted is None or "vulnerabilities" not in answer:
        return Asked(of=of, not_asked=str(answer.get("message") or _last_line(done)))
    rows: Mapping[str, Mapping[str, object]] = answer["vulnerabilities"]
    return Asked(of=of, looked_at=counted, known=tuple(f"{name}: {row['severity']}" for name, row in rows.items()))


def _run(command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))


def _json(text: str) -> dict[str, object] | dict:  # type: ignore[type-arg]
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = done.stderr.strip().splitlines() or [f"it ended with {done.returncode} and said nothing"]
    return lines[-1].strip()[:300]


@click.group(help=__doc__)
def main() -> None:
    """Pin dependencies or audit them."""


@main.command("constraints", help="Print constraints.txt for this environment.")
def constraints_command() -> None:
    """Print the constraints of this environment."""
    click.echo(_HEAD + "\n".join(f"{name}=={version}" for name, version in brought_along().items()))


@main.command("audit", help="Ask services of advisories. Exit codes: 0 nothing known, 1 something, 5 not all asked.")
@click.option("--pip-audit", default="pip-audit", show_default=True, help="The program.")
@click.option("--npm", default="npm", show_default=True, help="The program.")
def audit_command(pip_audit: str, npm: str) -> None:
    """Check the Python packages, with a second service if the first doesn't answer, and the npm packages."""
    python = audit_python([pip_audit], "pypi")
    if python.not_asked:
        click.echo(python.text(), err=True)
        python = audit_python([pip_audit], "osv")
    found = [python, audit_npm([npm])]
    click.echo("\n".join(one.text() for one in found))
    codes = {one.exit_code for one in found}
    sys.exit(1 if 1 in codes else max(codes))


if __name__ == "__main__":
    main()
