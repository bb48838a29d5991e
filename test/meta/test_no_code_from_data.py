"""No data becomes code: no call in the product loads pickles, evaluates text, unpacks archives, starts a shell, or
trusts the code of a checkpoint."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_structure import name_of, product_files, tree_of

from hardware.errors import BrokenInput
from hardware.evidence.published import yaml_of

MODULES = frozenset(
    {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "yaml", "tarfile"}
)
CALLS = frozenset({"eval", "exec", "os.system", "os.popen", "torch.load", "shutil.unpack_archive", "torch.hub.load"})
METHODS = frozenset({"extractall", "extract"})
WORDS = {"shell": False, "allow_pickle": False, "trust_remote_code": False, "weights_only": True}
"""Arguments, and the one value that each may have."""
ALLOWED = {"hardware/evidence/published.py: yaml"}
"""It reads others' YAML, and `test_a_safe_loader_reads_yaml` holds how."""


def wrong_in(tree: ast.AST) -> Iterator[str]:
    """What a module does that could make code of data."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in MODULES and not node.level:
            yield str(node.module)
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            safe = name == "torch.load" and "weights_only=True" in ast.unparse(node)  # reads tensors alone
            if (name in CALLS and not safe) or name.rpartition(".")[2] in METHODS:
                yield name
            for word in node.keywords:
                value = word.value.value if isinstance(word.value, ast.Constant) else ...
                if word.arg in WORDS and value is not WORDS[word.arg]:
                    yield f"{word.arg} of {name}"


def test_no_data_can_become_code() -> None:
    wrong = {f"{name_of(path)}: {one}" for path in product_files() for one in wrong_in(tree_of(path))}
    assert wrong - ALLOWED == set()


def test_a_safe_loader_reads_yaml(tmp_path: Path) -> None:
    for text in ("a: !!python/object/apply:os.getcwd []", "a: &a {x: 1}\nb:\n  <<: *a"):
        (tmp_path / "a.yaml").write_text(text)
        with pytest.raises(BrokenInput, match="can't be imported"):
            yaml_of(tmp_path / "a.yaml")


def test_what_could_make_code_of_data_is_seen_and_nothing_else() -> None:
    wrong = """import pickle
from joblib import load
eval(x)
exec(x)
os.system(x)
torch.load(x)
archive.extractall(x)
run(x, shell=True)
run(x, shell=asked)
np.load(x, allow_pickle=True)
kind.from_pretrained(x, trust_remote_code=True)
read(x, weights_only=False)"""
    assert [line for line in wrong.splitlines() if not list(wrong_in(ast.parse(line)))] == []
    fine = (
        "model.eval()\nrun(x, shell=False)\nkind.from_pretrained(x, trust_remote_code=False)\nfrom .marshal import a"
        "\ntorch.load(x, weights_only=True)"
    )
    assert list(wrong_in(ast.parse(fine))) == []
