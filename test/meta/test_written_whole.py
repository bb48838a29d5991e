"""Files that are kept between runs are written whole: a process that is killed leaves no half file."""

from __future__ import annotations

import ast

from test_structure import PACKAGES, name_of, product_files, tree_of

WRITERS = ("write_text", "write_bytes", "save_file", "save_model")
TEMPORARY = "a folder or a pipe that ends with its process, or an answer that is read when it is complete"
RENAMED = "a folder of work that is renamed when it is complete"
MAY = {
    "it writes files whole": ["hardware/files.py"],
    "what isn't a plain file, as /dev/stdout, can't be replaced": ["hardware/hardware_commands.py"],
    "GitHub's summary, which steps append to": ["reports/delivery.py"],
    "the log of library messages, which runs append to": ["reports/run_command.py"],
    "what a command prints, while it runs": ["hwcompat/cli/enable_command.py"],
    "a counter of the kernel": ["hardware/testing/speed_measurement.py"],
    "it runs on a machine that has none of our code, and renames": ["hwcompat/plugins/fleet/lab_remote.py"],
    RENAMED: [
        *("hardware/export/routes.py", "hardware/export/convert_model.py", "hardware/export/weight_compression.py"),
        "hwcompat/plugins/fleet/lab_evidence.py",
    ],
    TEMPORARY: [
        *("hardware/backends/_torch_checks.py", "hardware/backends/_openvino_model.py", "hardware/process.py"),
        *("hardware/evidence/evidence_table.py", "hardware/testing/warm.py", "hardware/testing/suite_child.py"),
        "hardware/operators/device_probe.py",
        *("hardware/workers/xla_worker.py", "hardware/workers/onnx_worker.py", "hardware/workers/web_worker.py"),
        *("hardware/workers/serve.py", "generators/mutants/mutation_plugin.py", "generators/mutants/orders.py"),
        *(f"hwcompat/plugins/fleet/{name}.py" for name in ("ray_cluster", "ray_evidence", "ray_node", "lab_run")),
        *(f"hwcompat/plugins/triage/upstream/{name}.py" for name in ("upstream_plugin", "children")),
        *(
            f"hwcompat/plugins/triage/repro/{name}.py"
            for name in ("capture_failure", "captured_failure", "failure_recorder")
        ),
        "hwcompat/plugins/triage/localization/localize_cell.py",
        "hwcompat/plugins/web_page/page_seal.py",
        *("hwcompat/plugins/stress/stress_child.py", "hwcompat/plugins/placement/mesh/mesh_check.py"),
    ],
}
"""Product files that may write otherwise, by the reason."""


def _opens_to_write(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name not in ("open", "fdopen"):
        return name in WRITERS
    texts = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return any(text.rstrip("b") in ("w", "a", "x", "w+", "a+") for text in texts)


def test_only_these_files_write_otherwise_than_whole() -> None:
    inside = [path for path in product_files() if name_of(path).startswith(PACKAGES) and "/" in name_of(path)]
    found = {name_of(path) for path in inside if any(map(_opens_to_write, ast.walk(tree_of(path))))}
    assert sorted(found) == sorted(name for names in MAY.values() for name in names)


def test_code_that_writes_otherwise_is_seen_and_nothing_else() -> None:
    for text in ("p.write_text('x')", "open(p, 'w')", "p.open('ab')", "save_file({}, p)"):
        assert any(map(_opens_to_write, ast.walk(ast.parse(text)))), text
    for text in ("write_whole(p, 'x')", "open(p)", "p.open('rb')"):
        assert not any(map(_opens_to_write, ast.walk(ast.parse(text)))), text
