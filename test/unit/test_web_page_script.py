"""The page's script and its twins in Python, on the same arrays. Needs Node.js."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from in_node import asked, needs_node

from hardware.compare import ReferenceNotFinite, compare
from hardware.software import SOFTWARE_ADAPTERS, TOLD, adapter_conditions, adapter_name, is_software
from hwcompat.plugins.web_page.render_page import SCRIPTS

pytestmark = needs_node


def flat(array: Any) -> dict[str, Any]:
    kind = "int64" if array.dtype.kind in "iu" else "float64"
    return {"type": kind, "dims": list(array.shape), "data": array.ravel().tolist()}


def both(got: Any, want: Any, mask: Any = None, required: tuple[str, ...] = ("logits",)) -> tuple[Any, Any]:
    """The errors that Python and the page measure, or the name of what they raise."""
    masks = {"logits": mask} if mask is not None else {}
    try:
        found = compare({"logits": got}, {"logits": want}, masks=masks, required=required)
        own: Any = found.max_rel_error, found.max_abs_error
    except ReferenceNotFinite as error:
        own = type(error).__name__
    given = {
        "got": {"logits": flat(got)},
        "want": {
            "outputs": {"logits": flat(want)},
            "masks": {name: flat(one) for name, one in masks.items()},
            "required": list(required),
        },
    }
    said = asked("parity.js", "({ got, want }) => compare(got, want)", given)
    numbers = [float(str(said.get(name)).replace("Infinity", "inf")) for name in ("rel", "abs") if name in said]
    page = said.get("error") or tuple(numbers)
    return own, page


RANDOM = np.random.default_rng(0)
WANT = RANDOM.normal(size=(2, 5, 7))
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]])
NEAR = WANT + RANDOM.normal(size=WANT.shape) * 1e-6
BEHIND_THE_MASK = np.where(MASK[..., None] == 1, NEAR, 100.0)
RULED_OUT = np.where(RANDOM.random(WANT.shape) < 0.2, -np.inf, WANT)


def odd(value: float, array: Any = NEAR) -> Any:
    changed = array.copy()
    changed[0, 1, 2] = value
    return changed


@pytest.mark.parametrize(
    ("got", "want", "mask"),
    [
        pytest.param(NEAR, WANT, None, id="near"),
        pytest.param(NEAR, WANT, MASK, id="near, under a mask"),
        pytest.param(BEHIND_THE_MASK, WANT, MASK, id="wrong where the mask says so"),
        pytest.param(BEHIND_THE_MASK, WANT, None, id="wrong"),
        pytest.param(NEAR, WANT, MASK[:, :3], id="a mask that is shorter than its output"),
        pytest.param(odd(math.nan), WANT, None, id="not a number"),
        pytest.param(odd(math.inf), WANT, None, id="infinite"),
        pytest.param(NEAR, odd(math.nan, WANT), None, id="a reference that isn't finite"),
        pytest.param(np.where(np.isneginf(RULED_OUT), -np.inf, NEAR), RULED_OUT, None, id="ruled out by both"),
        pytest.param(NEAR, RULED_OUT, None, id="ruled out by one"),
        pytest.param(NEAR[:1], WANT, None, id="another shape"),
        pytest.param(np.array([3.0001]), np.array([3.0]), None, id="a number alone"),
        pytest.param(np.full((4,), 2.5), np.full((4,), 2.0), None, id="a number repeated"),
        pytest.param(np.zeros((3,)) + 1e-9, np.zeros((3,)), None, id="nothing but zeros"),
        pytest.param(np.arange(6), np.arange(6), None, id="whole numbers"),
        pytest.param(np.arange(6) + 1, np.arange(6), None, id="other whole numbers"),
        pytest.param(NEAR, WANT, np.zeros_like(MASK), id="nothing to compare"),
    ],
)
def test_the_page_measures_the_error_that_we_measure(got: Any, want: Any, mask: Any) -> None:
    own, page = both(got, want, mask)
    assert page == (own if isinstance(own, str) else pytest.approx(own, rel=1e-9))


def test_an_output_that_is_missing_is_an_infinite_error() -> None:
    own, page = both(NEAR, WANT, required=("logits", "states"))
    assert own == page == (math.inf, math.inf)


def test_recorded_numbers_are_read_at_their_places() -> None:
    step = {
        "output": "logits",
        "values": [[[1, 4, 6], float(WANT[1, 4, 6])], [[0, 2, 1], float(WANT[0, 2, 1])]],
        "scale": 2,
    }
    given = {"got": {"logits": flat(WANT)}, "step": step}
    call = "({ got, step }) => recordedError(got, step)"
    assert asked("parity.js", call, given)["rel"] == 0
    given["got"]["logits"]["data"][-1] += 0.5
    assert asked("parity.js", call, given)["rel"] == pytest.approx(0.25)
    given["got"]["logits"]["data"][-1] = math.nan
    assert asked("parity.js", call, given)["rel"] == "Infinity"


ADAPTERS = [
    ({"vendor": "google", "architecture": "swiftshader"}, True),
    ({"vendor": "Google", "device": "0xC0DE"}, True),
    ({"vendor": "microsoft", "device": "0x008c"}, True),
    ({"vendor": "microsoft", "description": "Microsoft Basic Render Driver"}, True),
    ({"vendor": "microsoft", "architecture": "warp"}, True),
    ({"vendor": "mesa", "description": "llvmpipe (LLVM 19, 256 bits)"}, True),
    ({"description": "softpipe"}, True),
    ({"description": "Mesa Software Rasterizer"}, True),
    ({"description": "Virtio-GPU Venus (llvmpipe (LLVM 19))"}, True),
    ({"vendor": "intel", "architecture": "xe", "fallback": True}, True),
    ({"vendor": "nvidia", "architecture": "ampere"}, False),
    ({"vendor": "nvidia", "description": "GeForce WARPstation"}, False),
    ({"vendor": "amd", "description": "AMD Software: Adrenalin Edition"}, False),
    ({"vendor": "qualcomm", "device": "0x8c"}, False),
    ({"vendor": "microsoft", "device": "0x8c0"}, False),
    ({"description": "Virtio-GPU Venus (NVIDIA A10)"}, False),
    ({"description": "Apple Paravirtual device"}, False),
    ({"device": "0x1234"}, False),
    ({}, False),
]


@pytest.mark.parametrize(("told", "software"), ADAPTERS)
def test_the_page_says_of_an_adapter_what_we_say(told: dict[str, Any], software: bool) -> None:
    facts = {**dict.fromkeys(TOLD, ""), "fallback": False, **told}
    given = {"facts": facts, "target": {"software": SOFTWARE_ADAPTERS}}
    page = asked("session.mjs adapters.mjs device.js", "({ facts, target }) => adapterTold(facts, target)", given)
    assert is_software(facts) is page["software"] is software
    assert adapter_name(facts) == page["name"]
    assert adapter_conditions(facts) == page["said"]
    assert bool({"stands_in", "requested"} & set(page["said"])) is (software or not told)


def test_the_device_is_the_one_that_computed_whatever_adapter_was_described() -> None:
    described = {**dict.fromkeys(TOLD, ""), "vendor": "nvidia", "architecture": "ampere", "fallback": False}
    call = """({ described, target, info }) => {
      gpu.info = info;
      return deviceRan(adapterTold({ ...described, features: ["one"] }, target), target);
    }"""
    scripts, target = "session.mjs adapters.mjs device.js", {"software": SOFTWARE_ADAPTERS}
    software = {"vendor": "google", "architecture": "swiftshader", "isFallbackAdapter": True}
    given = {"described": described, "target": target, "info": software}
    found = asked(scripts, call, given)
    assert found["name"] == "google swiftshader (software)"
    assert found["said"]["stands_in"]
    assert "features" not in found["facts"]
    for info in (None, {"vendor": "nvidia", "architecture": "ampere"}):
        found = asked(scripts, call, {**given, "info": info})
        assert (found["name"], found["facts"]["features"]) == ("nvidia ampere", ["one"])


GPU = {"name": "arm valhall", "said": {}, "facts": {}}
PASSES = [{"check_name": name, "outcome": "passed"} for name in ("builds", "matches_reference", "runs_natively")]
DECODING = {"check_name": "cache_matches", "outcome": "not_run"}
HOST = {"onnx.Concat (of whole numbers)": 2}
SOFTWARE = {"name": "google swiftshader (software)", "software": True, "said": {"stands_in": "…"}}
WISH = {"name": "WebNN's npu context, as requested", "said": {"requested": "a context of kind npu"}}


def verdict(
    lines: list[dict[str, Any]], device: dict[str, Any], limits: tuple[str, ...] = ()
) -> tuple[str, str, str]:
    """The level, what is said in short, and the text."""
    seal = {"limited_by": limits, "not_captured": {"cache_matches": "a page decodes nothing"}}
    given = {"lines": lines, "device": {**GPU, **device}, "seal": {**seal, "target": {"host_allowed": list(HOST)}}}
    found = asked("verdict.js", "({ lines, device, seal }) => verdictOf(lines, device, seal)", given)
    return found["level"], found["short"], found["text"]


@pytest.mark.parametrize(
    ("lines", "device", "limits", "level", "said"),
    [
        (PASSES, {}, (), "high", "It works here: all 3 checks passed on arm valhall. Level: high."),
        (PASSES, {}, ("static shapes",), "medium", "Only so: static shapes. Level: medium."),
        ([{**PASSES[0], "offloaded_ops": HOST}, *PASSES[1:]], {}, (), "medium", "on the processor: onnx.Concat"),
        (
            [*PASSES, DECODING],
            {},
            (),
            "unknown",
            "All 3 checks that a page can ask passed on arm valhall. Not tried ",
        ),
        ([*PASSES, DECODING], {}, (), "unknown", "cache_matches (a page decodes nothing), so that the level stays"),
        ([{**PASSES[0], "outcome": "failed"}, *PASSES[1:], DECODING], {}, (), "unsupported", "1 of 3 checks failed"),
        ([{**PASSES[0], "outcome": "not_run"}, *PASSES[1:]], {}, (), "unknown", "Not proven: 1 of 3 checks"),
        (PASSES, SOFTWARE, (), "medium", "nothing of a GPU. Level: medium."),
        (PASSES, WISH, (), "medium", "As requested: a context of kind npu. Level: medium."),
        (PASSES, {"facts": {"kind": "cpu"}}, (), "high", "says nothing of a GPU or an NPU. Level: high."),
        ([DECODING], {"reason": "no WebGPU"}, (), "unknown", "Nothing was tested: no WebGPU."),
        (
            [
                *PASSES[:2],
                {**PASSES[2], "outcome": "failed", "error_type": "silent_offload", "offloaded_ops": {"Sin": 1}},
            ],
            {},
            (),
            "low",
            "not of arm valhall alone: Sin ran on the processor",
        ),
    ],
)
def test_the_verdict_says_what_was_shown_on_what_and_at_which_level(
    lines: list[dict[str, Any]], device: dict[str, Any], limits: tuple[str, ...], level: str, said: str
) -> None:
    found, short, text = verdict(lines, device, limits)
    assert said in text
    assert found == level
    assert short.startswith("not tested" if device.get("reason") else f"{level}: ")
    assert ("It works here" in text) is (
        len(lines) == 3 and not {"software", "said"} & set(device) and "all 3" in text
    )


def test_the_scripts_are_small_and_none_fetches() -> None:
    for name in SCRIPTS:
        text = name.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 400, name
        assert "import " not in text.replace("await import(address)", ""), name
        for word in ("fetch(", "XMLHttpRequest", "WebSocket", "sendBeacon", "innerHTML", "localStorage"):
            assert word not in text, (name, word)
