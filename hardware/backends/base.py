"""The contract between a suite and a target: `BaseBackend.load` gives a `Runnable`, and nothing else is used.

Inputs and outputs are NumPy arrays by name, so that what compares them needs no framework of the target.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ..errors import BackendUnavailable
from ..evidence.record import Stage
from ..inventory.target_status import TargetStatus
from ..model.model_types import FileSubject as FileSubject
from ..model.model_types import Generation as Generation
from ..model.model_types import ModelSubject as ModelSubject
from ..model.model_types import Unsupported as Unsupported
from ..target import Target
from ._device_info import DeviceInfo as DeviceInfo
from ._device_info import DeviceSettings, settings_for

if TYPE_CHECKING:
    from ..inventory.hardware_info import HardwareInfo
    from ..model.model_types import Array as Array
    from ..model.model_types import Inputs as Inputs
    from ..optimization.optimization_steps import OptimizationLevel, OptimizationResult


STEPS = 6
"""Tokens that suites decode, and that a proof has to see decoded."""


@dataclass(frozen=True, kw_only=True)
class Execution:
    """Proof of where one forward pass ran: calls by operator on the target and on the host.

    `dtype` is what operators with parameters computed in; `unseen` says what this proof can't see.
    """

    native: Mapping[str, int]
    offloaded: Mapping[str, int]
    dtype: str
    device: str
    unseen: str
    host_allowed: frozenset[str] = frozenset()

    @property
    def beyond_allowed(self) -> dict[str, int]:
        """Operators that ran on the host and aren't on the target's short allow-list."""
        return {name: count for name, count in self.offloaded.items() if name not in self.host_allowed}


_MANTISSA_BITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8, "float8_e4m3fn": 4, "int8": 7}


def coarsest(dtypes: Iterable[str]) -> str:
    """Of the dtypes that products were computed in, the one with the fewest bits: a proof isn't that of the majority.
    Empty where there is none that has a fraction or is of a quantised model."""
    known = [name for name in dtypes if name in _MANTISSA_BITS]
    return min(known, key=_MANTISSA_BITS.__getitem__, default="")


class Runnable(ABC):
    """A model on its target. Call it with arrays; every optional ability is named in `can`."""

    can: frozenset[str] = frozenset()
    """Of `generate`, `backward`, `save`."""

    gives_all: bool = False
    """Whether it gives every output that the model itself does; a runtime's own class may leave some out."""

    failed: Mapping[str, Unsupported] = MappingProxyType({})
    """Abilities that the runnable hasn't got because an export or a conversion failed, and how."""

    on_host: bool = False
    """Whether its target is the host, so that there is nothing to watch."""

    actual_dtype: str
    conditions: Mapping[str, str]

    @abstractmethod
    def __call__(self, **inputs: Array) -> dict[str, Array]:
        """The outputs of one forward pass, by name: numbers as float64; whole numbers, where it gives them, too."""

    @abstractmethod
    def execution(self) -> Execution:
        """Run the example inputs once more under the tracer of this target."""

    @abstractmethod
    def watched(self, inputs: Inputs) -> tuple[dict[str, Array], Mapping[str, int]]:
        """Return the outputs of a forward pass that is watched, and the operators, by name, that it left to the host.

        A model may leave its device for one length or batch and not for another, so suites ask it of each set of
        inputs. The outputs are those of the pass that was watched.
        """

    def prepare(self, inputs: Inputs) -> None:  # noqa: B027 - an optional hook
        """Export or compile what inputs of these shapes need, so that their first pass only computes."""

    def generate(self, inputs: Inputs, *, steps: int) -> Generation:
        """Decode `steps` tokens greedily with the target's cache."""
        raise NotImplementedError

    def gradients(self, inputs: Inputs) -> dict[str, Array]:
        """Gradients of the loss of `_loss.py`, by parameter name."""
        raise NotImplementedError

    def save_and_reload(self, folder: Path) -> Runnable:
        """Save in the target's own format and load what was saved on the same target."""
        raise NotImplementedError

    def close(self) -> None:  # noqa: B027 - an optional hook
        """Give back what was taken."""


class BaseBackend(ABC):
    """Runs models on one target. A subclass in `hardware/backends/<target>.py` is found by its file's name."""

    BACKEND_NAME: ClassVar[str]
    ROUTE: ClassVar[str] = ""
    """How a model always gets to the target; empty if there are several routes, which evidence then names."""
    EXPIRES_ON: ClassVar[tuple[str, ...]] = ("torch", "transformers")
    """Whose change of version invalidates all evidence of this backend: names of `hardware.evidence.versions`, which
    are distributions, `package (target)` in an environment of its own, `cuda (torch)` for what torch was built with,
    `<vendor>_driver` and `<vendor>_firmware`."""

    EXPIRES_ALSO_ON: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """By a variant, a precision or a task: whose change invalidates the evidence of such cells too."""

    EXPORTS: ClassVar[bool] = True
    """Whether it runs what `hardware/export` makes of a model: then its evidence expires with that code too."""

    FORK_SAFE: ClassVar[bool] = True
    CAN: ClassVar[frozenset[str]] = frozenset()
    """What the runnables of this backend can do, known before anything is loaded."""

    WARM_IMPORTS: ClassVar[tuple[str, ...]] = ()
    """Modules that a runner's parent may import before it forks."""

    HOST_ALLOWED: ClassVar[frozenset[str]] = frozenset()
    """The short list of shape, index and mask operators that may run on the host; a cell with them is `medium`."""

    PRECISIONS: ClassVar[tuple[str, ...]] = ("float32",)
    COMPUTES_IN: ClassVar[Mapping[str, str]] = {"tf32": "float32"}
    """By the precision that is asked for, what the target's own record of a pass is to say, where that is another."""

    DEADLINE_S: ClassVar[float] = 300.0
    """Seconds that a check may take where no other limit is asked for; the first one exports, loads and compiles."""

    SIMULATED: ClassVar[bool] = False

    VARIANTS: ClassVar[tuple[str, ...]] = ()
    """What may follow the target's name after a colon, in the runtime's own spelling."""

    INDEXED: ClassVar[bool] = True
    """Whether there can be several devices of this target; one beyond what is there is a missing device."""

    # What others ask of a target, so that its name stands in its own file alone.

    ALIASES: ClassVar[tuple[str, ...]] = ()
    """Names of vendors and browsers that users may write for the target."""

    AUTO_ORDER: ClassVar[int] = 0
    """Its place among the targets that `auto` tries where there is no model, from 1; 0 if it is never tried."""

    VENDOR: ClassVar[str] = ""
    """The vendor whose devices it means, as inventories write it; empty for the host and for targets of many."""

    VENDOR_DEVICES: ClassVar[tuple[str, ...]] = ("gpu",)
    """Which kinds of that vendor's devices it reaches."""

    DEVICE_TYPE: ClassVar[str] = ""
    """What torch calls devices of this target; empty where torch's own modules don't run on them."""

    NEEDS_TORCH_BUILD: ClassVar[bool] = False
    """Whether torch has to be built for this target; a build for one has no other."""

    COLLECTIVES: ClassVar[str] = ""
    """The backend of torch.distributed in which its devices form a group; empty where there is none."""

    COLLECTIVES_LIBRARY: ClassVar[str] = ""
    """What computes these collectives, where that has another name."""

    OWN_ENVIRONMENT: ClassVar[bool] = False
    """Whether its runtime lies in an environment of its own."""

    IN_BROWSER: ClassVar[bool] = False
    """Whether a browser computes."""

    VARIANTS_NEED: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """Variants that need one package and nothing else that the target needs: its name, and the command that installs
    it."""

    WATCHED_GRAPH: ClassVar[str] = ""
    """The kind of graph in which single nodes can be watched (`onnx`, `ir`); empty where none can."""

    CALLED_BY_SCRIPTS: ClassVar[bool] = False
    """Whether its runtime is public, and called by a script of a few lines."""

    OPERATORS_TRIED: ClassVar[bool] = False
    """Whether its table of operators was tried one by one: what only a source says may yet be computed elsewhere."""

    OPTIMUM_EXPORTS: ClassVar[bool] = False
    """Whether its exporters are those of optimum-intel, which are read from source."""

    SHARED: ClassVar[bool] = False
    """Whether several processes may compute on the device at once without changing each other's results."""

    optimized: OptimizationResult | None = None
    """What the last `prepare_model`, `optimize_for_inference` or `optimize_for_training` did."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._config: Mapping[str, Any] = {}
        self._setup_environment()

    def _setup_environment(self) -> None:  # noqa: B027 - an optional hook
        """Set what the runtime reads from the environment, before it is imported."""

    @abstractmethod
    def _check_availability(self) -> str:
        """Why the target can't be used here; the empty string when it can."""

    def unavailable(self) -> str:
        """Why the target can't be used here; the empty string when it can. Imports the runtime."""
        return self._check_availability()

    @classmethod
    def of_variant(cls, variant: str) -> type[BaseBackend]:
        """The class behind a variant of this target: this one, unless a variant works otherwise."""
        return cls

    @classmethod
    def is_shared(cls, target: Target) -> bool:
        """Whether suites may run on `target` side by side; asked without setting up its runtime."""
        return cls.SHARED

    @classmethod
    def expected(cls, inventory: HardwareInfo) -> TargetStatus:
        """Whether the target may be on the machine of an inventory. Imports no runtime."""
        return TargetStatus(target="", expected=True, reason="no rule here knows it; a probe can tell")

    @property
    def is_available(self) -> bool:
        """Whether the runtime says that the target can be used; `known_answer` proves it."""
        return not self.unavailable()

    # The device

    @property
    def device_id(self) -> int:
        """Which of the target's devices is used, from 0."""
        return self.target.index or 0

    @property
    @abstractmethod
    def device(self) -> Any:
        """What the runtime calls the device: a torch device, or its name."""

    @property
    @abstractmethod
    def device_count(self) -> int:
        """How many devices of this target the runtime sees; 0 where it can't be used."""

    def set_device(self, device_id: int) -> None:
        """Use another of the target's devices. Raises `BackendUnavailable` where there are fewer."""
        count = self.device_count
        if not 0 <= device_id < count:
            raise BackendUnavailable(f"{self.BACKEND_NAME}:{device_id} isn't there", why=f"there are {count} devices")
        self.target = replace(self.target, index=device_id if self.INDEXED else None)

    def get_device_info(self, device_id: int | None = None) -> DeviceInfo:
        """The device behind the target, or another of its devices."""
        return self._get_device_info(self.device_id if device_id is None else device_id)

    @abstractmethod
    def _get_device_info(self, device_id: int) -> DeviceInfo:
        """One of the target's devices; whether it is there was asked before."""

    def device_info(
        self,
        device_type: str,
        name: str,
        *,
        device_id: int = 0,
        memory: int | None = None,
        capability: str | None = None,
        driver: str | None = None,
        **properties: Any,
    ) -> DeviceInfo:
        """A `DeviceInfo` of this backend; what every subclass would write alike."""
        return DeviceInfo(
            backend=self.BACKEND_NAME,
            device_type=device_type,
            device_id=device_id,
            device_name=name,
            compute_capability=capability,
            total_memory_bytes=memory,
            driver_version=driver,
            properties=properties,
        )

    @property
    def settings(self) -> DeviceSettings:
        """What to start with on this target, each with its reason; `config` of the factory goes before."""
        return settings_for(self.target).with_own(self._config)

    def configure(self, config: Mapping[str, Any]) -> None:
        """Put one's own settings before those of the product. Raises `UsageError` for an unknown one."""
        settings_for(self.target).with_own(config)
        self._config = dict(config)

    def to_device(self, value: Any) -> Any:
        """Tensors, modules, and what holds tensors, on the device. A runtime that takes arrays from the host's memory
        gives back what it was given."""
        return value

    def synchronize(self) -> None:  # noqa: B027 - an optional hook
        """Wait until the device has finished its work."""

    def empty_cache(self) -> None:  # noqa: B027 - an optional hook
        """Give memory back that the runtime keeps for later."""

    # Models of the user's own

    def prepare_model(
        self, model: Any, optimization_level: OptimizationLevel | str = "O2", sample_input: Any = None
    ) -> Any:
        """The module on the device, optimised as far as a level goes; `optimized` says what was done.

        Raises `Unsupported` where the target doesn't run modules.
        """
        raise self._runs_no_modules()

    def optimize_for_inference(self, model: Any, sample_input: Any = None, dtype: Any = None) -> Any:
        """The module on the device in evaluation mode, with what is right and faster on the sample (level O2)."""
        raise self._runs_no_modules()

    def optimize_for_training(self, model: Any, optimizer: Any = None, dtype: Any = None) -> Any:
        """The module on the device, ready for training (level O2); with an optimiser, both of them."""
        raise self._runs_no_modules()

    def _runs_no_modules(self) -> Unsupported:
        return Unsupported(
            f"{self.target} runs no modules of torch: it compiles them in load()", error_type="unsupported_format"
        )

    @abstractmethod
    def known_answer(self) -> tuple[float, float, float]:
        """The answer to `hardware.known_answer.question()`, computed on the target."""

    @abstractmethod
    def load(self, subject: ModelSubject, example_inputs: Inputs, precision: str) -> Runnable:
        """Put the model on the target. It takes the module over: the caller doesn't use it afterwards.

        Raises `Unsupported` with a cause, or what the runtime raises.
        """

    def require(self, precision: str) -> None:
        """Raise `Unsupported` for a precision that the target doesn't compute in."""
        if precision not in self.PRECISIONS:
            raise Unsupported(f"{self.target} doesn't compute in {precision}", error_type="unsupported_dtype")

    def load_file(self, subject: FileSubject, example_inputs: Inputs, precision: str) -> Runnable:
        """Put a graph file on the target. Raises `Unsupported` where its runtime reads no such files."""
        raise Unsupported(
            f"{self.target} runs no {subject.file.suffix} files", error_type="unsupported_format", stage=Stage.LOAD
        )

    def reset(self) -> bool:
        """Bring a lost device back; False where that can't be done from here."""
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back what the backend took."""
        self.empty_cache()
