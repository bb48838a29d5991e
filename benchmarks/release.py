"""Make a release: `python -m benchmarks.release 0.2.0` checks, moves the changelog, builds, commits and tags.

Nothing is pushed, and a failing check leaves no changes. docs/RELEASING.md explains version numbers.
"""

from __future__ import annotations

import datetime
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from hardware.command_line import run_command_line
from hardware.errors import HwCompatError, UsageError, echo
from hardware.files import write_whole

ROOT = Path(__file__).parents[1]
VERSION_FILE = Path("hardware/evidence/versions.py")
CHANGELOG = Path("CHANGELOG.md")
CHECKS = (("make", "lint"), ("make", "package"))
"""Commands that must pass on the tagged tree. CI has run all tests before."""

_RELEASE = re.compile(r'(?m)^RELEASE = "(\d+)\.(\d+)\.(\d+)"$')
_VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
_UNRELEASED = "## Unreleased\n"
_BREAKING = re.compile(r"(?m)^- \*{0,2}Breaking\b")

Version = tuple[int, int, int]


class Refused(HwCompatError):
    """The tree can't become that release."""

    exit_code = 1


@dataclass(frozen=True, kw_only=True)
class Release:
    """The two changed texts of a release, and its tag."""

    version: str
    versions_py: str
    changelog: str

    @property
    def tag(self) -> str:
        return f"v{self.version}"


def parsed(text: str) -> Version:
    """Parse a semantic version without pre-release and build. Raises `UsageError` for anything else."""
    found = _VERSION.fullmatch(text)
    if found is None:
        raise UsageError(f"{echo(text)} is no version", fix="Write MAJOR.MINOR.PATCH, as 0.2.0.")
    major, minor, patch = map(int, found.groups())
    return major, minor, patch


def successors(now: Version) -> tuple[Version, Version, Version]:
    """Return the next patch, minor and major version."""
    major, minor, patch = now
    return (major, minor, patch + 1), (major, minor + 1, 0), (major + 1, 0, 0)


def prepare(version: str, *, versions_py: str, changelog: str, tags: Sequence[str], today: str) -> Release:
    """Return the changed texts. Raises `Refused` if the version doesn't follow or the changelog has no news.

    The current version may be released if it has no tag yet.
    """
    wanted = parsed(version)
    found = _RELEASE.search(versions_py)
    if found is None:
        raise Refused(f"{VERSION_FILE} has no line RELEASE")
    major, minor, patch = map(int, found.groups())
    now = (major, minor, patch)
    if f"v{version}" in tags:
        raise Refused(f"v{version} is tagged already", fix=f"Next are {_listed(successors(now))}.")
    if wanted != now and wanted not in successors(now):
        raise Refused(f"{version} doesn't follow {_text(now)}", fix=f"Next are {_listed(successors(now))}.")
    news = _unreleased(changelog)
    if _BREAKING.search(news) and wanted != now and wanted not in _breaking_versions(now):
        why = "the changelog names a breaking change"
        raise Refused(f"{version} is no version for it", why=why, fix=f"Take {_listed(_breaking_versions(now))}.")
    return Release(
        version=version,
        versions_py=_RELEASE.sub(f'RELEASE = "{version}"', versions_py),
        changelog=changelog.replace(_UNRELEASED, f"{_UNRELEASED}\n## {version} ({today})\n", 1),
    )


def _breaking_versions(now: Version) -> tuple[Version, ...]:
    """Return the next versions that may contain breaking changes: below 1.0.0 also a minor one."""
    return successors(now)[1:] if now[0] == 0 else successors(now)[2:]


def _unreleased(changelog: str) -> str:
    """Return the text under Unreleased."""
    if changelog.count(_UNRELEASED) != 1:
        raise Refused(f"{CHANGELOG} has no section Unreleased, or several")
    news = re.split(r"(?m)^## ", changelog.partition(_UNRELEASED)[2])[0]
    if not re.search(r"(?m)^- \S", news):
        raise Refused(
            f"{CHANGELOG} tells nothing under Unreleased", fix="A line for each change that a user would notice."
        )
    return news


def _text(version: Version) -> str:
    return ".".join(map(str, version))


def _listed(versions: Sequence[Version]) -> str:
    return ", ".join(map(_text, versions))


def make_release(root: Path, version: str, *, checks: Sequence[Sequence[str]], dry_run: bool) -> Release:
    """Make the release of the repository at `root`. Raises `Refused`, with the tree unchanged, if a step fails.

    With `dry_run`, only check the tree.
    """
    if changed := _git(root, "status", "--porcelain").strip():
        first = changed.splitlines()[0].strip()
        raise Refused("the tree has changes that aren't committed", why=f"first {first}", fix="Commit or stash them.")
    texts = {path: (root / path).read_text(encoding="utf-8") for path in (VERSION_FILE, CHANGELOG)}
    release = prepare(
        version,
        versions_py=texts[VERSION_FILE],
        changelog=texts[CHANGELOG],
        tags=_git(root, "tag", "--list").split(),
        today=datetime.datetime.now(datetime.UTC).date().isoformat(),
    )
    if dry_run:
        return release
    try:
        write_whole(root / VERSION_FILE, release.versions_py)
        write_whole(root / CHANGELOG, release.changelog)
        for check in checks:
            _check(root, check)
        _only_ours_changed(root)
        _git(root, "commit", "--quiet", "--message", f"Release {version}", "--", str(VERSION_FILE), str(CHANGELOG))
    except BaseException:
        for path, text in texts.items():
            write_whole(root / path, text)
        raise
    _git(root, "tag", "--annotate", release.tag, "--message", f"Release {version}")
    return release


def _only_ours_changed(root: Path) -> None:
    found = {line[3:] for line in _git(root, "status", "--porcelain").splitlines()}
    if others := found - {str(VERSION_FILE), str(CHANGELOG)}:
        raise Refused("the checks changed the tree", why=", ".join(sorted(others)))


def _check(root: Path, words: Sequence[str]) -> None:
    done = subprocess.run(words, cwd=root, stdout=sys.stderr, check=False)
    if done.returncode:
        raise Refused(f"{' '.join(words)} ended with {done.returncode}", why="nothing was committed or tagged")


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(f"git {words[0]} ended with {done.returncode}", why=" ".join(done.stderr.split()))
    return done.stdout


@click.command(help=__doc__)
@click.argument("version")
@click.option("--dry-run", is_flag=True, help="Look at the tree and say what would be done.")
def main(version: str, dry_run: bool) -> None:
    """Make a release."""
    release = make_release(ROOT, version, checks=CHECKS, dry_run=dry_run)
    steps = [f"{VERSION_FILE}: RELEASE = {release.version}", f"{CHANGELOG}: Unreleased becomes {release.version}"]
    steps += [" ".join(check) for check in CHECKS]
    if dry_run:
        click.echo("\n".join(["nothing was done; it would be:", *steps, f"git commit, git tag {release.tag}"]))
    else:
        click.echo(
            f"{release.tag} is committed and tagged here; dist/ holds its wheel and sdist. Nothing was pushed:"
        )
        click.echo(f"  git push origin HEAD {release.tag}")


if __name__ == "__main__":
    sys.exit(run_command_line(main, sys.argv[1:], program="python -m benchmarks.release"))
