"""What models are as workloads: their memory by estimate, where rules and evidence let them run, and for how long.

A time is measured where evidence has one of the same weights, else reckoned from what the device can do at best, and
says so; of tiny models nothing is taken, since their times say nothing of real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from generators.compatibility.memory import MemoryEstimate
from generators.compatibility.rules import RuleSet
from generators.compatibility.selection import priority_list
from generators.compatibility.verdict import Basis, Level, Verdict, Words
from generators.derivation.memory_answer import MemoryAnswer, memory_answer
from generators.plan import predicted_for
from generators.profile import Profile
from hardware.cell import Cell
from hardware.errors import ModelError
from hardware.evidence.record import CheckLine, Outcome, Subject
from hardware.target import Target
from hwcompat.plugins.placement.device import Device, Figure
from hwcompat.plugins.placement.workloads import Workload

from .machines import Machine

_OPERATIONS = 2
"""A multiplication and an addition for each parameter and token."""

_WITH_TOKENS = ("embedding", "text_generation")


def workload_of(
    profile: Profile,
    machines: Sequence[Machine],
    rules: RuleSet,
    *,
    precision: str,
    measured: Mapping[str, Verdict],
    lines: Sequence[CheckLine],
    on_note: Callable[[str], None],
    words: Words,
) -> Workload:
    """One model as a workload. `measured` are verdicts by cell id, `lines` the checks that count now."""
    answer = _estimated(profile, precision, on_note)
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
                forbidden[device.name] = f"it can't be used: {device.unusable}"
                continue
            cell = _cell(profile, device, precision)
            verdict = measured.get(cell.id, predicted(cell.target))
            if why := _forbids(verdict, words):
                forbidden[device.name] = why
            elif why := _doubts(verdict, words):
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


def _cell(profile: Profile, device: Device, precision: str) -> Cell:
    return Cell(
        model=profile.cell_model, task=profile.recipe.task, target=Target(name=device.target), precision=precision
    )


def _estimated(profile: Profile, precision: str, on_note: Callable[[str], None]) -> MemoryAnswer | None:
    try:
        return memory_answer(profile.classification, {"precision": precision})
    except ModelError as error:
        on_note(f"{profile.asked}: {error}")
        return None


def _forbids(verdict: Verdict, words: Words) -> str:
    if verdict.level is not Level.UNSUPPORTED or verdict.basis is Basis.ASSUMED:
        return ""
    return f"{verdict.basis} not to work: {'; '.join(map(words, verdict.reasons)) or 'no reason is kept'}"


def _doubts(verdict: Verdict, words: Words) -> str:
    """Why it isn't known whether a model works there; what is assumed of a whole family is no knowledge of it."""
    if verdict.level is Level.UNKNOWN:
        return "no rule and no evidence says that it works there"
    if verdict.basis in (Basis.ASSUMED, Basis.EXPIRED):
        return f"{verdict.level} there is only {verdict.basis}"
    if verdict.level is Level.LOW:
        return f"low ({verdict.basis}): {'; '.join(map(words, verdict.reasons))}"
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
    """How long one forward pass takes."""
    own = [
        line
        for line in lines
        if line.cell_id == cell.id
        and line.subject == Subject.CHECKPOINT
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
    """The least that one pass can take, by what the device can do at most: its operations at the rate of its
    products, or its weights read once at the bandwidth of its memory, whichever is longer (the roofline model:
    Williams, Waterman and Patterson 2009, https://doi.org/10.1145/1498765.1498785). Of text alone: of others the
    number of operations isn't told by their parameters."""
    request = estimate.request
    rate, bandwidth = device.tflops.get(request.precision, Figure()), device.bandwidth_gbps
    if family not in _WITH_TOKENS:
        return Figure(reason="not measured there; operation count can't be estimated")
    if rate.value is None:
        machine = device.name.rpartition("/")[0]
        fix = f"python -m hardware stress {device.selector} --keep"
        fix = f"on {machine}: {fix}, then write its inventory again" if machine else fix
        return Figure(reason=f"not measured there; device speed in {request.precision} unknown ({fix})")
    operations = _OPERATIONS * parameters * request.batch * request.context
    found = operations / (rate.value * 1e12)
    told = f"{operations / 1e12:.3g} 10^12 operations at {rate.value:.3g} TFLOPS ({rate.source})"
    if bandwidth.value is not None and (reading := estimate.weights / (bandwidth.value * 1e9)) > found:
        found = reading
        told = f"its weights read at {bandwidth.value:.3g} GB/s ({bandwidth.source})"
    return Figure(value=found, source=f"at best: {told}")
