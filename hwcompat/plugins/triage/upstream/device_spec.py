"""The file that describes a device to transformers' tests: `TRANSFORMERS_TEST_DEVICE_SPEC` names it.

Source: the end of transformers/testing_utils.py (5.5.4). The variable is a file's name in the working folder: its
stem is imported as a module, so that a path can't be given. `DEVICE_NAME` becomes `torch_device`; `MANUAL_SEED_FN`,
`EMPTY_CACHE_FN` and `DEVICE_COUNT_FN` replace torch's functions for that device, and a missing one keeps the default.
No other name is read.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from hwcompat.hardware.backends.factory import backend_class, resolve_target
from hwcompat.hardware.errors import UsageError
from hwcompat.hardware.hardware_commands import OUTPUT, deliver
from hwcompat.hardware.target import Target

if TYPE_CHECKING:
    from hwcompat.hardware.backends._torch import TorchBackend

SPEC_VARIABLE = "TRANSFORMERS_TEST_DEVICE_SPEC"
_HOST = "cpu"

_HEAD = '''\
"""The target `{target}` of hwcompat as a device for transformers' own tests: torch calls it `{device}`.

Start the tests in the folder of this file, and name it without a folder, for it is imported as a module:
TRANSFORMERS_TEST_DEVICE_SPEC={file} python -m pytest <checkout>/tests/models/bert
"""

from hwcompat.hardware.backends.factory import get_backend
from hwcompat.hardware.errors import BackendUnavailable

backend = get_backend("{target}")
if reason := backend.unavailable():
    raise BackendUnavailable("{target} can't be used", why=reason)

DEVICE_NAME = backend.torch_device().type
'''

_ACCELERATOR = '''

def MANUAL_SEED_FN(seed):
    """Seed every device that torch knows, including this one."""
    import torch

    torch.manual_seed(seed)


def EMPTY_CACHE_FN():
    """Free the memory that torch caches."""
    backend.empty_cache()


def DEVICE_COUNT_FN():
    """Return the number of devices of this kind."""
    return backend.device_count
'''


def torch_backend(target: Target) -> type[TorchBackend]:
    """Return the backend of a target that transformers' tests can run on; imports no torch.

    Raises `UsageError` for a target that isn't a torch device, and for an index: the tests know a device by its type.
    """
    from hwcompat.hardware.backends._torch import TorchBackend

    found = backend_class(target.name)
    if not issubclass(found, TorchBackend):
        raise UsageError(
            f"transformers' tests can't run on {target}",
            why="the tests need a torch device",
            fix="Choose a target such as cpu, cuda, rocm, mps, xpu or simulated.",
        )
    if target.index:
        raise UsageError(
            f"transformers' tests can't select {target}",
            why="they know a device by its type, without an index",
            fix=f"Make only that device visible to the process, and pass {target.kind}.",
        )
    return found


def spec_name(target: Target) -> str:
    """Return the name of a target's file, an unusual module name."""
    return f"hwcompat_{target.name}_spec.py"


def spec_text(target: Target) -> str:
    """Return the file for a target. Raises `UsageError` as `torch_backend` does."""
    device = torch_backend(target).DEVICE_TYPE
    head = _HEAD.format(target=target.name, device=device, file=spec_name(target))
    # transformers counts accelerators; its own functions return none for the host.
    return head if device == _HOST else head + _ACCELERATOR


@click.command("device-spec", short_help="Print the file with which transformers' tests use a target.")
@click.argument("target")
@OUTPUT
def device_spec_command(target: str, output: Path | None) -> None:
    """Print the file with which transformers' own tests use a target.

    \b
    Examples:
      hwcompat devices device-spec cuda --output hwcompat_cuda_spec.py
    """
    deliver(spec_text(resolve_target(target)), output)


COMMANDS = (device_spec_command,)
