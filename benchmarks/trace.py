"""Count what one run of one cell executes: files, functions, imported modules, parsed lines, detections, judgments.

    python -m benchmarks.trace [--json] [-- OPTIONS OF run_test_generation.py]

Counts the parent and its children together. Class bodies, comprehensions and templates don't count as functions.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ("hardware", "generators", "reports", "hwcompat")
DEFAULT = ("--model", "bert", "--device", "cpu", "--run")
CALLS = {
    "lines parsed": ("hardware/evidence/store.py", "read_line"),
    "detections": ("hardware/detection.py", "detect"),
    "judgements": ("generators/compatibility/judge.py", "judge"),
}

PROBE = """
import atexit, json, os, sys, threading

seen = {}
calls = {}
inherited = {}


def note(frame, event, _argument):
    if event == "call":
        code = frame.f_code
        seen[code] = True
        calls[code] = calls.get(code, 0) + 1


def write():
    sys.setprofile(None)
    own = {code: calls[code] - inherited.get(code, 0) for code in calls}
    found = [
        (code.co_filename, code.co_qualname, own.get(code, 0))
        for code in list(seen)
        if code.co_flags & 1 and not code.co_name.startswith("<")
    ]
    files = [getattr(one, "__file__", None) or "" for one in list(sys.modules.values())]
    with open(os.path.join(os.environ["TRACE_OUT"], f"{os.getpid()}.json"), "w") as file:
        json.dump({"functions": found, "modules": files}, file)


def leave(code, _exit=os._exit):
    write()
    _exit(code)


os.register_at_fork(after_in_child=lambda: inherited.update(calls))
atexit.register(write)
os._exit = leave
threading.setprofile(note)
sys.setprofile(note)
"""


def traced(arguments: Sequence[str]) -> dict[str, object]:
    """Run the main command with these arguments and return its figures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "probe").mkdir()
        (folder / "out").mkdir()
        (folder / "probe" / "sitecustomize.py").write_text(PROBE, encoding="utf-8")
        places = ("--output-dir", "--evidence", "--report-dir")
        command = [sys.executable, str(ROOT / "run_test_generation.py"), *arguments]
        command += [part for place in places for part in (place, str(folder / place.strip("-")))]
        environment = {**os.environ, "TRACE_OUT": str(folder / "out"), "PYTHONPATH": str(folder / "probe")}
        subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=True)
        traces = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((folder / "out").glob("*.json"))]
    return figures(traces)


def figures(traces: Sequence[dict[str, list[list[object]]]]) -> dict[str, object]:
    """Return the figures from the files of all processes."""
    functions: Counter[tuple[str, str]] = Counter()
    modules: set[str] = set()
    for one in traces:
        for file, name, count in one["functions"]:
            if (place := _ours(str(file))) and place.endswith(".py"):
                functions[place, str(name)] += int(str(count))
        modules |= {place for file in one["modules"] if (place := _ours(str(file)))}
    rooms: dict[str, list[int]] = {}
    for room in sorted({str(Path(file).parent) for file, _ in functions}):
        own = [(file, name) for file, name in functions if str(Path(file).parent) == room]
        rooms[room] = [len(own), len({file for file, _ in own})]
    return {
        "functions": len(functions),
        "files": len({file for file, _ in functions}),
        "modules": len(modules),
        **{name: functions[place] for name, place in CALLS.items()},
        "rooms": rooms,
    }


def _ours(file: str) -> str:
    """Return the path of a product file relative to the repository; empty for other files."""
    try:
        place = Path(file).relative_to(ROOT).as_posix()
    except ValueError:
        return ""
    return place if place.partition("/")[0] in ROOMS or "/" not in place else ""


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trace", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("arguments", nargs="*", help="options of the main command, behind --")
    options = parser.parse_args()
    found = traced(options.arguments or DEFAULT)
    if options.json:
        print(json.dumps(found, indent=1))
        return
    rooms = found.pop("rooms")
    for name, number in found.items():
        print(f"{name:<14} {number}")
    assert isinstance(rooms, dict)
    for room, (functions, files) in sorted(rooms.items(), key=lambda pair: -pair[1][0]):
        print(f"  {functions:>4} functions in {files:>2} files of {room}")


if __name__ == "__main__":
    main()
