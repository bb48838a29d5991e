"""Nothing that the product reads can be code to it: no call in it loads pickles, evaluates text, unpacks archives
wherever they say, asks a shell, or trusts the code of a checkpoint."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = frozenset(
    {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "yaml", "tarfile"}
)
CALLS = frozenset({"eval", "exec", "os.system", "os.popen", "torch.load", "shutil.unpack_archive", "torch.hub.load"})
METHODS = frozenset({"extractall", "extract"})
WORDS = {"shell": False, "allow_pickle": False, "trust_remote_code": False, "weights_only": True}
"""Arguments, and the one value that each may have."""


def product() -> list[Path]:
    own = [
        path for folder in ("hardware", "generators", "reports", "hwcompat") for path in (ROOT / folder).rglob("*.py")
    ]
    return sorted([*own, *ROOT.glob("*.py")])


def wrong_in(source: str) -> Iterator[str]:
    """What a module does that could make code of data."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in MODULES and not node.level:
            yield str(node.module)
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in CALLS or name.rpartition(".")[2] in METHODS:
                yield name
            for word in node.keywords:
                value = word.value.value if isinstance(word.value, ast.Constant) else ...
                if word.arg in WORDS and value is not WORDS[word.arg]:
                    yield f"{word.arg} of {name}"


@pytest.mark.parametrize("path", product(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_data_can_become_code(path: Path) -> None:
    assert list(wrong_in(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from joblib import load",
        "eval(x)",
        "exec(x)",
        "os.system(x)",
        "torch.load(x)",
        "archive.extractall(x)",
        "run(x, shell=True)",
        "run(x, shell=asked)",
        "np.load(x, allow_pickle=True)",
        "kind.from_pretrained(x, trust_remote_code=True)",
        "read(x, weights_only=False)",
    ],
)
def test_what_could_is_seen(source: str) -> None:
    assert list(wrong_in(source))


def test_what_could_not_is_none() -> None:
    fine = (
        "model.eval()\nrun(x, shell=False)\nkind.from_pretrained(x, trust_remote_code=False)\nfrom .marshal import a"
    )
    assert list(wrong_in(fine)) == []
