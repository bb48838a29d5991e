"""Each expression of an error type matches a real message, and no hostile text makes it slow.

Where in code a finding failed, and the commands about its cell.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from generators.compatibility.rules import load_rules
from hardware.evidence.error_types import current_name, known_error_types
from reports.error_patterns import Around, error_types, identify, known_issues, patterns, target_of
from reports.failure_place import failure_commands, failure_place

MESSAGES = tomllib.loads(
    (Path(__file__).parents[1] / "support/data/failure_messages.toml").read_text(encoding="utf-8")
)["message"]


def around(message: dict[str, object]) -> Around:
    return Around(
        check=message.get("check", ""),
        stage=message.get("stage", ""),
        target=message.get("target", ""),
        operators=tuple(message.get("operators", ())),
        rules=frozenset(message.get("rules", ())),
        versions=message.get("versions", {}),
    )


def diagnosed(message: dict[str, object]) -> tuple[str, str, bool, str]:
    found = identify(
        message["text"], recorded=message.get("recorded", ""), log=message.get("log", ""), around=around(message)
    )
    return found.error_type, found.cause, found.confidence == "low", target_of(message["text"])


def test_real_messages_are_recognized_with_what_they_name():
    wrong = [
        (message["text"], found)
        for message in MESSAGES
        for found in [diagnosed(message)]
        if found != (message["type"], message.get("cause", ""), message["type"] == "unknown", message.get("told", ""))
    ]
    assert wrong == []
    assert all(one["source"] == "seen here" or re.match(r"https://|[a-z_]+[- ,]", one["source"]) for one in MESSAGES)


def test_every_expression_has_a_message_and_every_type_is_identified_by_one():
    texts = {kind: [] for kind in known_error_types()}
    for message in MESSAGES:
        texts[message["type"]].append(f"{message['text']}\n{message.get('log', '')}")
    idle = [
        one.source
        for pattern in patterns()
        for one in pattern.match
        if not any(one.search(text) for kind in (pattern.error_type, "upstream_bug") for text in texts[kind])
    ]
    assert idle == []
    assert {pattern.error_type for pattern in patterns()} <= {kind for kind, found in texts.items() if found}


def test_data_names_only_error_types_rules_and_exceptions_that_there_are():
    rules = {rule.id for rule in load_rules().rules}
    for pattern in patterns():
        assert pattern.error_type in error_types()
        assert pattern.of <= {*error_types()}
        assert pattern.rules <= rules
    assert all(issue.of <= {*error_types()} and issue.url.startswith("https://") for issue in known_issues())
    assert current_name("crashed") == "crash"
    assert "crashed" not in known_error_types()


def test_expressions_find_what_plain_regular_expressions_find():
    texts = [message["text"] for message in MESSAGES]
    for expression in (one for pattern in patterns() for one in pattern.match):
        plain = re.compile(expression.source, re.IGNORECASE)
        assert [bool(expression.search(one)) for one in texts] == [bool(plain.search(one)) for one in texts]


def test_hostile_texts_end():
    pieces = ("a", "a-", "lib", "aten::x ", '"a', "Permission denied ", "requires x", "[ ", "é\x00")
    for piece in pieces:
        text = piece * (500_000 // len(piece))
        assert identify(text, log=text).error_type == "unknown", piece


LIBRARY = "/home/u/.venv/lib/python3.11/site-packages"
TRACEBACK = f"""Traceback (most recent call last):
  File "/home/u/suites/test_blt_cpu.py", line 160, in test_generates
    assert case.generates()
           ^^^^^^^^^^^^^^^^
  File "{LIBRARY}/transformers/cache_utils.py", line 1233, in __init__
    for _ in range(decoder_config.num_hidden_layers):
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "{LIBRARY}/transformers/configuration_utils.py", line 422, in __getattribute__
    return super().__getattribute__(key)
  File "{LIBRARY}/torch/nn/modules/module.py", line 1789, in _call_impl
    return forward_call(*args, **kwargs)
AttributeError: 'BltConfig' object has no attribute 'num_hidden_layers'
"""


def test_the_place_is_the_last_frame_of_the_code_that_failed() -> None:
    assert failure_place(TRACEBACK) == (
        "transformers/cache_utils.py:1233, in __init__: for _ in range(decoder_config.num_hidden_layers):"
    )
    only_own = TRACEBACK[: TRACEBACK.index("  File", 50 + TRACEBACK.index("test_blt"))]
    assert failure_place(only_own) == "test_blt_cpu.py:160, in test_generates: assert case.generates()"
    assert failure_place("Segmentation fault (core dumped)") == ""
    torch_alone = f'  File "{LIBRARY}/torch/nn/functional.py", line 7, in conv2d\n'
    assert failure_place(torch_alone) == "torch/nn/functional.py:7, in conv2d"
    windows = r'  File "C:\v\Lib\site-packages\diffusers\models\unet.py", line 3, in forward'
    assert failure_place(windows) == "diffusers/models/unet.py:3, in forward"


def test_commands_fit_the_cell_and_the_failure() -> None:
    cell = "blt/text-generation/openvino:CPU/float16"
    again, *rest = failure_commands(cell, "numerical_mismatch")
    assert again == "hwcompat run --model blt --device openvino:CPU --precision float16"
    assert rest == [f"hwcompat {name} {cell}" for name in ("localize", "repro", "fix")]
    assert [one.split()[1] for one in failure_commands(cell, "crash")] == ["run", "repro", "fix"]
    of_weights = failure_commands("tiny@1377e9af/fill-mask/cpu/float32", "crash")
    assert [one.split()[1] for one in of_weights] == ["repro", "fix"], "the folder of the weights isn't known"
    assert failure_commands("rank/module-forward/cpu/float32", "crash") == (
        "hwcompat fix rank/module-forward/cpu/float32",
    )
    assert failure_commands("cuda", "driver_missing") == ()
