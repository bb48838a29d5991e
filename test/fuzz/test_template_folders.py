"""Folders of templates from anywhere (--template-dir): generating from one runs none of its code, reads no file
beside it and ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hostile import DATA
from watched import Opened, Sentinel, Surroundings, invoked, refused_or

from generators.recipes.on_demand import recipe_for
from generators.suites import user_templates
from generators.suites.manifest import generation_key
from generators.suites.render import TEMPLATES, render
from hardware.cell import Cell
from hardware.errors import UsageError
from hardware.target import Target

CELL = Cell(model="bert", task="fill-mask", target=Target(name="cpu"))
NAME = "encoder-only.py.j2"
OURS = (TEMPLATES / NAME).read_text(encoding="utf-8") + (TEMPLATES / "suite.py.j2").read_text(encoding="utf-8")

ESCAPES = DATA["template_escapes"]
BOMBS = (*DATA["template_bombs"], "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", "x" * 5_000_000)


def rendered(folder: Path) -> str:
    return render(recipe_for("bert"), CELL, [], template_folder=folder)


def test_no_expression_reaches_python(place: Path, sentinel: Sentinel) -> None:
    for expression in ESCAPES:
        filled = expression.replace("{sentinel}", str(sentinel.path))
        for template in (
            f"{{{{ {filled} | string | literal }}}}",
            f"{{% set a = {filled} %}}",
            f"{{% if {filled} %}}{{% endif %}}x",
        ):
            (place / NAME).write_text(template)
            try:
                text = rendered(place)
            except UsageError:
                continue
            assert [word for word in ("<class", "<function", "0x") if word in text] == [], expression
        sentinel.check()


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda text: text[:40])
def test_a_template_that_asks_for_too_much_ends(place: Path, bomb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_templates, "_SECONDS", 2.0)
    (place / NAME).write_text(bomb)
    with pytest.raises(UsageError, match="encoder-only"):
        rendered(place)


@pytest.mark.fuzz(40)
def test_a_template_is_rendered_or_refused(fuzz: Any, place: Path, sentinel: Sentinel) -> None:
    around = Surroundings(place.parent, place)
    made = []

    for hostile in fuzz:
        lines = OURS.splitlines(keepends=True)
        for _ in range(hostile.randint(1, 4)):
            at = hostile.randrange(len(lines))
            escape = hostile.choice(ESCAPES).replace("{sentinel}", str(sentinel.path))
            lines[at] = hostile.choice(
                (f"{hostile.text()}\n", f"{{{{ {escape} | code }}}}\n", lines[-at], "{% raw %}\n")
            )
        data = "".join(lines).encode(errors="surrogatepass")
        (place / NAME).write_bytes(hostile.bytes(data) if hostile.random() < 0.2 else data)
        made.append(refused_or(rendered, place))
    around.check()


def test_no_link_leads_out_of_the_folder(place: Path) -> None:
    outside = place.parent / "outside"
    outside.mkdir()
    (outside / "secret.j2").write_text("very-secret-text")
    (place / "linked").symlink_to(outside)
    (place / "linked.j2").symlink_to(outside / "secret.j2")
    for name in ("../outside/secret.j2", "linked/secret.j2", "/etc/hostname", "linked.j2"):
        (place / NAME).write_text(f"{{% include '{name}' %}}")
        with pytest.raises(UsageError) as error:
            rendered(place)
        assert "very-secret-text" not in str(error.value)


def test_a_folder_with_links_to_nowhere_is_generated_from(place: Path, sentinel: Sentinel) -> None:
    (place / "templates").mkdir()
    (place / "templates" / "nothing.json").symlink_to("/nowhere")
    (place / "templates" / "evil.py").write_text(f"open({str(sentinel.path)!r}, 'w')")
    assert generation_key({}, {}, [], place / "templates")
    words = ["generate", "--model", "bert", "--device", "cpu", "--output-dir", str(place / "out")]
    with Opened(place / "templates") as opened:
        code, _, _ = invoked(*words, "--template-dir", str(place / "templates"))
    assert code == 0
    assert not opened.names
