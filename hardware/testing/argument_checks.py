"""The checks of a suite that give a model arguments that its plain call leaves out."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..compare import Array
from ..evidence.record import Stage
from ..model.calls import to_arrays
from ..model.outputs import results
from .call_checks import CallChecks
from .losses import shifted_right
from .measurement import NotApplicable
from .model_relations import eager_attention
from .reference import float64_call

if TYPE_CHECKING:
    import torch


class ArgumentChecks(CallChecks):
    """The part of `ModelTest` that gives the model on the target further arguments."""

    def given_error(
        self, inputs: Mapping[str, Array], name: str, value: int, *, without: Collection[str] = ()
    ) -> float:
        """Return the error of the outputs, without some inputs, if an argument is given as the model would choose it.

        Positions are counted from `value`; other arguments of tokens have an entry of `value` for each. The
        `encoder_outputs` are given instead of their inputs, as a tuple too if `value` is 1, and embeddings instead of
        the decoder's tokens. `decoder_input_ids` are left out: then they are those of the encoder, one place later.
        True and False are given as they are; with `return_dict=False` the outputs are a tuple.
        """
        import torch

        model: Any = self._torch_runnable().model
        given = {other: one for other, one in inputs.items() if other not in without}
        wanted = dict(given)
        calls: list[dict[str, Any]]
        if name == "encoder_outputs":
            encoder = model.get_encoder()
            taken = inspect.signature(encoder.forward).parameters
            read = {other: self._on_device(one) for other, one in given.items() if other in taken}
            with self._at(Stage.RUN), torch.no_grad():
                found = encoder(**read)
            calls = [{name: found}, {name: found.to_tuple()}][: 1 + value]
            given = {other: one for other, one in given.items() if other not in taken or other.endswith("mask")}
        elif name == "decoder_inputs_embeds":
            embed = model.get_decoder().get_input_embeddings()
            calls = [{name: embed(self._on_device(given.pop("decoder_input_ids"))).detach()}]
        elif name == "decoder_input_ids":
            config = model.config.get_text_config()
            wanted[name] = shifted_right(given["input_ids"], config.decoder_start_token_id, config.pad_token_id)
            calls = [{}]
            del given[name]
        elif isinstance(value, bool):
            calls = [{name: value}]
        else:
            tokens = given["decoder_input_ids" if name.startswith("decoder_") else "input_ids"]
            counted = np.arange(tokens.shape[1])[None].repeat(len(tokens), axis=0)
            calls = [{name: self._on_device(value + (counted if "position" in name else 0 * counted))}]
        want = self.reference(wanted).arrays
        kept = {other: want[other] for other in self.required}
        errors = []
        for more in calls:
            returned = self._call(given, **more)
            if isinstance(returned, tuple):
                returned = dict(zip(self._call(given), returned, strict=True))
            got = to_arrays(results(returned))
            errors.append(self.measured.keep(self._compared(got, kept)))
        return max(errors)

    def optional_error(
        self,
        inputs: Mapping[str, Array],
        *,
        flags: Collection[str] = (),
        shapes: Mapping[str, Sequence[int]] = MappingProxyType({}),
        batch: int,
        without: Collection[str] = (),
    ) -> float:
        """Return the error of all floating-point outputs, those of each layer too, against float64 with the same
        arguments: `flags` are true, and inputs of these `shapes` are drawn for each row of the batch. Some inputs may
        be left `without`. Attention is the plain one where a model has the choice: others can't return
        their weights."""
        given = {name: one for name, one in inputs.items() if name not in without}
        given |= drawn_inputs(shapes, batch)
        more = dict.fromkeys(flags, True)
        with plain_attention(self._torch_runnable().model), plain_attention(self.reference_model):
            got = arrays_of(self._call(given, **more))
            want = float64_call(self.reference_model, given, arrays_of, **more)
        return self.measured.keep(self._compared(got, want, self.reference(inputs).masks))


@contextlib.contextmanager
def plain_attention(model: torch.nn.Module) -> Iterator[None]:
    """Compute attention by its plain implementation, if the model lets it be chosen."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(NotApplicable):
            stack.enter_context(eager_attention(model))
        yield


def drawn_inputs(shapes: Mapping[str, Sequence[int]], batch: int) -> dict[str, Array]:
    """Return an array (batch, *shape) for each name: float32, standard normal, and the same for the same shapes. A
    mask is int64 and hides the second half of all rows but the first; `bool_masked_pos` is true for each third
    patch."""
    random = np.random.default_rng(0)
    found: dict[str, Array] = {}
    for name, shape in shapes.items():
        if name.startswith("bool_"):
            found[name] = np.arange(batch * int(np.prod(shape))).reshape(batch, *shape) % 3 == 0
        elif name.endswith("mask"):
            found[name] = np.ones((batch, *shape), dtype=np.int64)
            found[name][1:, ..., shape[-1] // 2 :] = 0
        else:
            found[name] = random.standard_normal((batch, *shape)).astype(np.float32)
    return found


def arrays_of(output: Any) -> dict[str, Array]:
    """Return all floating-point tensors of an output by name, with those of each layer, without caches."""
    found: dict[str, torch.Tensor] = {}

    def add(name: str, value: Any) -> None:
        if isinstance(value, tuple | list):
            for place, one in enumerate(value):
                add(f"{name} {place}", one)
        elif hasattr(value, "is_floating_point") and value.is_floating_point():
            found[name] = value

    for name, value in output.items():
        if name != "past_key_values":
            add(name, value)
    return to_arrays(found)
