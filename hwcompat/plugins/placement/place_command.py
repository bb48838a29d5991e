"""`hwcompat place`: place models on the devices of this machine, or of several by their inventories."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import click

from hwcompat.generators.chosen_models import choose_models, profiles_of
from hwcompat.generators.compatibility.judge import judge, published_or
from hwcompat.generators.compatibility.memory_fit import MemoryEstimate
from hwcompat.generators.compatibility.rules import RuleSet, load_rules
from hwcompat.generators.compatibility.selection import priority_list
from hwcompat.generators.compatibility.verdict import Basis, Level, Verdict
from hwcompat.generators.model_profile import Profile
from hwcompat.generators.options import Options
from hwcompat.generators.plan import predicted_for
from hwcompat.generators.recipes.memory_answer import MemoryAnswer, memory_answer
from hwcompat.hardware.backends.factory import resolve_target
from hwcompat.hardware.basic_detection import inventory_here
from hwcompat.hardware.cell import Cell
from hwcompat.hardware.command_line import note
from hwcompat.hardware.command_names import as_runnable
from hwcompat.hardware.errors import BrokenInput, ModelError, NothingMatched, UsageError, echo
from hwcompat.hardware.evidence.latest import Latest, read_latest
from hwcompat.hardware.evidence.record import CheckLine, Outcome, WeightsKind
from hwcompat.hardware.plain_text import json_text
from hwcompat.hardware.safe_read import parsed_toml, read_text, reason_of
from hwcompat.hardware.target import Target
from hwcompat.reports.reason_text import reason_text

from .place import place
from .placement_device import Device, Estimate, Figure, PlacementMachine, machines_of
from .placement_text import placement_text
from .workloads import Workload, WorkloadMode

_OPERATIONS = 2
"""A multiplication and an addition for each parameter and token."""

_WITH_TOKENS = ("embedding", "text_generation")


_LONGEST = 100_000


def read_prices(path: Path, devices: Sequence[Device]) -> tuple[dict[str, float], str]:
    """Return the cost of an hour by device, and the currency (empty if the file names none), from a TOML file:

        currency = "USD"

        [per_hour]
        "NVIDIA H100*" = 2.5     # the name of the hardware
        "lab2/cpu" = 0.2         # or of the device, as in `hwcompat place`

    The first pattern that matches counts, in any case; each device must have one.

    Raises `BrokenInput` for a file without valid costs, `UsageError` for a usable device that no pattern matches.
    """
    try:
        plain = parsed_toml(read_text(path, longest=_LONGEST))
        patterns = dict(plain["per_hour"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BrokenInput(f"{echo(str(path))} isn't a file of costs", why=reason_of(error)) from error
    for pattern, cost in patterns.items():
        if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost < 1e9:
            raise BrokenInput(
                f"{echo(str(path))} isn't a file of costs", why=f"{echo(pattern)} isn't a cost: {cost!r}"
            )
    found = {}
    for device in devices:
        names = (device.name.lower(), device.device_name.lower())
        fits = (cost for pattern, cost in patterns.items() if any(fnmatchcase(one, pattern.lower()) for one in names))
        cost = next(fits, None)
        if cost is None and not device.unusable:
            fix = f'Add a line to [per_hour], such as "{device.name}" = 1.0'
            raise UsageError(f"no cost for {device.name} ({device.device_name}) in {echo(str(path))}", fix=fix)
        found[device.name] = float(cost or 0.0)
    return found, str(plain.get("currency", ""))


def report_placement(options: Options) -> int:
    """Print where each model goes; return 1 if one has no device. Raises `UsageError`."""
    machines = machines_of(inventory_here(), options.inventory)
    devices = _devices(machines, options.devices)
    prices, currency = read_prices(options.costs, devices) if options.costs else (None, "")
    workloads = _workloads(options, machines)
    started = time.perf_counter()
    found = place(
        workloads,
        devices,
        mode=WorkloadMode.IN_TURN if options.in_turn else WorkloadMode.TOGETHER,
        pinned=dict(_pairs(options.pin, "--pin")),
        forbidden=_pairs(options.forbid, "--forbid"),
        prices=prices,
    )
    taken = time.perf_counter() - started
    if options.format_ == "json":
        click.echo(json_text({"schema_version": 1, **found.to_dict(), "planned_in_s": round(taken, 4)}))
    else:
        click.echo(placement_text(found, devices, taken, currency), nl=False)
    return int(bool(found.misfits))


def _devices(machines: Sequence[PlacementMachine], names: Sequence[str]) -> tuple[Device, ...]:
    every = tuple(device for machine in machines for device in machine.devices)
    wanted = {resolve_target(name) for name in names if name not in ("auto", "all", "known")}
    kept = tuple(
        device
        for device in every
        if not wanted
        or any(
            device.target == one.name and (one.index is None or device.name.endswith(f":{one.index}"))
            for one in wanted
        )
    )
    if not kept:
        there = ", ".join(device.name for device in every)
        raise NothingMatched(f"no device matches {', '.join(map(echo, names))}", why=f"devices found: {there}")
    return kept


def _workloads(options: Options, machines: Sequence[PlacementMachine]) -> list[Workload]:
    chosen = choose_models(
        options.models, priority=options.priority, architectures=options.architectures, read_list=sys.stdin.readlines
    )
    profiles, refused, unmet = profiles_of(chosen, options.tasks, allow_tiny=True)
    note(*(f"not placed: {why}" for why in refused))
    if unmet:
        raise UsageError(f"{', '.join(map(echo, unmet))} can't be placed", why="the model is unknown")
    latest = read_latest(options.evidence) if options.has_evidence else Latest()
    measured = {verdict.cell: verdict for verdict in judge(latest, inventory_here())}
    rules = load_rules()
    note("estimating memory without data: a few seconds for each new model …")
    return [
        workload_of(
            profile,
            machines,
            rules,
            precision=options.precision,
            measured=measured,
            lines=latest.checks,
        )
        for profile in profiles
    ]


def _pairs(words: Sequence[str], option: str) -> list[tuple[str, str]]:
    found = []
    for word in words:
        model, separator, device = word.partition("=")
        if not separator or not model or not device:
            raise UsageError(f"{echo(word)} isn't a pair", fix=f"For example: {option} bert=cuda:0")
        found.append((model, device))
    return found


def workload_of(
    profile: Profile,
    machines: Sequence[PlacementMachine],
    rules: RuleSet,
    *,
    precision: str,
    measured: Mapping[str, Verdict],
    lines: Sequence[CheckLine],
) -> Workload:
    """Return one model as a workload. `measured` are verdicts by cell id, `lines` the latest results.

    Its memory is an estimate. Its duration is measured if the evidence has one with the same weights, otherwise
    computed from the limits of the device; durations of tiny models aren't used.
    """
    answer: MemoryAnswer | None = None
    try:
        answer = memory_answer(profile.classification, {"precision": precision})
    except ModelError as error:
        note(f"{profile.asked}: {error}")
    seconds: dict[str, Figure] = {}
    forbidden: dict[str, str] = {}
    doubtful: dict[str, str] = {}
    rank: dict[str, int] = {}
    recipe = profile.recipe
    _, preferred = priority_list(recipe.family, recipe.architecture, recipe.traits)
    for machine in machines:
        predicted = predicted_for(profile, precision, rules, machine.inventory)
        for device in machine.devices:
            rank[device.name] = preferred.index(device.target) if device.target in preferred else len(preferred)
            if device.unusable:
                forbidden[device.name] = f"unusable: {device.unusable}"
                continue
            cell = Cell(
                model=profile.cell_model,
                task=recipe.task,
                target=Target(name=device.target),
                precision=precision,
            )
            verdict = measured.get(cell.id) or published_or(predicted(cell.target))
            if why := _forbids(verdict):
                forbidden[device.name] = why
            elif why := _doubts(verdict):
                doubtful[device.name] = why
            seconds[device.name] = _seconds(cell, device, answer, recipe.family, lines, here=not machine.label)
    return Workload(
        name=profile.asked,
        memory_bytes=answer.estimates[0].total if answer else None,
        seconds=seconds,
        forbidden=forbidden,
        doubtful=doubtful,
        rank=rank,
    )


def _forbids(verdict: Verdict) -> str:
    if verdict.level is not Level.UNSUPPORTED or verdict.basis is Basis.ASSUMED:
        return ""
    return f"unsupported ({verdict.basis}): {'; '.join(map(reason_text, verdict.reasons)) or 'no stored reason'}"


def _doubts(verdict: Verdict) -> str:
    """Return why it is unknown whether a model works on a device. A level `high` that is assumed for the family is no
    doubt: otherwise a processor is surer than every accelerator that was never tried."""
    if verdict.level is Level.UNKNOWN:
        return "no rule or evidence for it"
    if verdict.level is Level.HIGH and verdict.basis is Basis.ASSUMED:
        return ""
    if verdict.basis in (Basis.ASSUMED, Basis.EXPIRED):
        return f"{verdict.level} is only {verdict.basis}"
    if verdict.level is Level.LOW:
        return f"low ({verdict.basis}): {'; '.join(map(reason_text, verdict.reasons))}"
    return ""


def _seconds(
    cell: Cell,
    device: Device,
    answer: MemoryAnswer | None,
    family: str,
    lines: Iterable[CheckLine],
    *,
    here: bool,
) -> Figure:
    """Return the duration of one forward pass."""
    own = [
        line
        for line in lines
        if line.cell_id == cell.id
        and line.subject == WeightsKind.CHECKPOINT
        and line.outcome is Outcome.PASSED
        and line.latency_ms is not None
        and (here and line.accelerator == device.device_name)
    ]
    if own:
        newest = max(own, key=lambda line: line.started_at)
        assert newest.latency_ms is not None
        return Figure(value=newest.latency_ms / 1000, source=f"measured ({newest.evidence_id})")
    if answer is None:
        return Figure(reason="not measured there; model size unknown")
    return at_best(answer.estimates[0], answer.anatomy.parameters, device, family)


def at_best(estimate: MemoryEstimate, parameters: int, device: Device, family: str) -> Figure:
    """Return the shortest possible duration of a pass by the limits of the device: its operations at the rate of
    matrix products, or its weights read once at the memory bandwidth, whichever is longer (the roofline model:
    Williams, Waterman and Patterson 2009, https://doi.org/10.1145/1498765.1498785). Where the rate is unknown, a
    conservative estimate takes its place, and the duration's source begins with `estimate`. For text models only:
    elsewhere the number of operations doesn't follow from the parameters."""
    request = estimate.request
    rate, bandwidth = device.tflops.get(request.precision, Figure()), device.bandwidth_gbps
    if family not in _WITH_TOKENS:
        return Figure(reason="not measured there; operation count can't be estimated")
    figure, kind = Figure, "lower bound"
    if rate.value is None:
        rate, figure, kind = device.estimated_tflops, Estimate, "estimate"
    if rate.value is None:
        machine = device.name.rpartition("/")[0]
        fix = f"hwcompat devices stress {device.selector} --keep"
        fix = f"on {machine}: {fix}, then export its inventory again" if machine else as_runnable(fix)
        return Figure(reason=f"not measured there; device speed in {request.precision} unknown ({fix})")
    operations = _OPERATIONS * parameters * request.batch * request.context
    found = operations / (rate.value * 1e12)
    basis = f"{operations / 1e12:.3g} 10^12 operations at {rate.value:.3g} TFLOPS ({rate.source})"
    if bandwidth.value is not None and (reading := estimate.weights / (bandwidth.value * 1e9)) > found:
        found = reading
        basis = f"reads its weights at {bandwidth.value:.3g} GB/s ({bandwidth.source})"
    return figure(value=found, source=f"{kind}: {basis}")
