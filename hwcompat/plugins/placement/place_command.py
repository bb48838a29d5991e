"""`--place`: models onto the devices of this machine, or of several by their inventories."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import click

from generators.chosen import choose_models, profiles_of
from generators.compatibility.judge import judge
from generators.compatibility.rules import load_rules
from generators.options import Options
from hardware.backends.factory import resolve_target
from hardware.basic_detection import inventory_here
from hardware.errors import NothingMatched, UsageError, echo
from hardware.evidence.latest import Latest, read_latest
from hardware.front_door import note
from hardware.plain_text import json_text
from hwcompat.plugins.placement.device import Device
from hwcompat.plugins.placement.machines import Machine, machines_of
from hwcompat.plugins.placement.models import workload_of
from hwcompat.plugins.placement.placing import place
from hwcompat.plugins.placement.workloads import Mode, Workload
from reports.wording import reason_text

from .place_text import placement_text


def report_placement(asked: Options) -> int:
    """Print where each model goes; returns 1 where one has no place. Raises `UsageError`."""
    if asked.format_ not in ("table", "text", "json"):
        raise UsageError("--place gives a table or json", fix="Leave --format out.")
    machines = machines_of(inventory_here(), asked.inventory)
    devices = _devices(machines, asked.devices)
    workloads = _workloads(asked, machines)
    started = time.perf_counter()
    found = place(
        workloads,
        devices,
        mode=Mode.IN_TURN if asked.in_turn else Mode.TOGETHER,
        pinned=dict(_pairs(asked.pin, "--pin")),
        forbidden=_pairs(asked.forbid, "--forbid"),
    )
    taken = time.perf_counter() - started
    if asked.format_ == "json":
        click.echo(json_text(found.to_dict() | {"planned_in_s": round(taken, 4)}))
    else:
        click.echo(placement_text(found, devices, taken), nl=False)
    return int(bool(found.misfits))


def _devices(machines: Sequence[Machine], names: Sequence[str]) -> tuple[Device, ...]:
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
        raise NothingMatched(f"none of {', '.join(map(echo, names))} is a device here", why=f"there are {there}")
    return kept


def _workloads(asked: Options, machines: Sequence[Machine]) -> list[Workload]:
    chosen = choose_models(
        asked.models, priority=asked.priority, architectures=asked.architectures, read_list=sys.stdin.readlines
    )
    profiles, refused, unmet = profiles_of(chosen, asked.tasks, allow_tiny=True)
    note(*(f"not placed: {why}" for why in refused))
    if unmet:
        raise UsageError(f"{', '.join(map(echo, unmet))} can't be placed", why="nothing is known of it")
    latest = read_latest(asked.evidence) if asked.has_evidence else Latest()
    measured = {verdict.cell: verdict for verdict in judge(latest, inventory_here())}
    rules = load_rules()
    note("estimating memory without data, which takes seconds for a model that wasn't asked before …")
    return [
        workload_of(
            profile,
            machines,
            rules,
            precision=asked.precision,
            measured=measured,
            lines=latest.checks,
            on_note=note,
            words=reason_text,
        )
        for profile in profiles
    ]


def _pairs(words: Sequence[str], option: str) -> list[tuple[str, str]]:
    found = []
    for word in words:
        model, separator, device = word.partition("=")
        if not separator or not model or not device:
            raise UsageError(f"{echo(word)} is no pair", fix=f"For example: {option} bert=cuda:0")
        found.append((model, device))
    return found
