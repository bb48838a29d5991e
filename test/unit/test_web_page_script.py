"""The page's scripts and their counterparts in Python, on the same data. Needs Node.js."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from in_node import asked, needs_node

from hardware.compare import ReferenceNotFinite, compare
from hardware.software import SOFTWARE_ADAPTERS, TOLD, adapter_conditions, adapter_name, is_software
from hardware.testing.graph_outputs import with_parts

pytestmark = needs_node


def flat(array: Any) -> dict[str, Any]:
    kind = "int64" if array.dtype.kind in "iu" else "float64"
    return {"type": kind, "dims": list(array.shape), "data": array.ravel().tolist()}


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


def test_the_page_measures_the_error_that_python_measures() -> None:
    cases = {
        "near": (NEAR, WANT, None),
        "near, under a mask": (NEAR, WANT, MASK),
        "wrong where the mask says so": (BEHIND_THE_MASK, WANT, MASK),
        "wrong": (BEHIND_THE_MASK, WANT, None),
        "a mask that is shorter than its output": (NEAR, WANT, MASK[:, :3]),
        "not a number": (odd(math.nan), WANT, None),
        "infinite": (odd(math.inf), WANT, None),
        "a reference that isn't finite": (NEAR, odd(math.nan, WANT), None),
        "ruled out by both": (np.where(np.isneginf(RULED_OUT), -np.inf, NEAR), RULED_OUT, None),
        "ruled out by one": (NEAR, RULED_OUT, None),
        "another shape": (NEAR[:1], WANT, None),
        "a number alone": (np.array([3.0001]), np.array([3.0]), None),
        "a number repeated": (np.full((4,), 2.5), np.full((4,), 2.0), None),
        "nothing but zeros": (np.zeros((3,)) + 1e-9, np.zeros((3,)), None),
        "whole numbers": (np.arange(6), np.arange(6), None),
        "other whole numbers": (np.arange(6) + 1, np.arange(6), None),
        "nothing to compare": (NEAR, WANT, np.zeros_like(MASK)),
    }
    own: dict[str, Any] = {}
    given = []
    for name, (got, want, mask) in {**cases, "missing": (NEAR, WANT, None)}.items():
        masks = {"logits": mask} if mask is not None else {}
        required = ("logits", "states") if name == "missing" else ("logits",)
        try:
            found = compare({"logits": got}, {"logits": want}, masks=masks, required=required)
            own[name] = found.max_rel_error, found.max_abs_error
        except ReferenceNotFinite as error:
            own[name] = type(error).__name__
        flat_masks = {key: flat(one) for key, one in masks.items()}
        wanted = {"outputs": {"logits": flat(want)}, "masks": flat_masks, "required": list(required)}
        given.append({"got": {"logits": flat(got)}, "want": wanted})
    call = """(all) => all.map(({ got, want }) => {
      try { return compare(got, want); } catch (error) { return { error: error.constructor.name }; }
    })"""
    for (name, expected), page in zip(own.items(), asked("compare.js", call, given), strict=True):
        numbers = tuple(float(str(page[key]).replace("Infinity", "inf")) for key in ("rel", "abs") if key in page)
        found = page.get("error") or numbers
        assert found == (expected if isinstance(expected, str) else pytest.approx(expected, rel=1e-9)), name
    assert own["missing"] == (math.inf, math.inf)


def test_parts_of_outputs_are_compared_by_their_own_scales() -> None:
    off = WANT.copy()
    off[1, 3, 2] += 0.5
    parts = {"logits[3]": ("logits", 1, 3, 4)}
    want = with_parts({"logits": WANT}, parts)
    own = compare(with_parts({"logits": off}, parts), want, scales={"logits": 100.0, "logits[3]": 2.0})
    wanted = {"outputs": {name: flat(one) for name, one in want.items()}, "masks": {}, "required": []}
    wanted |= {
        "scales": {"logits": 100.0, "logits[3]": 2.0},
        "parts": {name: list(one) for name, one in parts.items()},
    }
    given = {"got": {"logits": flat(off)}, "want": wanted}
    found = asked("compare.js", "({ got, want }) => compare(got, want)", given)
    assert (found["worst"], own.worst) == ("logits[3]", "logits[3]")
    assert found["rel"] == pytest.approx(own.max_rel_error) == pytest.approx(0.25)


def test_recorded_numbers_are_read_at_their_places() -> None:
    step = {
        "output": "logits",
        "values": [[[1, 4, 6], float(WANT[1, 4, 6])], [[0, 2, 1], float(WANT[0, 2, 1])]],
        "scale": 2,
    }
    off, broken = flat(WANT), flat(WANT)
    off["data"][-1] += 0.5
    broken["data"][-1] = math.nan
    given = {"got": [{"logits": one} for one in (flat(WANT), off, broken)], "step": step}
    found = asked("compare.js", "({ got, step }) => got.map((one) => recordedError(one, step))", given)
    assert [one["rel"] for one in found] == [0, pytest.approx(0.25), "Infinity"]


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


def test_the_page_describes_an_adapter_as_python_does() -> None:
    facts = [{**dict.fromkeys(TOLD, ""), "fallback": False, **told} for told, _ in ADAPTERS]
    given = {"all": facts, "target": {"software": SOFTWARE_ADAPTERS}}
    call = "({ all, target }) => all.map((facts) => adapterFacts(facts, target))"
    pages = asked("session.mjs adapters.mjs device.js", call, given)
    for (told, software), fact, page in zip(ADAPTERS, facts, pages, strict=True):
        assert is_software(fact) is page["software"] is software, told
        assert adapter_name(fact) == page["name"]
        assert adapter_conditions(fact) == page["said"]
        assert bool({"stands_in", "requested"} & set(page["said"])) is (software or not told)


def test_the_runtime_gets_whole_numbers_of_each_size() -> None:
    names = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
    call = "(names) => names.map((name) => numbersOf(name, new ArrayBuffer(16)).BYTES_PER_ELEMENT)"
    assert asked("session.mjs", call, names) == [np.dtype(name).itemsize for name in names]


def test_the_device_is_the_one_that_computed_whatever_adapter_was_described() -> None:
    described = {**dict.fromkeys(TOLD, ""), "vendor": "nvidia", "architecture": "ampere", "fallback": False}
    call = """({ described, target, info }) => {
      gpu.info = info;
      return deviceRan(adapterFacts({ ...described, features: ["one"] }, target), target);
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


def test_the_verdict_says_what_was_shown_on_what_and_at_which_level() -> None:
    cases: list[tuple[Any, ...]] = [
        (PASSES, {}, (), "high", "It works here: all 3 checks passed on arm valhall. Level: high."),
        (PASSES, {}, ("static shapes",), "medium", "Conditions: static shapes. Level: medium."),
        ([{**PASSES[0], "offloaded_ops": HOST}, *PASSES[1:]], {}, (), "medium", "on the processor: onnx.Concat"),
        (
            [*PASSES, DECODING],
            {},
            (),
            "unknown",
            "All 3 checks that a page can run passed on arm valhall. Skipped: ",
        ),
        ([*PASSES, DECODING], {}, (), "unknown", "cache_matches (a page decodes nothing), so the level stays"),
        ([{**PASSES[0], "outcome": "failed"}, *PASSES[1:], DECODING], {}, (), "unsupported", "1 of 3 checks failed"),
        ([{**PASSES[0], "outcome": "not_run"}, *PASSES[1:]], {}, (), "unknown", "Not proven: 1 of 3 checks"),
        (PASSES, SOFTWARE, (), "medium", "they don't count for a GPU. Level: medium."),
        (PASSES, WISH, (), "medium", "As requested: a context of kind npu. Level: medium."),
        (PASSES, {"facts": {"kind": "cpu"}}, (), "high", "don't count for a GPU or an NPU. Level: high."),
        ([DECODING], {"reason": "no WebGPU"}, (), "unknown", "Nothing was tested: no WebGPU."),
        (
            [
                *PASSES[:2],
                {**PASSES[2], "outcome": "failed", "error_type": "silent_offload", "offloaded_ops": {"Sin": 1}},
            ],
            {},
            (),
            "low",
            "not computed on arm valhall alone: Sin ran on the processor",
        ),
    ]
    given = []
    for lines, device, limits, _, _ in cases:
        seal = {"limited_by": limits, "not_captured": {"cache_matches": "a page decodes nothing"}}
        seal["target"] = {"host_allowed": list(HOST)}
        given.append({"lines": lines, "device": {**GPU, **device}, "seal": seal})
    call = "(all) => all.map(({ lines, device, seal }) => verdictOf(lines, device, seal))"
    for (lines, device, _, level, part), found in zip(cases, asked("verdict.js", call, given), strict=True):
        text = found["text"]
        assert part in text
        assert found["level"] == level, text
        assert found["short"].startswith("not tested" if device.get("reason") else f"{level}: ")
        works = len(lines) == 3 and not {"software", "said"} & set(device) and "all 3" in text
        assert ("It works here" in text) is works
