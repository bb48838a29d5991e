"""What the site does with pages of a repository: those above docs/ come along, links to source become names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
ABOVE = {"README.md": "OVERVIEW.md", "CHANGELOG.md": "CHANGELOG.md", "CONTRIBUTING.md": "CONTRIBUTING.md",
         "SECURITY.md": "SECURITY_REPORTING.md"}  # fmt: skip
"""Pages above docs/, and what they are called on the site."""

MATRIX, MODELS = (ROOT / "hwcompat-out" / name for name in ("matrix.html", "models.md"))
"""The pages with every cell and every model; `make docs` has them made."""
_ABOUT = "measured/compatibility.md"

_LINK = re.compile(r"(?P<before>!?)\[(?P<text>[^\]]*)\]\((?P<to>[^()\s#]*)(?P<anchor>#[^()\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages above docs/, with their links made from there."""
    made = {MODELS.name: MODELS.read_text(encoding="utf-8")}
    for name, called in ABOVE.items():
        text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
        made[called] = _linked(text, ROOT, Path(called), above=True)
    for called, content in made.items():
        file = File.generated(config, called, content=content)
        file.inclusion = file.inclusion.NOT_IN_NAV
        files.append(file)
    files.append(File.generated(config, MATRIX.name, content=MATRIX.read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links out of docs/ go to the pages that came along, or become the names of files; the matrix has its page."""
    del config, files
    uri = Path(page.file.src_uri)
    if uri.as_posix() in (MODELS.name, *ABOVE.values()):
        return markdown
    linked = _linked(markdown, ROOT / "docs" / uri.parent, uri, above=False)
    if uri.as_posix() == _ABOUT:
        link = f"[Every cell](../{MATRIX.name}){{ .md-button }} [By model](../{MODELS.name}){{ .md-button }}"
        return linked.replace("\n## ", f"\n{link}\n\n## ", 1)
    return linked


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Name the theme's search dialog for screen readers."""
    del page, config
    dialog = 'data-md-component="search" role="dialog"'
    return output.replace(dialog, f'{dialog} aria-label="Search"')


def _linked(markdown: str, folder: Path, uri: Path, *, above: bool) -> str:
    def changed(match: re.Match[str]) -> str:
        to = match["to"]
        if not to or re.match(r"[a-z][a-z0-9+.-]*:", to):
            return match[0]
        there = (folder / to).resolve()
        if above and (ROOT / "docs" / to).exists():
            there = (ROOT / "docs" / to).resolve()
        if there.parent == ROOT and there.name in ABOVE:
            up = "../" * len(uri.parent.parts)
            return f"{match['before']}[{match['text']}]({up}{ABOVE[there.name]}{match['anchor'] or ''})"
        inside = there.is_relative_to(ROOT / "docs") and not there.is_relative_to(ROOT / "docs" / "ci")
        inside = inside and there.suffix != ".html"
        if inside and there.is_file() and not there.is_relative_to(ROOT / "docs" / "evidence"):
            return match[0]
        if there.is_relative_to(ROOT):
            return f"{match['text']} (`{there.relative_to(ROOT).as_posix()}`)"
        return match[0]

    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else _LINK.sub(changed, part) for part in parts)
