"""What of an inventory can't be used, why, and what to do: a pure look at it, and at what came of probing; as text a
table for a terminal of 80 columns with what to do below it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from ..backends.factory import declarations_of
from ..command_names import as_runnable
from ..inventory.vendors.vendor import DriverState, HardwareState, LibraryState, VendorFacts
from ..plain_text import columns, folded, printable
from .hardware_remedies import HardwareRemedy, remedies_for

if TYPE_CHECKING:
    from ..detection import HardwareInfo, ProbeResult
    from ..expected_targets import TargetStatus

SCHEMA_VERSION = 1
_ALWAYS = ("cpu",)
_SOFTWARE_ALONE = ("no_package", "no_environment", "no_browser")
_INSTALL = re.compile(r"pip install [\w.\[\]=-]+")


class DeviceHealth(StrEnum):
    """What is said of one vendor or target. Only `unusable` and `broken` are problems."""

    WORKS = "works"
    EXPECTED = "expected, not checked"
    UNUSABLE = "present, can't be used"
    BROKEN = "doesn't work"
    OPTIONAL = "not installed"
    ABSENT = "not here"
    SIMULATED = "simulated"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class HardwareProblem:
    """One vendor or one target: what of it, why, and what to do, best first."""

    kind: str
    name: str
    health: DeviceHealth
    reason: str = ""
    remedies: tuple[HardwareRemedy, ...] = ()

    @property
    def is_problem(self) -> bool:
        """Whether something that is present can't be used, or something that is expected doesn't work."""
        return self.health in (DeviceHealth.UNUSABLE, DeviceHealth.BROKEN)


@dataclass(frozen=True, kw_only=True)
class HardwareDiagnosis:
    """All vendors and targets of one machine. `checked` says whether targets were computed on."""

    findings: tuple[HardwareProblem, ...]
    checked: bool

    @property
    def problems(self) -> tuple[HardwareProblem, ...]:
        """What needs somebody."""
        return tuple(one for one in self.findings if one.is_problem)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, in the shape of `schemas/doctor.json`."""
        findings = [{**asdict(one), "is_problem": one.is_problem} for one in self.findings]
        return {"schema_version": SCHEMA_VERSION, "checked": self.checked, "findings": findings}


def diagnose_machine(
    inventory: HardwareInfo, statuses: Sequence[TargetStatus], kinds: tuple[str, ...]
) -> HardwareDiagnosis:
    """What an inventory and the targets of it tell without computing anything. `kinds` are those of `kinds_of`."""
    vendors = [_vendor(facts, kinds) for facts in inventory.vendors]
    targets = [_target(status, inventory, kinds) for status in statuses]
    return HardwareDiagnosis(findings=(*vendors, *targets), checked=False)


def with_probes(
    diagnosis: HardwareDiagnosis, probes: Mapping[str, ProbeResult], kinds: tuple[str, ...]
) -> HardwareDiagnosis:
    """The diagnosis with what came of computing on the expected targets, by target."""
    findings = tuple(
        _probed(one, probes[one.name], kinds) if one.kind == "target" and one.name in probes else one
        for one in diagnosis.findings
    )
    return HardwareDiagnosis(findings=findings, checked=True)


def _probed(finding: HardwareProblem, probe: ProbeResult, kinds: tuple[str, ...]) -> HardwareProblem:
    if probe.ok:
        reason = f"it computed three numbers rightly in {probe.duration_s:.1f} s"
        return replace(finding, health=DeviceHealth.WORKS, reason="; ".join(filter(None, [reason, finding.reason])))
    state = "probe_timeout" if probe.timed_out else "probe_failed"
    remedies = _commands_in(probe.reason) or remedies_for(finding.name, state, kinds)
    return replace(finding, health=DeviceHealth.BROKEN, reason=probe.reason, remedies=remedies)


def _vendor(facts: VendorFacts, kinds: tuple[str, ...]) -> HardwareProblem:
    about: dict[str, Any] = {"kind": "vendor", "name": facts.vendor, "reason": facts.reason}
    if facts.simulated:
        return HardwareProblem(**about, health=DeviceHealth.SIMULATED)
    if facts.hardware is HardwareState.ABSENT:
        return HardwareProblem(**about, health=DeviceHealth.ABSENT)
    if facts.hardware is HardwareState.UNKNOWN:
        return HardwareProblem(**about, health=DeviceHealth.UNKNOWN)
    if facts.driver is DriverState.OK and facts.library is LibraryState.OK:
        return HardwareProblem(**about, health=DeviceHealth.EXPECTED)
    found: list[HardwareRemedy] = list(_commands_in(facts.reason))
    for state in [] if found else _states(facts):
        found += [one for one in remedies_for(facts.vendor, state, kinds) if one not in found]
    return HardwareProblem(**about, health=DeviceHealth.UNUSABLE, remedies=tuple(found))


def _states(facts: VendorFacts) -> list[str]:
    """Driver before library: without the former the latter seldom helps."""
    states = []
    if facts.driver is not DriverState.OK and (
        facts.driver is not DriverState.UNKNOWN or facts.library is LibraryState.OK
    ):
        states.append(f"driver_{facts.driver}")
    if facts.library is LibraryState.MISSING:
        states.append("library_missing")
    return states


def _target(status: TargetStatus, inventory: HardwareInfo, kinds: tuple[str, ...]) -> HardwareProblem:
    name = status.target
    finding = HardwareProblem(kind="target", name=name, health=DeviceHealth.EXPECTED, reason=status.reason)
    if status.expected:
        return finding
    present = _is_present(name, inventory)
    health = DeviceHealth.UNUSABLE if present else DeviceHealth.ABSENT
    state = _state(name, inventory)
    # What needs no hardware of its own is missing only as software; nobody has to have it.
    if not present and state in _SOFTWARE_ALONE:
        health = DeviceHealth.OPTIONAL
    torch = (inventory.torch.version or "").partition("+")[0]
    remedies = remedies_for(name, state, kinds, torch=torch) if state and health is not DeviceHealth.ABSENT else ()
    return replace(finding, health=health, remedies=remedies)


def _is_present(target: str, inventory: HardwareInfo) -> bool:
    """Whether the hardware that a target means is here, simulated ones left out."""
    if target in _ALWAYS:
        return True
    vendor = declarations_of(target).VENDOR
    facts = next((one for one in inventory.vendors if one.vendor == vendor), None)
    return facts is not None and facts.hardware is HardwareState.PRESENT and not facts.simulated


def _state(target: str, inventory: HardwareInfo) -> str:
    """What of a target's own software is missing; empty where only its vendor's is."""
    backend = declarations_of(target)
    if backend.DEVICE_TYPE:
        if inventory.torch.version is None:
            return "no_torch"
        if backend.NEEDS_TORCH_BUILD and inventory.torch.kind != target:
            return "wrong_build"
        own = [one for one in inventory.accelerators if one.vendor == backend.VENDOR and one.device_type == "gpu"]
        return "hidden" if own and all("hidden_by" in one.extra_info for one in own) else ""
    if backend.IN_BROWSER and inventory.packages.get(f"onnxruntime-web ({target})"):
        return "no_browser"
    return "no_environment" if backend.OWN_ENVIRONMENT else "no_package"


def _commands_in(reason: str) -> tuple[HardwareRemedy, ...]:
    """The command that a reason itself names."""
    found = _INSTALL.search(reason)
    return (HardwareRemedy(command=f"python -m {found[0]}", source="the reason itself"),) if found else ()


_SIGNS = {
    DeviceHealth.WORKS: "ok",
    DeviceHealth.EXPECTED: "ok?",
    DeviceHealth.UNUSABLE: "!!",
    DeviceHealth.BROKEN: "!!",
}


def diagnosis_text(diagnosis: HardwareDiagnosis) -> str:
    """The diagnosis as a table; it ends in a newline."""
    lines: list[str] = []
    for kind, title in (("vendor", "Vendors"), ("target", "Targets")):
        found = [one for one in diagnosis.findings if one.kind == kind]
        if found:
            lines += [title, "-" * len(title), *_rows(found), ""]
    lines += _what_to_do("What to do", diagnosis.problems)
    lines += _what_to_do(
        "What could be added", [one for one in diagnosis.findings if one.health is DeviceHealth.OPTIONAL]
    )
    return "\n".join([*lines, _verdict(diagnosis), ""])


def _rows(findings: Sequence[HardwareProblem]) -> list[str]:
    rows = [(f"  {_SIGNS.get(one.health, '-'):<3}", one.name, str(one.health), one.reason) for one in findings]
    return columns(("", "name", "state", "reason"), rows)


def _what_to_do(title: str, findings: Sequence[HardwareProblem]) -> list[str]:
    if not findings:
        return []
    lines = [title, "-" * len(title)]
    for one in findings:
        reason = one.reason
        for remedy in one.remedies:  # the command stands below
            reason = reason.removesuffix(f": {remedy.command}")
        lines += folded("", f"{one.name}: {reason or one.health}")
        if not one.remedies:
            lines.append("  No remedy is known.")
        for remedy in one.remedies:
            lines.append(f"    {printable(remedy.command)}")  # never folded: it is to be copied
            if remedy.note:
                lines += folded("  ", remedy.note)
            if remedy.source:
                lines += folded("  Source: ", remedy.source, indent=4)
    return [*lines, ""]


def _verdict(diagnosis: HardwareDiagnosis) -> str:
    count = len(diagnosis.problems)
    if count:
        again = as_runnable("hwcompat doctor")
        return f"{count} problem{'s' if count > 1 else ''}. Check again with: {again}"
    if diagnosis.checked:
        return "Everything that is expected here works."
    return "Nothing that is present is unusable; nothing was computed."
