"""The container file installs what is pinned, runs without rights, and starts a program that the package has."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def instructions() -> list[tuple[str, str]]:
    text = (ROOT / "Containerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in joined.splitlines()]


def of(kind: str) -> list[str]:
    return [words for name, words in instructions() if name == kind]


def test_what_the_image_has_and_how_it_runs() -> None:
    installing = [words for words in of("RUN") if "pip install" in words]
    assert len(installing) == 2
    for words in installing:
        assert "constraint constraints.txt" in words or "PIP_CONSTRAINT=constraints.txt" in words
        assert "--requirement requirements.txt" in words or "--no-deps" in words
    (extra,) = re.findall(r"\.\[(\w+)\]", installing[1])
    assert extra in PROJECT["project"]["optional-dependencies"]
    assert any("torch.version.cuda is None" in words for words in of("RUN"))
    names = [name for name, _ in instructions()]
    last_stage = instructions()[len(names) - 1 - names[::-1].index("FROM") :]
    copied = [words for name, words in last_stage if name in ("COPY", "ADD")]
    assert copied == ["--from=build /opt/hwcompat /opt/hwcompat"]
    assert not [words for name, words in last_stage if "pip" in words]
    sources = [words.split()[:-1] for words in of("COPY") if not words.startswith("--from")]
    assert [name for found in sources for name in found if not (ROOT / name).exists()] == []
    (user,) = of("USER")
    assert int(user) > 0  # a number: an orchestrator can see that it isn't root
    assert names.index("USER") > names.index("VOLUME")
    (entry,), (folder,) = of("ENTRYPOINT"), of("WORKDIR")[1:]
    assert json.loads(entry)[0] in PROJECT["project"]["scripts"]
    assert folder in json.loads(of("VOLUME")[0])
