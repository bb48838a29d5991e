"""Where in code a finding failed, and the commands about its cell."""

from __future__ import annotations

from reports.failure_place import failure_commands, failure_place

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
