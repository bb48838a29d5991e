"""Render a sealed page as one HTML file with everything embedded; its content security policy forbids the rest."""

from __future__ import annotations

import base64
import gzip
import re
from pathlib import Path

from markupsafe import Markup

from hwcompat.hardware import workers
from hwcompat.hardware.errors import ModelError
from hwcompat.hardware.files import PRODUCT
from hwcompat.hardware.testing.checks import all_checks
from hwcompat.reports.html.page import environment, hash_source, moment

from .page_seal import SealedPage

LARGEST = 64 * 2**20
"""The maximum size of a page in bytes. Unpacking takes several times as much memory, so larger pages crash tabs on
phones."""

_PACKED_WEIGHTS = 0.5
"""The best compression of a trained model's float32 weights, as a share of their size: gzip leaves 0.92, or 0.55 if
they were float16 before. Base64 adds a third."""

_EVALUATED = {"webgpu": "'wasm-unsafe-eval'", "webnn": "'wasm-unsafe-eval' 'unsafe-eval'"}
"""Code that the runtime evaluates: WebAssembly, and for WebNN generated callers of a browser's methods."""

_FOLDER = Path(__file__).parent
_OF_THE_WORKER = Path(workers.__file__).parent / "web"
SCRIPTS = (
    *(_OF_THE_WORKER / name for name in ("placement.mjs", "session.mjs", "adapters.mjs")),
    *(_FOLDER / name for name in ("compare.js", "runtime.js", "device.js", "checks.js", "verdict.js", "page.js")),
)
"""The page's scripts in order; those that run models are also used by the browser targets."""

_EXPORT = re.compile(r"^export ", re.MULTILINE)
_STYLES = (PRODUCT / "reports" / "html" / "style.css", _FOLDER / "page.css")
_BUILDS = "the runtime creates sessions of the model's files on this device"


def render(page: SealedPage) -> str:
    """Return the page's text. Raises `ModelError` if it would be larger than `LARGEST`, with its sizes."""
    sealed = page.sealed
    data = embedded(page)
    total = sum(len(text) for text in data.values())
    if total > LARGEST:
        models = sum(map(len, page.suite.files))
        raise _too_large(total, f"its {len(page.suite.files)} model files have {models / 2**20:.0f} MiB")
    script = script_text()
    style = "".join(path.read_text(encoding="utf-8") for path in _STYLES)
    says = {one.name: one.says for one in all_checks()} | {"builds": _BUILDS}
    policy = (
        f"default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; style-src {hash_source(style)}; "
        f"script-src {hash_source(script)} blob: {_EVALUATED[sealed['target']['api']]}"
    )
    return (
        environment(_FOLDER)
        .get_template("page.html.j2")
        .render(
            policy=Markup(policy),
            style=Markup(style),
            script=Markup(script),
            seal=Markup(page.text),
            data=[{"name": name, "text": Markup(text)} for name, text in data.items()],
            check=sealed["check"],
            checks=[{"name": name, "says": says.get(name, "")} for name in sealed["run"]["plan"][0]["checks"]],
            known=sealed["known"],
            api=sealed["target"]["api"],
            size=sealed["check"]["subject"],
            weights=_weights_text(page),
            tolerance=sealed["tolerance"],
            sealed_at=moment(sealed["sealed_at"]),
            page_id=page.id,
            command=sealed["run"]["command"],
            runtime=sealed["runtime"]["version"],
        )
    )


def require_small(weights: int) -> None:
    """Raise `ModelError` if the weights (in bytes) alone make the page too large, also compressed. Checked before the
    export, which takes minutes."""
    least = int(weights * _PACKED_WEIGHTS * 4 / 3)
    if least > LARGEST:
        raise _too_large(least, f"its weights have {weights / 2**20:.0f} MiB before compression")


def _too_large(size: int, why: str) -> ModelError:
    return ModelError(
        f"the page would have {size / 2**20:.0f} MiB or more, and the maximum is {LARGEST / 2**20:.0f} MiB",
        why=why,
        fix="Pass the model's type instead of a checkpoint: its tiny model proves operators and numerics.",
    )


def script_text() -> str:
    """Return the page's own script: its concatenated files."""
    return '"use strict";\n' + "\n".join(map(plain_script, SCRIPTS))


def plain_script(path: Path) -> str:
    """Return a script's text for a page without modules, with its exports as globals for the next scripts."""
    return _EXPORT.sub("", path.read_text(encoding="utf-8"))


def embedded(page: SealedPage) -> dict[str, str]:
    """Return the embedded data of a page by name, compressed with gzip, in base64. Deterministic."""
    named = {
        "script": page.runtime.script,
        "wasm": page.runtime.wasm,
        "inputs": page.suite.inputs,
        "expected": page.suite.expected,
        **{f"model-{number}": data for number, data in enumerate(page.suite.files)},
    }
    packed = {name: gzip.compress(data, compresslevel=6, mtime=0) for name, data in named.items()}
    return {name: base64.b64encode(data).decode("ascii") for name, data in packed.items()}


def _weights_text(page: SealedPage) -> str:
    parameters = page.sealed["parameters"]
    counted = f", {parameters:,} parameters" if parameters else ""
    if page.sealed["check"]["subject"] == "tiny":
        return f"tiny{counted}, seeded test weights: proves operators and numerics, not size"
    return f"{page.sealed['check']['subject']}{counted}"
