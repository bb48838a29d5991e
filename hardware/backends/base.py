"""The contract between a suite and a target: `BaseBackend.load` returns a `Runnable`.

Inputs and outputs are NumPy arrays by name, so that comparing them needs no framework of the target.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ..errors import BackendUnavailable, UsageError, echo
from ..evidence.record import Stage
from ..inventory.target_status import TargetStatus
from ..model.model_types import FileInput as FileInput
from ..model.model_types import Generation as Generation
from ..model.model_types import ModelInput as ModelInput
from ..model.model_types import Unsupported as Unsupported
from ..target import Target
from ._device_info import DeviceInfo as DeviceInfo
from ._device_info import DeviceSettings, settings_for
from ._runnable import Execution as Execution
from ._runnable import Runnable as Runnable
from ._runnable import coarsest as coarsest

if TYPE_CHECKING:
    from ..inventory.hardware_info import HardwareInfo
    from ..model.model_types import Array as Array
    from ..model.model_types import Inputs as Inputs
    from ..optimization.optimization_steps import OptimizationLevel, OptimizationResult


log = logging.getLogger(__name__)

STEPS = 6
"""Number of tokens that suites decode, and that a proof has to cover."""


class BaseBackend(ABC):
    """Base of the targets. The subclass in `hardware/backends/<target>.py` is found by its file's name."""

    BACKEND_NAME: ClassVar[str]
    ROUTE: ClassVar[str] = ""
    """Route of every model to the target; empty if there are several routes, which evidence then names."""
    EXPIRES_ON: ClassVar[tuple[str, ...]] = ("torch", "transformers")
    """Names whose change of version expires all evidence (`hardware.evidence.versions`): distributions,
    `package (target)` in a separate environment, `cuda (torch)` for what torch was built with, `<vendor>_driver` and
    `<vendor>_firmware`."""

    EXPIRES_ALSO_ON: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """More such names, by the variant, precision or task of a cell."""

    EXPORTS: ClassVar[bool] = True
    """Whether models are exported with `hardware/export`, so that evidence expires when that code changes."""

    LISTS_ALL: ClassVar[bool] = False
    """Whether the runtime lists all that is left of a graph, so that an empty list means that nothing is."""

    FORK_SAFE: ClassVar[bool] = True
    CAN: ClassVar[frozenset[str]] = frozenset()
    """Abilities of all runnables of this backend, known before a model is loaded."""

    WARM_IMPORTS: ClassVar[tuple[str, ...]] = ()
    """Modules that a runner's parent process may import before it forks."""

    HOST_ALLOWED: ClassVar[frozenset[str]] = frozenset()
    """Shape, index and mask operators that may run on the host; a cell with any of them is `medium`."""

    PRECISIONS: ClassVar[tuple[str, ...]] = ("float32",)
    FILE_PRECISIONS: ClassVar[tuple[str, ...]] = ()
    """Further precisions of graph files that it computes as they are."""

    COMPUTES_IN: ClassVar[Mapping[str, str]] = {"tf32": "float32"}
    """Dtype that the target's proof has to name, by the requested precision, if it is another."""

    DEADLINE_S: ClassVar[float] = 300.0
    """Default time limit of a check in seconds; the first check exports, loads and compiles."""

    SIMULATED: ClassVar[bool] = False

    VARIANTS: ClassVar[tuple[str, ...]] = ()
    """Names that may follow the target's name and a colon, in the runtime's spelling."""

    INDEXED: ClassVar[bool] = True
    """Whether there can be several devices of this target. An index beyond them is a missing device."""

    # Facts that other modules ask of a target, so that its name is written in its own file only.

    ALIASES: ClassVar[tuple[str, ...]] = ()
    """Names of vendors and browsers that users may write for the target."""

    EXTRA: ClassVar[str] = ""
    """Extra of this package that installs the target's runtime, beside `cpu`."""

    AUTO_ORDER: ClassVar[int] = 0
    """Position, from 1, among the targets that `auto` tries if there is no model; 0 if it is never tried."""

    VENDOR: ClassVar[str] = ""
    """Vendor of its devices, as inventories name it; empty for the host and for targets of several vendors."""

    VENDOR_DEVICES: ClassVar[tuple[str, ...]] = ("gpu",)
    """Kinds of that vendor's devices that the target reaches."""

    DEVICE_TYPE: ClassVar[str] = ""
    """torch's name of the device type; empty if torch modules don't run on the target."""

    NEEDS_TORCH_BUILD: ClassVar[bool] = False
    """Whether torch has to be built for this target; such a build supports no other one."""

    COLLECTIVES: ClassVar[str] = ""
    """Backend of torch.distributed for these devices; empty if there is none."""

    COLLECTIVES_LIBRARY: ClassVar[str] = ""
    """Name of the library behind `COLLECTIVES`, if it is another."""

    OWN_ENVIRONMENT: ClassVar[bool] = False
    """Whether the runtime is installed in a separate environment."""

    IN_BROWSER: ClassVar[bool] = False
    """Whether a browser computes."""

    VARIANTS_NEED: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """Variants that need one package and nothing else that the target needs: its name and its install command."""

    WATCHED_GRAPH: ClassVar[str] = ""
    """Kind of graph in which single nodes can be observed (`onnx`, `ir`); empty if there is none."""

    READS: ClassVar[tuple[str, ...]] = ()
    """Formats of the files that `load_file` takes, by their names in `hardware/file_formats.toml`."""

    CALLED_BY_SCRIPTS: ClassVar[bool] = False
    """Whether the runtime is public and a script of a few lines can call it."""

    OPERATORS_TRIED: ClassVar[bool] = False
    """Whether every operator of its table was tried; one listed by a source alone may still run elsewhere."""

    OPTIMUM_EXPORTS: ClassVar[bool] = False
    """Whether the exporters are those of optimum-intel, which are read from source."""

    separates_models: bool = True
    """Whether each model gets a process or a browser of its own, where a broken model could change the next one."""

    SHARED: ClassVar[bool] = False
    """Whether several processes can compute on the device at the same time with the same results."""

    optimized: OptimizationResult | None = None
    """Result of the last `prepare_model`, `optimize_for_inference` or `optimize_for_training`."""

    def __init__(self, target: Target) -> None:
        if not isinstance(target, Target):
            raise UsageError(
                f"{type(self).__name__} takes a Target, not {echo(type(target).__name__)}",
                fix=f'Call get_backend("{self.BACKEND_NAME}", config={{...}}).',
            )
        self.target = target
        self._config: Mapping[str, Any] = {}
        self._setup_environment()

    def _setup_environment(self) -> None:  # noqa: B027 - an optional hook
        """Set environment variables that the runtime reads, before it is imported."""

    @abstractmethod
    def _check_availability(self) -> str:
        """Return the reason why the target can't be used here, or an empty string."""

    def unavailable(self) -> str:
        """Return the reason why the target can't be used here, or an empty string. Imports the runtime."""
        return self._check_availability()

    def not_installed(self) -> str:
        """Return the same for a list of all targets, which starts no browser: of one that is in a browser, what isn't
        installed."""
        return self.unavailable()

    @classmethod
    def of_variant(cls, variant: str) -> type[BaseBackend]:
        """Return the class of a variant: this class, unless the variant works differently."""
        return cls

    @classmethod
    def is_shared(cls, target: Target) -> bool:
        """Return whether suites may run on `target` in parallel, without loading its runtime."""
        return cls.SHARED

    @classmethod
    def expected(cls, inventory: HardwareInfo) -> TargetStatus:
        """Return whether the machine of an inventory may have the target. Imports no runtime."""
        return TargetStatus(target="", expected=True, reason="unknown; a probe can find out")

    @classmethod
    def variant_absent(cls, variant: str, inventory: HardwareInfo) -> str:
        """Return why the machine of an inventory can't have a variant of `VARIANTS_NEED`, or an empty string."""
        return ""

    @property
    def is_available(self) -> bool:
        """Whether the runtime reports that the target can be used; `known_answer` proves it."""
        return not self.unavailable()

    # The device

    @property
    def device_id(self) -> int:
        """Index of the device that is used, from 0."""
        return self.target.index or 0

    @property
    @abstractmethod
    def device(self) -> Any:
        """The device as the runtime names it: a torch device, or a text."""

    @property
    @abstractmethod
    def device_count(self) -> int:
        """Number of devices that the runtime sees; 0 if the target can't be used."""

    def set_device(self, device_id: int) -> None:
        """Use another device of the target. Raises `BackendUnavailable` if there are fewer devices."""
        count = self.device_count
        if not 0 <= device_id < count:
            raise BackendUnavailable(f"{self.BACKEND_NAME}:{device_id} not found", why=f"{count} device(s) found")
        self.target = replace(self.target, index=device_id if self.INDEXED else None)

    def get_device_info(self, device_id: int | None = None) -> DeviceInfo:
        """Return facts about the device in use, or about the device `device_id`. Of a device that can't be used it
        returns `is_available=False` with the reason."""
        number = self.device_id if device_id is None else device_id
        reason = self.unavailable()
        if not reason and number != self.device_id and not 0 <= number < (count := self.device_count):
            reason = f"{self.BACKEND_NAME}:{number} not found: {count} device(s) found"
        if reason:
            missing = self.device_info(str(self.target), "", device_id=number)
            return replace(missing, is_available=False, reason=reason)
        return self._get_device_info(number)

    @abstractmethod
    def _get_device_info(self, device_id: int) -> DeviceInfo:
        """Return facts about a device that exists."""

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
        """Return a `DeviceInfo` of this backend. `memory` is in bytes."""
        return DeviceInfo(
            backend=self.BACKEND_NAME,
            device_type=device_type,
            device_id=device_id,
            device_name=name,
            compute_capability=capability,
            total_memory_bytes=memory,
            driver_version=driver,
            properties=properties,
            vendor=self.VENDOR.lower(),
        )

    @staticmethod
    def host_memory() -> int | None:
        """Return the bytes of main memory: what a device that is the host's processor has."""
        from ..inventory.system.main_memory import read_memory

        return read_memory().total_bytes

    @property
    def settings(self) -> DeviceSettings:
        """Recommended settings for the target, each with its reason; those of `configure` take precedence."""
        return settings_for(self.target).with_own(self._config)

    def configure(self, config: Mapping[str, Any]) -> None:
        """Set values that take precedence over the recommended ones. Raises `UsageError` for an unknown setting."""
        settings_for(self.target).with_own(config)
        self._config = dict(config)

    def to_device(self, value: Any) -> Any:
        """Return tensors, modules and containers of tensors on the device. A runtime that reads arrays from host
        memory returns `value` unchanged."""
        return value

    def synchronize(self) -> None:  # noqa: B027 - an optional hook
        """Wait until the device has finished its work."""

    def empty_cache(self) -> None:  # noqa: B027 - an optional hook
        """Release memory that the runtime caches."""

    # Modules of the user

    def prepare_model(
        self, model: Any, optimization_level: OptimizationLevel | str | None = "O2", sample_input: Any = None
    ) -> Any:
        """Return the module on the device, optimized up to a level (None: O2); `optimized` holds the result.

        A target that doesn't run torch modules returns the module unchanged, with a warning in the result.
        """
        return self._left_alone(model, optimization_level)

    def optimize_for_inference(self, model: Any, sample_input: Any = None, dtype: Any = None) -> Any:
        """Return the module on the device in evaluation mode, with the steps of level O2: with a sample those that
        pay, else those that are safe without measuring."""
        return self._left_alone(model)

    def optimize_for_training(self, model: Any, optimizer: Any = None, dtype: Any = None) -> Any:
        """Return the module on the device, ready for training (level O2); with an optimizer, both of them."""
        model = self._left_alone(model)
        return model if optimizer is None else (model, optimizer)

    def _left_alone(self, model: Any, level: OptimizationLevel | str | None = None, placed: str = "") -> Any:
        """Return the module, and report in `optimized` that nothing was optimized. `placed` is the reason if the
        module is on the device; else the target runs no modules."""
        from ..optimization.optimization_steps import OptimizationLevel, OptimizationResult

        self.optimized = OptimizationResult(
            success=bool(placed),
            model=model,
            level=OptimizationLevel.from_string(level),
            warnings=(placed or f"{self.target} can't run torch modules directly: load() compiles them",),
        )
        log.warning(self.optimized.warnings[0])
        return model

    @abstractmethod
    def known_answer(self) -> tuple[float, float, float]:
        """Return the answer to `hardware.known_answer.question()`, computed on the target."""

    @abstractmethod
    def load(self, model_input: ModelInput, example_inputs: Inputs, precision: str) -> Runnable:
        """Load the model on the target, and take it over: the caller doesn't use it afterwards.

        Raises `Unsupported` with a cause, or the runtime's own error.
        """

    def require(self, precision: str) -> None:
        """Raise `Unsupported` for a precision that the target doesn't compute in."""
        if precision not in self.PRECISIONS:
            raise Unsupported(f"{self.target} doesn't compute in {precision}", error_type="unsupported_dtype")

    def load_file(self, file_input: FileInput, example_inputs: Inputs, precision: str) -> Runnable:
        """Load a graph file on the target. Raises `Unsupported` if its runtime doesn't read such files."""
        raise Unsupported(
            f"{self.target} doesn't read {file_input.file.suffix} files",
            error_type="unsupported_format",
            stage=Stage.LOAD,
        )

    def reset(self) -> bool:
        """Reset a lost device; return whether that was possible."""
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the resources of the backend."""
        self.empty_cache()
