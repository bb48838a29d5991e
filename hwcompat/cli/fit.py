"""`hwcompat fit MODEL`: whether a model fits into the memory of a device."""

from __future__ import annotations

import functools
import re
import threading
from pathlib import Path

import rich_click as click

from hwcompat.generators.compatibility.memory_fit import PRECISIONS, AvailableMemory, parse_size
from hwcompat.hardware.command_line import listed, note, terminal_width
from hwcompat.hardware.errors import UsageError, echo
from hwcompat.hardware.plain_text import json_text

_TOKENS = re.compile(r"(\d{1,8}|\d{1,3}(?:,\d{3}){1,2})(k?)", re.IGNORECASE)
_SIZE = re.compile(r"([\d.]+)\s*([a-z]+)", re.IGNORECASE)
_FEWEST_TOKENS, _MOST_TOKENS = 8, 2**24
_SILENCE_S = 1.0


def _tokens(_context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    """Return a number of tokens: `8192`, `8,192` or `8k` (k is 1024)."""
    if text is None:
        return None
    found = _TOKENS.fullmatch(text)
    tokens = int(found[1].replace(",", "")) * (1024 if found[2] else 1) if found else 0
    if not _FEWEST_TOKENS <= tokens <= _MOST_TOKENS:
        limits = f"from {_FEWEST_TOKENS} to {_MOST_TOKENS:,}"
        raise click.BadParameter(f"{echo(text)} is not a number of tokens {limits}, such as 8192 or 8k.")
    return tokens


def _devices_of(_context: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> list[AvailableMemory]:
    """Return a device for each size of memory. A size without a unit is refused."""
    rooms = []
    for text in texts:
        found = _SIZE.fullmatch(text.strip())
        if found is None:
            raise click.BadParameter(
                f"{echo(text)} is not a size with a unit. Write 24GB (10^9 bytes) or 24GiB (2^30 bytes)."
            )
        unit = found[2].upper().replace("I", "i")
        rooms.append(AvailableMemory(name=f"{found[1]} {unit}", available=parse_size(text)))
    return rooms


def _precision(_context: click.Context, _option: click.Parameter, text: str | None) -> str | None:
    """Return the name of a precision; the usual short names, such as bf16, are accepted."""
    from hwcompat.generators.compatibility.grade import level_rules

    found = level_rules().precision(text) if text else None
    if found and found not in PRECISIONS:
        hint = " int8 and int4 are in every answer." if found.startswith("int") else ""
        raise click.BadParameter(f"{echo(str(text))} is not one of {', '.join(PRECISIONS)}.{hint}")
    return found


@click.command("fit", short_help="Show whether a model fits into the memory of a device.")
@click.argument("model")
@click.option("--memory", "sizes", multiple=True, callback=_devices_of, help="Memory of a device: 24GB, 24GiB.")
@click.option(
    "--device",
    "devices",
    multiple=True,
    callback=listed,
    metavar="TARGET",
    help="Target of this machine: cuda, cuda:1.",
)
@click.option(
    "--context", callback=_tokens, metavar="N", help="Number of tokens. Default: the model's maximum, at most 4096."
)
@click.option("--batch", type=click.IntRange(1, 2**20), default=1, show_default=True, help="Batch size.")
@click.option("--precision", callback=_precision, help="fp32, bf16 or fp16. Default: that of its config.json.")
@click.option("--training", is_flag=True, help="Train with AdamW: count gradients and optimizer.")
@click.option("--format", "format_", type=click.Choice(("table", "json")), default="table", show_default=True)
def fit_command(
    model: str,
    sizes: list[AvailableMemory],
    devices: tuple[str, ...],
    context: int | None,
    batch: int,
    precision: str | None,
    training: bool,
    format_: str,
) -> int:
    """Show whether MODEL fits into the memory of a device, and which variants would.

    MODEL is a model type (its default size), a folder with a config.json, or that file: weights aren't needed. Or it
    is an .onnx file, with the sizes of inputs with which it is tested. Without --memory and --device, it is compared
    with the devices of this machine.

    \b
    Examples:
      hwcompat fit llama --memory 24GiB --context 2k
      hwcompat fit ./Llama-3-8B --precision bf16 --memory 24GB --memory 80GB
      hwcompat fit gpt2 --training --device cuda

    \b
    Exit codes: 0 it fits, 1 it doesn't fit a device that you named, or none of this machine.
    """
    from hwcompat.generators.recipes.memory_variants import fit_model, rooms_here
    from hwcompat.reports.fit_text import fit_json, fit_text

    rooms = [*sizes]
    if devices or not sizes:
        from hwcompat.hardware.basic_detection import inventory_here
        from hwcompat.hardware.expected_targets import targets
        from hwcompat.hardware.inventory.target_status import cards_of
        from hwcompat.hardware.inventory.telemetry import memory_in_use

        named, here = [one for one in devices if one != "auto"], inventory_here()
        rooms += rooms_here(targets(here), named, functools.partial(cards_of, here), memory_in_use)
    if not rooms:
        raise UsageError("no device of this machine has a known memory", fix="Name a size: --memory 24GiB")
    file = Path(model).expanduser()
    name = str(file.parent.absolute()) if file.name == "config.json" else model
    request = {"mode": "training" if training else None, "precision": precision, "batch": batch, "context": context}
    waiting = threading.Timer(_SILENCE_S, note, ["running the model without data to count its memory …"])
    waiting.daemon = True
    waiting.start()
    try:
        found = fit_model(name, request, rooms)
    finally:
        waiting.cancel()
    text = json_text(fit_json(found)) + "\n" if format_ == "json" else fit_text(found, width=terminal_width())
    click.echo(text, nl=False)
    fits = [bool(one.fits) for one in found.fits]
    return int(not (all(fits) if sizes or devices else any(fits)))
