"""Judge an inventory and the smoke tests: what can't be used, why, and how to fix it. Pure; the text is a table of 80
columns with commands below it."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..backends.factory import declarations_of
from ..command_names import as_runnable
from ..inventory.vendors.vendor import DriverState, HardwareState, LibraryState, VendorFacts, VendorState
from ..inventory_summary import NO_DEVICE
from ..machine import Machine
from ..plain_text import columns, folded, printable

if TYPE_CHECKING:
    from ..detection import HardwareInfo, ProbeResult
    from ..expected_targets import TargetStatus

SCHEMA_VERSION = 1
_ALWAYS = ("cpu",)
_SOFTWARE_ALONE = ("no_package", "no_environment", "no_browser")
_INSTALL = re.compile(r"pip install (?:-[er] )?(?:'[^']+'|[\w.\[\]=-]+)")


_FILE = Path(__file__).with_name("remedies.toml")
ANY = "*"


@dataclass(frozen=True, kw_only=True)
class HardwareRemedy:
    """A command to run, a note, and the source of both."""

    command: str
    note: str = ""
    source: str = ""


@functools.cache
def entries() -> list[dict[str, Any]]:
    """Return all entries: the vendor or target, its state, and the kinds of machines."""
    found: list[dict[str, Any]] = tomllib.loads(as_runnable(_FILE.read_text(encoding="utf-8")))["remedy"]
    return found


def kinds_of(machine: Machine) -> tuple[str, ...]:
    """Return the names of a machine in `on`, the most specific first: a container, a distribution, those that it is
    like, the system, any."""
    marks = (machine.text("/.dockerenv"), machine.text("/run/.containerenv"))
    container = ("container",) if any(mark is not None for mark in marks) else ()
    release = machine.text("/etc/os-release") or ""
    found = dict(re.findall(r'(?m)^(ID|ID_LIKE)="?([^"\n]*)"?$', release))
    names = [*found.get("ID", "").split(), *found.get("ID_LIKE", "").split()]
    return (*container, *names, machine.host().system.lower(), ANY)


def remedies_for(about: str, state: str, kinds: tuple[str, ...], *, torch: str = "") -> tuple[HardwareRemedy, ...]:
    """Return the remedies for a state of the vendor or target `about`: those for the most specific of `kinds`, and
    entries for this name before entries for all names. A command that installs torch names its version if given."""
    wanted = f"torch=={torch}" if torch else "torch"
    for name in (about, ANY):
        for kind in kinds:
            found = tuple(
                HardwareRemedy(
                    command=one["command"].replace("torch=={torch}", wanted),
                    note=one.get("note", ""),
                    source=one["source"],
                )
                for one in entries()
                if one["about"] == name and one["state"] == state and kind in one["on"]
            )
            if found:
                return found
    return ()


class DeviceHealth(StrEnum):
    """The health of a vendor's devices, in the words of `VendorState`, or of a target. Only `unusable` and `broken`
    are problems."""

    WORKS = "works"
    EXPECTED = VendorState.EXPECTED.value
    UNUSABLE = VendorState.UNUSABLE.value
    BROKEN = "doesn't work"
    OPTIONAL = "not installed"
    ABSENT = VendorState.ABSENT.value
    LIBRARY_MISSING = VendorState.LIBRARY_MISSING.value
    SIMULATED = VendorState.SIMULATED.value
    UNKNOWN = VendorState.UNKNOWN.value


@dataclass(frozen=True, kw_only=True)
class HardwareProblem:
    """The health of one vendor or target, the reason, and the remedies, best first."""

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
    """All vendors and targets of one machine. `checked` says whether smoke tests ran."""

    findings: tuple[HardwareProblem, ...]
    checked: bool

    @property
    def problems(self) -> tuple[HardwareProblem, ...]:
        """Return the findings that need a fix."""
        return tuple(one for one in self.findings if one.is_problem)

    @property
    def untested(self) -> tuple[str, ...]:
        """Return the targets that are expected to work and weren't tested."""
        targets = (one for one in self.findings if one.kind == "target")
        return tuple(one.name for one in targets if one.health is DeviceHealth.EXPECTED)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values in the shape of `schemas/doctor.json`."""
        findings = [{**asdict(one), "is_problem": one.is_problem} for one in self.findings]
        return {"schema_version": SCHEMA_VERSION, "checked": self.checked, "findings": findings}


def diagnose_machine(
    inventory: HardwareInfo, statuses: Sequence[TargetStatus], kinds: tuple[str, ...]
) -> HardwareDiagnosis:
    """Return the diagnosis of an inventory and its targets without smoke tests. `kinds` are those of `kinds_of`."""
    vendors = [_vendor(facts, kinds) for facts in inventory.vendors]
    targets = [_target(status, inventory, kinds) for status in statuses]
    return HardwareDiagnosis(findings=(*vendors, *targets), checked=False)


def with_probes(
    diagnosis: HardwareDiagnosis, probes: Mapping[str, ProbeResult], kinds: tuple[str, ...]
) -> HardwareDiagnosis:
    """Return the diagnosis with the results of smoke tests, by target."""
    findings = tuple(
        _probed(one, probes[one.name], kinds) if one.kind == "target" and one.name in probes else one
        for one in diagnosis.findings
    )
    return HardwareDiagnosis(findings=findings, checked=True)


def _probed(finding: HardwareProblem, probe: ProbeResult, kinds: tuple[str, ...]) -> HardwareProblem:
    if probe.ok:
        reason = f"smoke test passed ({probe.duration_s:.1f} s)"
        return replace(finding, health=DeviceHealth.WORKS, reason="; ".join(filter(None, [reason, finding.reason])))
    state = "probe_timeout" if probe.timed_out else "probe_failed"
    remedies = _commands_in(probe.reason) or remedies_for(finding.name, state, kinds)
    return replace(finding, health=DeviceHealth.BROKEN, reason=probe.reason, remedies=remedies)


def _vendor(facts: VendorFacts, kinds: tuple[str, ...]) -> HardwareProblem:
    about: dict[str, Any] = {"kind": "vendor", "name": facts.vendor, "reason": facts.reason}
    if facts.state is not VendorState.UNUSABLE:
        return HardwareProblem(**about, health=DeviceHealth(facts.state.value))
    found: list[HardwareRemedy] = list(_commands_in(facts.reason))
    for state in [] if found else _states(facts):
        found += [one for one in remedies_for(facts.vendor, state, kinds) if one not in found]
    return HardwareProblem(**about, health=DeviceHealth.UNUSABLE, remedies=tuple(found))


def _states(facts: VendorFacts) -> list[str]:
    """Return the states to fix, the driver before the library: the library rarely helps without the driver."""
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
    # A target that needs no device lacks only software, which is optional.
    if not present and state in _SOFTWARE_ALONE:
        health = DeviceHealth.OPTIONAL
    torch = (inventory.torch.version or "").partition("+")[0]
    remedies = remedies_for(name, state, kinds, torch=torch) if state and health is not DeviceHealth.ABSENT else ()
    return replace(finding, health=health, remedies=remedies)


def _is_present(target: str, inventory: HardwareInfo) -> bool:
    """Return whether the machine has a real device of the target's vendor."""
    if target in _ALWAYS:
        return True
    vendor = declarations_of(target).VENDOR
    facts = next((one for one in inventory.vendors if one.vendor == vendor), None)
    return facts is not None and facts.hardware is HardwareState.PRESENT and not facts.simulated


def _state(target: str, inventory: HardwareInfo) -> str:
    """Return which software of the target is missing; empty if only its vendor's is."""
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
    if backend.VENDOR and any(inventory.packages.get(package) for package, _ in backend.VARIANTS_NEED.values()):
        return ""  # its environment is here
    return "no_environment" if backend.OWN_ENVIRONMENT else "no_package"


def _commands_in(reason: str) -> tuple[HardwareRemedy, ...]:
    """Return the install command that a reason contains."""
    found = _INSTALL.search(reason)
    return (HardwareRemedy(command=f"python -m {found[0]}", source="the error message"),) if found else ()


_SIGNS = {
    DeviceHealth.WORKS: "ok",
    DeviceHealth.EXPECTED: "?",
    DeviceHealth.UNUSABLE: "!!",
    DeviceHealth.BROKEN: "!!",
}
_LABELS = {
    DeviceHealth.WORKS: "",
    DeviceHealth.EXPECTED: "not tested",
    DeviceHealth.BROKEN: "smoke test failed",
    DeviceHealth.ABSENT: "not available",
}
"""The text of a health, if it isn't its value: the reason of a target that works says so itself."""


def diagnosis_text(diagnosis: HardwareDiagnosis) -> str:
    """Return the diagnosis for a terminal of 80 columns: a table, what is verified, and commands. It ends in a
    newline."""
    lines: list[str] = []
    for kind, title in (("vendor", "Devices"), ("target", "Targets")):
        found = [one for one in diagnosis.findings if one.kind == kind]
        if found:
            lines += [title, "-" * len(title), *_rows(found), ""]
    optional = [one for one in diagnosis.findings if one.health is DeviceHealth.OPTIONAL]
    lines += _verified(diagnosis)
    lines += _what_to_do("What to do", diagnosis.problems)
    lines += _what_to_do("Optional", optional)
    return "\n".join([*lines, _verdict(diagnosis), ""])


def _rows(findings: Sequence[HardwareProblem]) -> list[str]:
    """Return a row for each finding; those without a device share the last row."""
    absent = [one.name for one in findings if _lacks_device(one)]
    rows = [
        (f"  {_SIGNS.get(one.health, '-'):<3}", one.name, _row_text(one))
        for one in findings
        if not _lacks_device(one)
    ]
    lines = columns(("", "", ""), rows)[1:]
    return lines + (folded(f"  -    {NO_DEVICE.capitalize()}: ", ", ".join(absent), indent=7) if absent else [])


def _lacks_device(finding: HardwareProblem) -> bool:
    needs_device = finding.kind == "vendor" or bool(declarations_of(finding.name).VENDOR)
    return finding.health is DeviceHealth.ABSENT and needs_device


def _row_text(finding: HardwareProblem) -> str:
    """Return health and reason; "What to do" below has the reasons of what can be fixed or installed."""
    if finding.kind == "vendor" and finding.health is DeviceHealth.EXPECTED:
        return "; ".join(filter(None, [str(finding.health), finding.reason]))
    label = _LABELS.get(finding.health, str(finding.health))
    explained_below = finding.is_problem or finding.health is DeviceHealth.OPTIONAL
    return ": ".join(filter(None, [label, "" if explained_below else finding.reason]))


def _verified(diagnosis: HardwareDiagnosis) -> list[str]:
    """Return what the smoke tests that passed prove, and what they don't."""
    passed = [one.name for one in diagnosis.findings if one.kind == "target" and one.health is DeviceHealth.WORKS]
    if not passed:
        return []
    device = next((one for one in passed if one not in _ALWAYS and not declarations_of(one).SIMULATED), passed[0])
    return [
        *folded("Verified: ", "each target marked ok computed tanh(A @ B) in float32 and gave the right numbers."),
        *folded("Not verified: ", "models; other operators and precisions; operators that run on the host instead."),
        f"Test a model: {as_runnable(f'hwcompat run --model bert --device {device}')}",
        "",
    ]


def _what_to_do(title: str, findings: Sequence[HardwareProblem]) -> list[str]:
    """Return the remedies; findings with the same reason and remedies share them."""
    if not findings:
        return []
    lines = [title, "-" * len(title)]
    vendors = {one.name for one in findings if one.kind == "vendor"}
    equal: dict[tuple[str, tuple[HardwareRemedy, ...]], list[str]] = {}
    later: list[str] = []
    for one in findings:
        vendor = declarations_of(one.name).VENDOR if one.kind == "target" and not one.remedies else ""
        if vendor in vendors:
            later += folded("", f"{one.name}: fix {vendor} first")
        else:
            equal.setdefault((_without_commands(one), one.remedies), []).append(one.name)
    for (reason, remedies), names in equal.items():
        lines += folded("", f"{', '.join(names)}: {reason}")
        if not remedies:
            lines.append("  No fix is known.")
        for remedy in remedies:
            lines.append(f"    {printable(remedy.command)}")  # never wrapped, so that it can be copied
            if remedy.note:
                lines += folded("  ", remedy.note)
            if remedy.source:
                lines += folded("  Source: ", remedy.source, indent=4)
    return [*lines, *later, ""]


def _without_commands(finding: HardwareProblem) -> str:
    """Return the reason without the commands that are listed below it."""
    reason = finding.reason
    for remedy in finding.remedies:
        reason = reason.removesuffix(f": {remedy.command}")
    return reason or str(finding.health)


def _verdict(diagnosis: HardwareDiagnosis) -> str:
    count = len(diagnosis.problems)
    if count:
        again = as_runnable("hwcompat doctor")
        return f"{count} problem{'s' if count > 1 else ''}. Check again with: {again}"
    if diagnosis.checked:
        return "No problems: every smoke test passed."
    return "No problems found. Smoke tests didn't run."
