"""Suites that die in each way of `deaths.toml`, in one run of the product with a good suite."""

from __future__ import annotations

import contextlib
import os
import re
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from generators.models.priority import types_of_priority
from hardware.evidence.store import read_folder

from .checking import half_lines, leftovers, lost, read_raw, untold
from .product import misread
from .result import Case, Result
from .running import Place, Process

GOOD = "vit"
"""The model whose suite stays as generated."""

TIMEOUT_S = 20
"""Seconds for each check: much more than one takes, and the cost of a hang."""
_CELL = re.compile(r'^CELL = "(?P<cell>[^"]+)"', re.MULTILINE)
_SUITE = """CELL = "{cell}"


def test_first():
    pass


def test_second():
{body}

def test_third():
    pass
"""
_MEMORY_CGROUPS = Path("/sys/fs/cgroup/memory")
_CGROUP_BYTES = 600 * 2**20


@dataclass(frozen=True, kw_only=True)
class Death:
    """An entry of `deaths.toml`."""

    name: str
    title: str
    body: str
    outcome: str
    after: str
    says: str


def deaths(names: Sequence[str] = ()) -> tuple[Death, ...]:
    """Return the deaths with these names, or all."""
    data = tomllib.loads(Path(__file__).with_name("deaths.toml").read_text(encoding="utf-8"))
    return tuple(Death(name=name, **entry) for name, entry in data.items() if not names or name in names)


def models_for(chosen: Sequence[Death]) -> dict[str, Death]:
    """Assign a model to each death, whose suite is replaced."""
    there = [one for one in types_of_priority("high") if one != GOOD]
    return dict(zip(there, chosen, strict=False))


def put_suites(folder: Path, dying: Mapping[str, Death]) -> None:
    """Replace the generated suites of some models by suites that die."""
    for path in sorted(folder.glob("test_*.py")):
        found = _CELL.search(path.read_text(encoding="utf-8"))
        death = dying.get(found["cell"].partition("/")[0]) if found else None
        if found and death:
            body = textwrap.indent(textwrap.dedent(death.body).strip("\n"), "    ") + "\n"
            path.write_text(_SUITE.format(cell=found["cell"], body=body), encoding="utf-8")


def judge(evidence: Path, dying: Mapping[str, Death]) -> dict[str, list[str]]:
    """Return by the name of each death the differences of its suite's lines from the expected ones."""
    checks = read_folder(evidence).checks
    found = {}
    for model, death in dying.items():
        lines = {line.check_name: line for line in checks if line.model == model}
        wrong = [] if set(lines) == {"first", "second", "third"} else [f"its lines are {sorted(lines)}"]
        wanted = {"first": "ambiguous", "second": death.outcome, "third": death.after}
        wrong += [
            f"{name} is {line.outcome} and not {wanted[name]}: {line.error_message[:160]}"
            for name, line in lines.items()
            if str(line.outcome) != wanted.get(name)
        ]
        second = lines.get("second")
        if second and death.says not in f"{second.error_message} {second.traceback}":
            wrong.append(f"nothing says {death.says!r}: {second.error_message[:160]}")
        found[death.name] = wrong
    good = {line.check_name: str(line.outcome) for line in checks if line.model == GOOD}
    found["its neighbour"] = [] if set(good.values()) == {"passed"} else [f"the suite beside them came to {good}"]
    return found


def death_cases() -> Iterator[Case]:
    """Return cases with all deaths in one run, with one and with two jobs."""
    for jobs in (1, 2):
        yield Case(part="deaths", id=f"deaths-{jobs}", kind=f"{jobs} at a time", run=_Dying(jobs))


class _Dying:
    """Run one case."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs

    def __call__(self, folder: Path, _undisturbed: Any) -> Result:
        """Generate, replace the suites, run and check."""
        place = Place(folder=folder)
        with _small_cgroup() as cgroup:
            chosen = [one for one in deaths() if cgroup or one.name != "oom_killer"]
            dying = models_for(chosen)
            models = [*dying, GOOD]
            command = place.command("--jobs", str(self.jobs), "--timeout", str(TIMEOUT_S), models=models)
            generated = Process(place, [word for word in command if word != "--run"], "generated").wait()
            put_suites(folder / "suites", dying)
            running = Process(place, command, "run", {"HWCOMPAT_CRASH_CGROUP": str(cgroup or "")})
            ran = running.wait()
            alive = running.left_alive()
        raw = read_raw(place.evidence)
        judged = judge(place.evidence, dying)
        wrong = [f"{name}: {text}" for name, texts in judged.items() for text in texts]
        wrong += [] if generated.code == 0 and ran.code == 1 else [f"exit codes {generated.code}, {ran.code}"]
        wrong += ["a traceback was shown"] if "Traceback" in ran.err else []
        wrong += [f"process {pid} was left alive" for pid in alive]
        wrong += [*lost(raw, folder / "log"), *half_lines(raw, killed=False), *untold(raw)]
        wrong += [*misread(place.evidence, raw), *(f"{one} was left" for one in leftovers(folder))]
        left_out = [] if cgroup else ["oom_killer"]
        facts = {"deaths": {one.name: not judged[one.name] for one in chosen}, "not tried": left_out}
        return Result(facts=facts, wrong=wrong)


@contextlib.contextmanager
def _small_cgroup() -> Iterator[Path | None]:
    """Return a control group with little memory, or None if this user can't make one."""
    folder = _MEMORY_CGROUPS / f"hwcompat-crashes-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / "memory.limit_in_bytes").write_text(str(_CGROUP_BYTES))
    except OSError:
        yield None
        return
    try:
        yield folder
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()
