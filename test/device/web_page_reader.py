"""Opens a page of checks as somebody would who has a keyboard and nothing else, and says what happened.

Runs with the Python of the web targets' environment: `web_page_reader.py '{"page": …}'`. Prints one JSON object.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TABS = 12


def focused(page: Any) -> str:
    """The id of the element that has the focus."""
    return str(page.evaluate("document.activeElement?.id ?? ''"))


def tab_to(page: Any, wanted: str) -> list[str]:
    """Press Tab until an element has the focus; the ids on the way."""
    seen = []
    for _ in range(TABS):
        page.keyboard.press("Tab")
        seen.append(focused(page))
        if seen[-1] == wanted:
            break
    return seen


def rows(page: Any) -> dict[str, str]:
    """What the page says of each check."""
    found: dict[str, str] = page.evaluate(
        "Object.fromEntries([...document.querySelectorAll('[id^=outcome-]')]"
        ".map((one) => [one.id.slice(8), one.textContent]))"
    )
    return found


def outline(page: Any) -> str:
    """How the focus is shown."""
    return str(page.evaluate("getComputedStyle(document.activeElement).outlineStyle"))


OVERLAPS = """[...document.querySelectorAll('ul.rows > li')].flatMap((row) => {
  const boxes = [...row.children].filter((one) => one.textContent).map((one) => [one, one.getBoundingClientRect()]);
  return boxes.flatMap(([one, a], place) => boxes.slice(place + 1)
    .filter(([, b]) => a.width && b.width)
    .filter(([, b]) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)
    .map(([other]) => `${one.textContent} over ${other.textContent}`));
})"""


def read(page: Any, asked: dict[str, Any]) -> dict[str, Any]:
    """Open, start, wait, save; all by keyboard."""
    said: list[str] = []
    fetched: list[str] = []
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"[:300]))
    page.on("pageerror", lambda error: said.append(f"pageerror: {error}"[:300]))
    page.on("request", lambda request: fetched.append(request.url))
    page.goto(asked["page"])
    found: dict[str, Any] = {"script": page.evaluate("document.getElementById('needs-script') === null")}
    if not asked.get("script", True):
        return {**found, "text": page.inner_text("main"), "rows": {}}
    found["way"] = tab_to(page, "run")
    found["outline"] = outline(page)
    found["before"] = rows(page)
    page.keyboard.press("Enter")
    page.locator("#saving").wait_for(timeout=240_000)
    found |= {
        "verdict": page.inner_text("#verdict"),
        "rows": rows(page),
        "live": page.get_attribute("#verdict", "aria-live"),
    }
    found["way back"] = tab_to(page, "save")
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    file = Path(asked["folder"]) / download.value.suggested_filename
    download.value.save_as(file)
    found |= {
        "file": str(file),
        "wide": page.evaluate("document.documentElement.scrollWidth"),
        "overlaps": page.evaluate(OVERLAPS),
        "facts": page.inner_text("#facts"),
        "said": said,
        "fetched": [one for one in fetched if not one.startswith(("blob:", "data:"))],
        "text": page.inner_text("main"),
    }
    if shot := asked.get("screenshot"):
        page.evaluate("scrollTo(0, 0)")
        page.screenshot(path=shot, full_page=asked.get("full", False))
    return found


def main() -> None:
    """Answer one question."""
    sys.path.insert(0, str(ROOT / "hardware" / "workers"))
    import browsers  # type: ignore[import-not-found]

    asked = json.loads(sys.argv[1])
    with browsers.playwright() as driver:
        browser = browsers.launch(driver, asked["api"], Path(asked["program"]), software=asked.get("software", True))
        context = browser.new_context(
            viewport={"width": asked.get("width", 1000), "height": asked.get("height", 800)},
            accept_downloads=True,
            color_scheme=asked.get("colours", "light"),
            reduced_motion="reduce",
            java_script_enabled=asked.get("script", True),
        )
        for script in asked.get("before", ()):
            context.add_init_script(script)
        print(json.dumps(read(context.new_page(), asked)))
        browser.close()


if __name__ == "__main__":
    main()
