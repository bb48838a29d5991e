"""A release is made of a clean tree that tells what is new, under a version that follows, and whole or not at all."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks.release import CHANGELOG, VERSION_FILE, Refused, make_release, prepare, successors
from hardware.errors import UsageError

NEWS = "# Changelog\n\n## Unreleased\n- Something new.\n"
PASSES, FAILS, WRITES = ("true",), ("false",), ("touch", "left-behind")


def git(root: Path, *words: str) -> str:
    own = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.org")
    return subprocess.run(["git", *own, *words], cwd=root, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "somebody")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "somebody@example.org")
    (tmp_path / VERSION_FILE).parent.mkdir(parents=True)
    (tmp_path / VERSION_FILE).write_text('X = "1"\nRELEASE = "0.1.0"\n')
    (tmp_path / CHANGELOG).write_text(NEWS)
    git(tmp_path, "init", "--quiet", "--initial-branch", "main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    return tmp_path


def test_a_release_is_a_commit_with_a_tag(tree: Path) -> None:
    make_release(tree, "0.2.0", checks=[PASSES], dry_run=False)
    assert git(tree, "status", "--porcelain") == ""
    assert git(tree, "log", "--format=%s", "-1") == "Release 0.2.0\n"
    assert git(tree, "rev-parse", "v0.2.0^{commit}") == git(tree, "rev-parse", "HEAD")
    assert git(tree, "cat-file", "-t", "v0.2.0") == "tag\n"  # annotated
    assert (tree / VERSION_FILE).read_text() == 'X = "1"\nRELEASE = "0.2.0"\n'
    told = (tree / CHANGELOG).read_text()
    assert told.startswith("# Changelog\n\n## Unreleased\n\n## 0.2.0 (20")
    assert told.endswith(")\n- Something new.\n")
    with pytest.raises(Refused, match="tells nothing under Unreleased"):
        make_release(tree, "0.3.0", checks=[PASSES], dry_run=False)


def test_what_fails_or_is_only_tried_leaves_no_trace(tree: Path) -> None:
    before = git(tree, "rev-parse", "HEAD")
    assert make_release(tree, "0.2.0", checks=[WRITES], dry_run=True).tag == "v0.2.0"
    for check, why in ((FAILS, "false ended with 1"), (WRITES, "the checks changed the tree")):
        with pytest.raises(Refused, match=why):
            make_release(tree, "0.2.0", checks=[PASSES, check], dry_run=False)
    assert git(tree, "status", "--porcelain") == "?? left-behind\n"
    with pytest.raises(Refused, match=r"aren't committed: first \?\? left-behind"):
        make_release(tree, "0.2.0", checks=[PASSES], dry_run=False)
    assert (git(tree, "rev-parse", "HEAD"), git(tree, "tag")) == (before, "")


def _prepared(version: str, *, release: str = "0.1.0", changelog: str = NEWS, tags: tuple[str, ...] = ()) -> str:
    text = f'RELEASE = "{release}"\n'
    return prepare(version, versions_py=text, changelog=changelog, tags=tags, today="2026-01-01").versions_py


def test_only_a_version_that_follows_is_taken_once() -> None:
    for version in ("0.1.0", "0.1.1", "0.2.0", "1.0.0"):
        assert _prepared(version) == f'RELEASE = "{version}"\n'
    for version in ("0.1.2", "0.3.0", "0.2.1", "0.0.9", "2.0.0"):
        with pytest.raises(Refused, match=r"Next are 0\.1\.1, 0\.2\.0, 1\.0\.0"):
            _prepared(version)
    for version in ("v0.2.0", "0.2", "0.2.0rc1", "00.2.0", "", "latest"):
        with pytest.raises(UsageError, match="is no version"):
            _prepared(version)
    with pytest.raises(Refused, match=r"v0\.1\.0 is tagged already"):
        _prepared("0.1.0", tags=("v0.1.0",))
    assert successors((1, 2, 3)) == ((1, 2, 4), (1, 3, 0), (2, 0, 0))


def test_the_changelog_has_news_and_a_breaking_change_needs_a_version_that_says_so() -> None:
    broken = NEWS + "- Breaking: an option is gone.\n"
    for release, patch, taken in (("0.4.1", "0.4.2", "0.5.0"), ("1.4.1", "1.5.0", "2.0.0")):
        with pytest.raises(Refused, match="names a breaking change"):
            _prepared(patch, release=release, changelog=broken)
        assert _prepared(taken, release=release, changelog=broken) == f'RELEASE = "{taken}"\n'
    for changelog in ("# Changelog\n", "## Unreleased\n\n## 0.1.0\n- Old.\n", NEWS + NEWS):
        with pytest.raises(Refused, match="Unreleased"):
            _prepared("0.2.0", changelog=changelog)
