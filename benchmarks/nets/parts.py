"""The frozen parts: each function queries the product and returns fields by key."""

from __future__ import annotations

import gzip
import hashlib
import re
import shlex
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from .doors import Answer, Product

Entry = dict[str, Any]
Part = dict[str, Entry]

GENERATE = "run_test_generation.py"
REPORT = "hardware_compatibility_reporter.py"
PUBLIC = tomllib.loads(Path(__file__).with_name("public.toml").read_text(encoding="utf-8"))
TARGETS = ("cpu", "cuda", "rocm", "mps", "xpu", "tpu", "openvino", "qnn", "webnn", "webgpu", "simulated")
KEPT = ("cpu", "openvino", "qnn", "simulated", "webgpu", "webnn")
"""Targets with evidence in docs/evidence."""

RECIPES = ("generators/models/recipes", "generators/recipes")
"""The files of recipes, which only `freeze` reads."""

UNKNOWN_OPTION = "--nets-no-such-option"
LOG = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"


def texts(reasons: Iterable[Any]) -> list[str]:
    """Return reasons, conditions or changes as text; they are strings, or objects with a text or a code."""
    return [one if isinstance(one, str) else str(one.get("text") or one.get("code") or one) for one in reasons]


def judged(verdict: Mapping[str, Any], *, text: bool = True) -> Entry:
    """Return the compared fields of a verdict."""
    entry: Entry = {
        "level": verdict.get("level"),
        "basis": verdict.get("basis"),
        "rules": verdict.get("rule_ids", []),
        "evidence": len(verdict.get("evidence_ids", [])),
    }
    if text:
        entry |= {name: texts(verdict.get(name, [])) for name in ("reasons", "conditions")}
    return entry


def recipe_cells(root: Path) -> list[str]:
    """Return the float32 cells of all stored recipes on all targets, in order."""
    folder = next(root / one for one in RECIPES if (root / one).is_dir())
    found = set()
    for file in folder.glob("*/*.json"):
        model, _, task = file.stem.partition("@")
        found.add((model, task or _primary_task(file)))
    return [f"{model}/{task}/{target}/float32" for model, task in sorted(found) for target in TARGETS]


def _primary_task(file: Path) -> str:
    match = re.search(r'"task":\s*"([^"]+)"', file.read_text(encoding="utf-8"))
    if match is None:
        raise ValueError(f"{file.name} names no task")
    return match[1]


def explain(product: Product, cells: Collection[str] | None) -> Part:
    """Return predictions with the chain of rules and the changes that would affect them."""
    wanted = list(cells) if cells is not None else recipe_cells(product.root)
    answers = product.many([[GENERATE, "--explain", cell, "--format", "json"] for cell in wanted])
    return {cell: _explained(answer) for cell, answer in zip(wanted, answers, strict=True)}


def _explained(answer: Answer) -> Entry:
    if answer.code:
        return {"code": answer.code}
    document = answer.document
    chain = document["chain"]
    return {
        "level": document["predicted"].get("level"),
        "basis": document["predicted"].get("basis"),
        "chain": [f"{link['role']} {link['rule']}" for link in chain["rules"]],
        "changes": texts(chain["changes"]),
    }


def unpacked(product: Product) -> Path:
    """Unpack the stored evidence into a folder, as users do."""
    folder = product.folder()
    for target in KEPT:
        data = gzip.decompress((product.root / f"docs/evidence/{target}.jsonl.gz").read_bytes())
        (folder / f"{target}.jsonl").write_bytes(data)
    return folder


def matrix(product: Product, _cells: Collection[str] | None) -> Part:
    """Return the matrix from rules alone, and with the stored evidence."""
    line = [GENERATE, "--hardware-compatibility", "--format", "json"]
    found: Part = {}
    for name, more in (("rules", []), ("evidence", ["--evidence", str(unpacked(product))])):
        answer = product.run([*line, *more])
        found[f"{name} command"] = {"code": answer.code}
        found |= {f"{name} {key}": entry for key, entry in _of_matrix(answer.document, text=name == "rules")}
    return found


def _of_matrix(document: Mapping[str, Any], *, text: bool) -> Iterator[tuple[str, Entry]]:
    yield "columns", {"targets": document.get("hardware_types", [])}
    for view in ("compatibility", "architectures", "accelerators", "machines"):
        for row, columns in document.get(view, {}).items():
            for target, group in columns.items():
                counts = [f"{name} {number}" for name, number in sorted((group.get("counts") or {}).items())]
                yield f"{view} {row}/{target}", judged(group, text=False) | {"counts": counts}
    for name, model in document.get("models", {}).items():
        yield f"model {name}", {field: model.get(field) for field in ("family", "architecture")}
        for verdict in model["compatibility"].values():
            yield verdict["cell"], judged(verdict, text=text)


def verdicts(product: Product, _cells: Collection[str] | None) -> Part:
    """Return the verdicts of all cells of the stored evidence, and the number of findings by kind."""
    return _collected(product, unpacked(product))


def _collected(product: Product, evidence: Path) -> Part:
    answer = product.run([REPORT, "--collect-all", "--format", "json", "--evidence", str(evidence)])
    document = answer.document
    found: Part = {one["cell"]: judged(one) for one in document.get("verdicts", [])}
    kinds = ("hardware_type", "error_type", "severity", "component")
    counted = Counter(" ".join(str(one[name]) for name in kinds) for one in document.get("errors", []))
    found |= {f"finding {kind}": {"count": number} for kind, number in counted.items()}
    return found | {"command": {"code": answer.code}}


def runs(product: Product, _cells: Collection[str] | None) -> Part:
    """Run the types of high priority on the CPU and on OpenVINO."""
    folder = product.folder()
    evidence = ["--evidence", str(folder / "evidence")]
    places = ["--output-dir", str(folder / "suites"), "--report-dir", str(folder / "reports"), *evidence]
    devices = ["--device", "cpu", "--device", "openvino"]
    ran = product.run([GENERATE, "--priority", "high", *devices, "--run", "--jobs", "2", *places], folder)
    answer = product.run([REPORT, "--collect-all", "--format", "json", *evidence], folder)
    document = answer.document
    found: Part = {
        one["cell"]: {"level": one.get("level"), "basis": one.get("basis"), "checks": []}
        for one in document.get("verdicts", [])
    }
    for check in document.get("checks", []):
        found.setdefault(check["cell"], {"checks": []})["checks"].append(f"{check['check_name']} {check['outcome']}")
    for entry in found.values():
        entry["checks"].sort()
    return found | {"command": {"run": ran.code, "report": answer.code}}


def help_texts(product: Product, _cells: Collection[str] | None) -> Part:
    """Return the help of every command."""
    lines = [[*shlex.split(command), "--help"] for command in PUBLIC["help"]]
    answers = product.each(lines)
    found = zip(PUBLIC["help"], answers, strict=True)
    return {command: {"code": one.code, "text": one.out.splitlines()} for command, one in found}


def names(product: Product, frozen: Collection[str] | None, moved: Mapping[str, str] | None = None) -> Part:
    """Return public names with their parameters, the options of each command, and exit codes.

    `moved` maps renamed modules. The options are those in `frozen`, or those in the help.
    """
    wanted = [(module, name) for module, own in PUBLIC["names"].items() for name in own]
    there = moved or {}
    found: Part = {}
    for (module, name), members in zip(
        wanted, product.names([(there.get(module, module), name) for module, name in wanted]), strict=True
    ):
        for member, entry in sorted(members.items()):
            found[f"name {module}.{name}{'.' if member else ''}{member}"] = entry
    return found | _options(product, frozen) | _exit_codes(product)


def _options(product: Product, frozen: Collection[str] | None) -> Part:
    """Return whether commands take options: if so, the usage error names the unknown option after them. Nothing
    runs."""
    if frozen is None:
        shown = help_texts(product, None)
        keys = [
            f"option {command} {option}"
            for command, entry in shown.items()
            for option in sorted(set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", _option_lines(entry["text"]))))
        ]
    else:
        keys = [key for key in frozen if key.startswith("option ")]
    lines = [[*key.split()[1:], UNKNOWN_OPTION, UNKNOWN_OPTION] for key in keys]
    answers = product.many(lines)
    taken = {key: UNKNOWN_OPTION in one.err for key, one in zip(keys, answers, strict=True)}
    return {key: {"taken": is_taken} for key, is_taken in taken.items() if is_taken or frozen is not None}


def _option_lines(text: list[str]) -> str:
    """Return the option column of a help text."""
    lines = (re.sub(r"^\W*?(?=-)", "", line) for line in text)
    return "\n".join(re.split(r"\s{2,}", line)[0] for line in lines if line.startswith("-"))


def _exit_codes(product: Product) -> Part:
    def ask(command: str) -> Answer:
        folder = product.folder()
        (folder / "log.txt").write_text(LOG, encoding="utf-8")
        return product.run(shlex.split(command), folder)

    found = zip(PUBLIC["exit_codes"], product.each_of(ask, PUBLIC["exit_codes"]), strict=True)
    return {f"exit {command}": {"code": one.code, "prints": bool(one.out)} for command, one in found}


def golden(product: Product, _cells: Collection[str] | None) -> Part:
    """Return the bytes of the recorded suites."""
    folder = product.root / "test" / "recorded" / "suites"
    files = sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {
        path.relative_to(folder).as_posix(): {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        for path in files
    }


PARTS: Mapping[str, Callable[[Product, Collection[str] | None], Part]] = {
    "explain": explain,
    "matrix": matrix,
    "help": help_texts,
    "verdicts": verdicts,
    "names": names,
    "golden": golden,
    "runs": runs,
}
