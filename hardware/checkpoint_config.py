"""Reading a checkpoint's config.json, and refusing configurations that load code or weights from elsewhere.

Custom modeling code is never run, because only classes of the library are used. Other things that a library would
download or load because of a configuration are refused by name: kernels (`attn_implementation = "org/kernels"`) and
adapters, whose base model may be anywhere.
"""

from __future__ import annotations

import functools
import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .errors import BrokenInput, ModelRefused, echo
from .safe_read import is_plain_file, read_json, reason_of

_LARGEST_CONFIG = 10 * 2**20
_ADAPTER = "adapter_config.json"
_IMPLEMENTATIONS = frozenset({"attn_implementation", "experts_implementation"})
_QUANTIZATION = ("quantization_config", "compression_config")
"""Settings of a configuration that describe how weights are quantized."""
_QUANTIZATION_FILES = {
    "quantize_config.json": "gptq",
    "quant_config.json": "awq",
    "hf_quant_config.json": "modelopt",
}
"""Files beside config.json that older tools write, and the method they mean unless they name one."""


def read_config(folder: Path) -> dict[str, Any] | None:
    """Return the content of config.json, or None if it doesn't exist. Raises `BrokenInput` if it can't be read."""
    path = folder / "config.json"
    if not is_plain_file(path):
        return None
    try:
        config = read_json(path, longest=_LARGEST_CONFIG, finite=False)  # transformers writes Infinity
        if not isinstance(config, dict):
            raise ValueError("it is not a JSON object")
    except (OSError, ValueError) as error:
        raise BrokenInput(
            f"config.json in {echo(str(folder))} cannot be read",
            why=f"it is corrupt or truncated: {reason_of(error)}",
            fix="Download it again.",
        ) from error
    return config


def hash_of_config(config: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a configuration, 64 hexadecimal digits, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


def refuse_foreign(folder: Path, config: Mapping[str, Any]) -> None:
    """Raise `BrokenInput` if loading would use code or weights from elsewhere."""
    where = echo(str(folder))
    if (folder / _ADAPTER).exists():
        alone = "" if not config else f", or move {_ADAPTER} and its weights elsewhere to test the rest alone"
        raise BrokenInput(
            f"the checkpoint {where} is refused",
            why=f"it is an adapter: {_ADAPTER} names another model ({_base_of(folder)}), which would be loaded",
            fix="Merge it and test the result: PeftModel.from_pretrained(base, FOLDER).merge_and_unload()"
            f".save_pretrained(NEW){alone}.",
        )
    for name, value in settings_of(config):
        if name.strip("_").removesuffix("_internal") in _IMPLEMENTATIONS and "/" in str(value):
            raise BrokenInput(
                f"the checkpoint {where} is refused",
                why=f"its config.json sets {name} to {echo(str(value))}, which is third-party code",
                fix=f"Remove {name} from config.json.",
            )


def _base_of(folder: Path) -> str:
    """Return the model that an adapter was made for."""
    try:
        return echo(str(read_json(folder / _ADAPTER, longest=_LARGEST_CONFIG)["base_model_name_or_path"]))
    except (OSError, ValueError, KeyError, TypeError):
        return "unnamed"


def refuse_quantized(folder: Path, config: Mapping[str, Any]) -> None:
    """Raise `ModelRefused` if the weights are quantized: a suite compares unquantized weights with float64."""
    method, where = quantization_of(folder, config)
    if not method:
        return
    facts = _quantization_methods().get(method)
    needs = f"transformers loads it with {' and '.join(facts['packages'])}" if facts else "transformers can't load it"
    needs += f" ({facts['class']})" if facts and "class" in facts else ""
    needs += ", on a GPU" if facts and facts.get("gpu") else ""
    raise ModelRefused(
        f"the checkpoint {echo(str(folder))} is quantized with {echo(method)}",
        why=f"{where} says so; {needs}, and quantized weights have no float64 reference",
        fix="Test the checkpoint before quantization.",
        error_type="unsupported_format",
    )


def quantization_of(folder: Path, config: Mapping[str, Any]) -> tuple[str, str]:
    """Return the quantization method of a checkpoint and the file that names it; empty if it isn't quantized."""
    for name, value in settings_of(config):
        if name in _QUANTIZATION and isinstance(value, Mapping) and value:
            return _method_in(value), f"{name} in config.json"
        if name == "quantization" and isinstance(value, Mapping) and "group_size" in value:
            return "mlx", f"{name} in config.json"
    for file, method in _QUANTIZATION_FILES.items():
        if is_plain_file(folder / file):
            return method, file
    return "", ""


def _method_in(settings: Mapping[str, Any]) -> str:
    if any(settings.get(name) for name in ("load_in_4bit", "load_in_8bit", "_load_in_4bit", "_load_in_8bit")):
        return "bitsandbytes"
    return str(settings.get("quant_method") or settings.get("method") or "an unnamed method")


@functools.cache
def _quantization_methods() -> Mapping[str, Any]:
    return tomllib.loads(Path(__file__).with_name("quantization.toml").read_text(encoding="utf-8"))


def settings_of(config: Any) -> Iterator[tuple[str, Any]]:
    """Yield all settings of a configuration and of nested ones, as names and values."""
    if isinstance(config, Mapping):
        for name, value in config.items():
            yield str(name), value
            yield from settings_of(value)
    elif isinstance(config, list):
        for value in config:
            yield from settings_of(value)
