"""What is kept between runs is written whole: a process that is killed leaves no half file where one is read."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WRITERS = ("write_text", "write_bytes", "save_file", "save_model")

MAY = {
    "hardware/files.py": "it is how files are written whole",
    "hardware/evidence/writer.py": "lines are appended, each by one call",
    "hardware/hardware_commands.py": "what isn't a plain file, as /dev/stdout, can't be replaced",
    "reports/delivery.py": "GitHub's summary, which steps append to",
    # Folders that appear by one rename when all is in them, and a file that is renamed like that
    "hardware/export/routes.py": "a folder of work, renamed when it proved right",
    "hardware/export/convert_model.py": "the same folder",
    "hardware/export/weight_compression.py": "a folder of work, renamed when it is whole",
    "hwcompat/plugins/fleet/lab_remote.py": "it runs elsewhere and imports nothing of ours; it renames",
    # Temporary folders, which go with their process
    "hardware/backends/_torch_checks.py": "a check's own temporary folder",
    "hardware/backends/_openvino_model.py": "a check's own temporary folder",
    "hardware/evidence/evidence_table.py": "a temporary folder, for DuckDB to scan",
    "hardware/testing/warm.py": "a temporary folder",
    "hardware/testing/suite_child.py": "the logs of a child",
    "hwcompat/plugins/stress/stress_child.py": "a pipe",
    "hwcompat/plugins/triage/upstream/upstream_plugin.py": "a temporary folder",
    "hwcompat/plugins/triage/upstream/children.py": "a temporary folder",
    "hardware/process.py": "logs of children",
    "hwcompat/plugins/placement/mesh/mesh_check.py": "logs of children",
    "hardware/workers/xla_worker.py": "a worker's answer, read when it says that it is done",
    "hardware/workers/onnx_worker.py": "a worker's answer",
    "hardware/workers/web_worker.py": "a worker's answer",
    "hardware/workers/serve.py": "a pipe",
    "hwcompat/plugins/fleet/ray_cluster.py": "a temporary folder",
    "hwcompat/plugins/fleet/ray_evidence.py": "a temporary folder, from which evidence is merged",
    "hwcompat/plugins/fleet/ray_node.py": "a temporary folder of a bundle",
    "hwcompat/plugins/triage/localization/localize_cell.py": "where a child is",
    "hwcompat/plugins/fleet/lab_evidence.py": "a folder of work; what is kept is merged",
    "hwcompat/plugins/fleet/lab_run.py": "a temporary folder",
    "generators/mutants/mutation_plugin.py": "a child's answer",
    "generators/mutants/orders.py": "a temporary folder",
    "hwcompat/plugins/triage/repro/capture_failure.py": "a temporary folder",
    "hwcompat/plugins/triage/repro/captured_failure.py": "a child's answer",
    "hwcompat/plugins/triage/repro/failure_recorder.py": "a child's answer",
    "hwcompat/plugins/web_page/page_capture.py": "a child's answer",
    "hwcompat/plugins/web_page/page_seal.py": "a temporary folder",
}
"""Product files that may write otherwise, each with the reason."""


def _opens_to_write(node: ast.Call) -> bool:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in WRITERS:
        return True
    if name not in ("open", "fdopen"):
        return False
    texts = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return any(text.rstrip("b") in ("w", "a", "x", "w+", "a+") for text in texts)


def _writers() -> set[str]:
    found = set()
    for path in (
        p for floor in ("hardware", "generators", "reports", "hwcompat") for p in (ROOT / floor).rglob("*.py")
    ):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if any(isinstance(node, ast.Call) and _opens_to_write(node) for node in ast.walk(tree)):
            found.add(path.relative_to(ROOT).as_posix())
    return found


def test_only_these_files_write_otherwise_than_whole() -> None:
    assert sorted(_writers() - set(MAY)) == []


def test_none_of_them_is_excused_that_needs_no_excuse() -> None:
    appends = {"hardware/evidence/writer.py"}  # with os.open
    assert sorted(set(MAY) - _writers() - appends) == []


@pytest.mark.parametrize("text", ["p.write_text('x')", "open(p, 'w')", "p.open('ab')", "save_file({}, p)"])
def test_a_file_that_writes_otherwise_would_be_seen(text: str) -> None:
    assert any(isinstance(node, ast.Call) and _opens_to_write(node) for node in ast.walk(ast.parse(text)))


@pytest.mark.parametrize("text", ["write_whole(p, 'x')", "open(p)", "p.open('rb')"])
def test_a_file_that_reads_or_writes_whole_is_let_be(text: str) -> None:
    assert not any(isinstance(node, ast.Call) and _opens_to_write(node) for node in ast.walk(ast.parse(text)))
