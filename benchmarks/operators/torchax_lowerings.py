"""Operators that torchax lowers to XLA, from its table in the environment of target `tpu`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable

from generators.compatibility.operators import Section
from hardware.errors import BackendUnavailable
from hardware.workers import environment_of

from .torch_kernels import CPU_ONLY, natives, packaged

_ASKING = """
import json, torch
from hwcompat.hardware.workers.xla_worker import lowerings
torchax = lowerings()
def name(one): return str(getattr(one, "overloadpacket", one))
table = torchax.ops.ops_registry.all_aten_ops
own = sorted({name(o) for o, f in table.items() if str(o).startswith("aten.") and f.is_jax_function})
made = {**torch.export.default_decompositions(), **torchax.decompositions.DECOMPOSITIONS}
print(json.dumps({"lowered": own, "decomposed": sorted({name(o) for o in made if str(o).startswith("aten.")})}))
"""


def tpu_section(made_on: str) -> Section:
    """Return the section of operators with a torchax lowering, directly or after decomposition by torch.export.

    Raises `BackendUnavailable` if target tpu has no environment.
    """
    environment = environment_of("tpu")
    if environment.python is None:
        raise BackendUnavailable("torchax's table can't be read", why=environment.reason)
    done = subprocess.run(
        [str(environment.python), "-c", _ASKING], capture_output=True, text=True, check=True, timeout=300
    )
    answer = json.loads(done.stdout.splitlines()[-1])
    lowered = set(answer["lowered"])
    decomposed = set(answer["decomposed"]) - lowered
    composite = {f"aten.{one.name}" for one in natives(packaged()) if "CompositeImplicitAutograd" in one.keys}
    composite |= {f"aten.{one.name}" for one in natives(packaged()) if not one.keys}
    supported = lowered | decomposed | (composite - lowered)
    conditions = {f"aten.{name}": f"a CPU's form of aten.{form}" for name, form in CPU_ONLY.items()}
    conditions |= _functional(natives(packaged()), supported)
    supported |= set(conditions)
    return Section(
        kind="declared",
        names="aten",
        source="torchax's table of lowerings, with torch.export's and its own decompositions",
        made_by="python -m benchmarks.operators tpu",
        made_on=made_on,
        versions={
            name: environment.versions[name] for name in ("torchax", "jax", "jaxlib") if name in environment.versions
        },
        supported=tuple(sorted(supported)),
        made_of_others=tuple(sorted(supported - lowered)),
        conditions=dict(sorted(conditions.items())),
        complete=True,
    )


def _functional(entries: Iterable[object], supported: set[str]) -> dict[str, str]:
    """Return in-place variants, which torch.export replaces by functional ones."""
    names = {f"aten.{one.name}" for one in entries}  # type: ignore[attr-defined]
    inplace = (name for name in names if name.endswith("_") and not name.endswith("__") and name not in supported)
    return {name: f"torch.export writes it as {name[:-1]}" for name in sorted(inplace) if name[:-1] in supported}
