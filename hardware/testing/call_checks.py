"""The checks of a suite that call the model in other ways than the plain forward pass."""

from __future__ import annotations

import inspect
import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends.base import STEPS, Generation
from ..compare import Array, compare, is_whole, not_finite, scale_of
from ..evidence.record import Stage
from ..model.calls import to_arrays, to_tensors, without_cache
from ..model.greedy_decoding import greedy, loop_of
from ..model.outputs import nested, results
from ..output_masks import covering
from . import reference
from .capability_checks import replay_inputs
from .losses import NOT_COUNTED, cross_entropy, labels_for, log_softmax, shifted_right
from .measurement import Outputs, comparison_of, recorded_comparison
from .model_relations import eager_attention
from .module_states import layer_states
from .row_of_batch import repadded, row_alone, share_of_row
from .training_checks import TrainingChecks

if TYPE_CHECKING:
    import torch

_BEAMS = 3
_KEPT = 3
"""Logits that are kept by `logits_to_keep`."""
_STEPPED = 3
"""Tokens that are given one by one."""
_PLAIN_SCORES = {
    **dict.fromkeys(("forced_bos_token_id", "forced_eos_token_id", "suppress_tokens", "bad_words_ids")),
    **{"length_penalty": 1.0, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "diversity_penalty": 0.0},
}
"""Settings of decoding with which a score is a sum of log probabilities; a checkpoint may have others."""
_EQUAL = 1e-6
"""A difference of attention weights, which sum to 1, that rounding explains."""
_COUNTED = 7
"""A number of labels other than that of the text."""


class CallChecks(TrainingChecks):
    """The part of `ModelTest` that calls the model on the target as users do beside the plain forward pass."""

    def padding_error(
        self,
        inputs: Mapping[str, Array],
        side: str,
        *,
        unpadded: Mapping[str, str],
        without: Collection[str] = (),
    ) -> float:
        """Return the error of a batch that is padded on a side with the padding token, against each row alone in
        float64; infinity if an output isn't finite in padding where float64's is, since a masked mean over all
        positions would be NaN. `without` names inputs that are left to the model's defaults."""
        model = self._torch_runnable().model
        fill = getattr(model.config.get_text_config(), "pad_token_id", None) or 0
        batch = len(inputs["input_ids"])
        given = repadded(inputs, side, fill, unpadded=unpadded, without=without)
        got = self.run(given)
        whole = self.reference(given)
        worst = self._padding_error(got, whole)
        for row in range(batch):
            masks = {*unpadded.values()} | set(without)
            want = self.reference(row_alone(inputs, row, batch, unpadded=unpadded, without=masks))
            part = share_of_row(got.arrays, got.masks, row, batch, want.arrays)
            kept = {name: want.arrays[name] for name in self.required}
            worst = max(worst, self.measured.keep(self._compared(part, kept, scales=whole.own_scales)))
        return worst

    def _padding_error(self, got: Outputs, want: Outputs) -> float:
        for name, mask in want.masks.items():
            padded = ~covering(mask, want.arrays[name])
            is_lost = np.isfinite(want.arrays[name][padded]) & ~np.isfinite(got.arrays[name][padded])
            if is_lost.any():
                return self.measured.keep(not_finite(f"{name} (padding)"))
        return 0.0

    def _call(self, inputs: Mapping[str, Array], **more: Any) -> Any:
        """Return what the model on the target returns, called with further arguments."""
        import torch

        runnable = self._torch_runnable()
        with self._at(Stage.RUN), torch.no_grad():
            tensors = to_tensors(inputs, runnable.device, runnable.dtype)
            return runnable.model(**nested(tensors), **{**without_cache(runnable.model), **more})

    def embeddings_error(self, inputs: Mapping[str, Array]) -> float:
        """Return the error of the outputs if the embeddings of the tokens are given instead of the tokens."""
        model = self._torch_runnable().model
        padding = getattr(model.config.get_text_config(), "pad_token_id", None)
        tokens = np.where(inputs["input_ids"] == padding, 1 + (padding or 0), inputs["input_ids"])
        rest = {name: one for name, one in inputs.items() if name != "input_ids"}
        embedded = model.get_input_embeddings()(self._on_device(tokens)).detach()
        got = to_arrays(results(self._call(rest, inputs_embeds=embedded)))
        want = self.reference({**inputs, "input_ids": tokens})
        kept = {name: want.arrays[name] for name in self.required}
        return self.measured.keep(self._compared(got, kept, want.masks))

    def enlarged(self, inputs: Mapping[str, Array], name: str, factor: float) -> dict[str, Array]:
        """Return inputs with the values of one multiplied, or with the multiplied embeddings of its tokens, in the
        precision of the target."""
        rest = {other: one for other, one in inputs.items() if other != name}
        if not is_whole(inputs[name]):
            return {name: to_arrays({"": self._on_device(inputs[name]) * factor})[""], **rest}
        model: Any = self._torch_runnable().model
        embedded = model.get_input_embeddings()(self._on_device(inputs[name])).detach()
        return {"inputs_embeds": to_arrays({"": embedded * factor})[""], **rest}

    def token_types_error(self, inputs: Mapping[str, Array]) -> float:
        """Return the error of the outputs for tokens of type 1 against float64."""
        want = self.reference({**inputs, "token_type_ids": np.ones_like(inputs["input_ids"])})
        return self.measured.keep(self._compared(self._of_type(inputs, 1), want.arrays, want.masks))

    def default_type_error(self, inputs: Mapping[str, Array]) -> float:
        """Return how far the outputs are from those of the default if all tokens have type 0."""
        want = self.reference(inputs)
        return self.measured.keep(self._compared(self._of_type(inputs, 0), want.arrays, want.masks))

    def token_types_effect(self, inputs: Mapping[str, Array]) -> float:
        """Return how far the outputs for tokens of type 1 are from float64's for type 0."""
        zeros = self.reference({**inputs, "token_type_ids": np.zeros_like(inputs["input_ids"])})
        return self._compared(self._of_type(inputs, 1), zeros.arrays, zeros.masks).max_rel_error

    def _of_type(self, inputs: Mapping[str, Array], kind: int) -> dict[str, Array]:
        types = np.full_like(inputs["input_ids"], kind)
        return to_arrays(results(self._call(inputs, token_type_ids=self._on_device(types))))

    def image_size_error(
        self,
        inputs: Mapping[str, Array],
        name: str,
        output: str,
        recorded: Mapping[tuple[int, ...], float],
        scale: float,
    ) -> float:
        """Return the error of single elements of an output, for images of twice the height and three times the width,
        against recorded ones and float64."""
        larger = larger_images(inputs, name)
        more = self.arguments_for_sizes()
        got = to_arrays(results(self._call(larger, **more)))[output]
        want = reference.float64_outputs(self.reference_model, larger, **more)[output]
        error = max(
            self.measured.keep(recorded_comparison(got, recorded, scale, output)),
            self.measured.keep(self._compared({output: got}, {output: want})),
        )
        return self._unless_changed(error, lambda: want, recorded, scale, output)

    def arguments_for_sizes(self) -> dict[str, Any]:
        parameters = inspect.signature(self._torch_runnable().model.forward).parameters
        return {"interpolate_pos_encoding": True} if "interpolate_pos_encoding" in parameters else {}

    def loss_error(
        self, inputs: Mapping[str, Array], kind: str, *, counted: bool = False, labels_alone: bool = False
    ) -> float:
        """Return the error of the loss against the one that NumPy computes from float64's logits.

        `kind` says which logits a label belongs to: `next` (that of the token before), `same` or `row`. `counted`
        divides the sum by a given number of labels, as for accumulated gradients. With `labels_alone` a decoder gets
        no tokens: it makes them of the labels, one place later behind its start token.
        """
        logits = self.reference(inputs).arrays["logits"]
        labels = labels_for(inputs, logits, kind)
        more: dict[str, Any] = {}
        if labels_alone:
            config: Any = self._torch_runnable().model.config
            shifted = shifted_right(labels, config.decoder_start_token_id, config.pad_token_id)
            logits = self.reference({**inputs, "decoder_input_ids": shifted}).arrays["logits"]
            inputs = {name: one for name, one in inputs.items() if name != "decoder_input_ids"}
        value = cross_entropy(logits, labels, kind)
        if counted:
            more = {"num_items_in_batch": _COUNTED}
            value *= np.count_nonzero(labels[:, 1:] != NOT_COUNTED) / _COUNTED
        got = self._call(inputs, labels=self._on_device(labels), **more)
        return self.measured.keep(self._compared(to_arrays({"loss": got["loss"]}), {"loss": np.array(value)}))

    def hidden_states_error(self, inputs: Mapping[str, Array]) -> float:
        """Return the error of `hidden_states` against what float64's layers get, and of the outputs beside them."""
        got = self._call(inputs, output_hidden_states=True)
        want = layer_states(self.reference_model, inputs)
        states = hidden_states_of(got)
        if not len(states) == len(want) > 1:
            return self.measured.keep(comparison_of(math.inf, 1.0, f"hidden_states ({len(states)} of {len(want)})"))
        arrays = to_arrays({f"hidden_states {place}": one for place, one in enumerate(states)})
        wanted = {f"hidden_states {place}": one for place, one in enumerate(want)}
        plain = self.reference(inputs)
        kept = {name: plain.arrays[name] for name in self.required}
        return self.measured.keep(
            self._compared({**arrays, **to_arrays(results(got))}, {**wanted, **kept}, plain.masks)
        )

    def attentions_error(
        self, inputs: Mapping[str, Array], *, without: Collection[str] = (), sums_alone: bool = False
    ) -> float:
        """Return the error of the `attentions` of the plain attention (eager), without some inputs: the distance of
        the weights of a position from summing to 1 and, unless `sums_alone`, from float64's. It is infinite if a
        layer weights all positions equally."""
        inputs = {name: one for name, one in inputs.items() if name not in without}
        model = self._torch_runnable().model
        with eager_attention(model):
            got = attentions_of(self._call(inputs, output_attentions=True))
        if uniform := next((name for name, one in got.items() if _is_uniform(one)), ""):
            return self.measured.keep(comparison_of(math.inf, 1.0, f"{uniform} (all positions have the same weight)"))
        sums = {name: one.sum(-1) for name, one in got.items()}
        error = self.measured.keep(self._compared(sums, {name: np.ones_like(one) for name, one in sums.items()}))
        if sums_alone:
            return error
        with eager_attention(self.reference_model):
            want = reference.float64_call(self.reference_model, inputs, attentions_of, output_attentions=True)
        return max(error, self.measured.keep(self._compared(got, want)))

    def kept_logits_error(self, inputs: Mapping[str, Array]) -> float:
        """Return the error of the last logits if only those are asked for."""
        got = to_arrays({"logits": self._call(inputs, logits_to_keep=_KEPT)["logits"]})
        want = {"logits": self.reference(inputs).arrays["logits"][:, -_KEPT:]}
        return self.measured.keep(self._compared(got, want))

    def cached_steps_error(self, inputs: Mapping[str, Array], tokens: str, *, without: Collection[str] = ()) -> float:
        """Return the error of the logits if `tokens` are given in parts with the cache of the parts before: all but
        the last three, then those one by one."""
        given = {name: one for name, one in inputs.items() if name not in without}
        text = given.pop(tokens)
        parts, cache = [text[:, :-_STEPPED], *np.split(text[:, -_STEPPED:], _STEPPED, axis=1)], None
        found = []
        for part in parts:
            read = self._call({**given, tokens: part}, past_key_values=cache, use_cache=True)
            found.append(read["logits"])
            cache = read["past_key_values"]
        got = np.concatenate([to_arrays({"": one})[""] for one in found], axis=1)
        want = self.reference({**given, tokens: text}).arrays["logits"]
        return self.measured.keep(self._compared({"logits": got}, {"logits": want}))

    def cache_error(self, kind: str) -> float:
        """Return the error of the logits that are decoded with a `kind` of cache."""
        runnable = self._torch_runnable()
        with self._at(Stage.RUN):
            tensors = to_tensors(self.inputs, runnable.device, runnable.dtype)
            got = greedy(runnable.model, tensors, steps=STEPS, use_cache=True, cache=kind)
        want = self.reference_generate()
        if self.different_tokens(got, want):
            return self.measured.keep(compare({"tokens": got.tokens}, {"tokens": want.tokens}))
        return self.logits_error(got, want)

    def beam_search_error(self) -> float:
        """Return the error of the scores of a beam search against those of one float64 pass over each beam."""
        import torch

        runnable = self._torch_runnable()
        names = ("position_ids", "decoder_input_ids", "decoder_attention_mask")
        given = {name: one for name, one in self.inputs.items() if name not in names}
        generate, _ = loop_of(runnable.model, given)
        with self._at(Stage.RUN), torch.no_grad():
            found = generate(
                runnable.model,
                **nested(to_tensors(given, runnable.device, runnable.dtype)),
                max_new_tokens=STEPS,
                min_new_tokens=STEPS,
                do_sample=False,
                num_beams=_BEAMS,
                num_return_sequences=_BEAMS,
                return_dict_in_generate=True,
                output_scores=True,
                **_PLAIN_SCORES,
            )
        sequences = found.sequences.cpu().numpy()
        generation = Generation(
            tokens=sequences[:, -STEPS:], logits=np.zeros(0), start=sequences[:, :-STEPS], used_cache=True
        )
        batch = len(generation.tokens) // _BEAMS
        rows = {name: _repeated(one, batch) for name, one in self.inputs.items()}
        whole = self.reference(replay_inputs(rows, generation, self.generates)).arrays["logits"]
        kept = slice(-STEPS, None) if self.generates == "seq2seq" else slice(-STEPS - 1, -1)
        chosen = np.take_along_axis(log_softmax(whole[:, kept]), generation.tokens[..., None], axis=2)[..., 0]
        got = to_arrays({"": found.sequences_scores})[""]
        absolute = float(np.abs(got - chosen.sum(axis=1) / STEPS).max())
        return self.measured.keep(comparison_of(absolute, scale_of(whole[:, kept]), "sequences_scores"))


def _repeated(array: Array, batch: int) -> Array:
    """Return an input with each of its `batch` rows repeated for each beam."""
    if not array.ndim or array.shape[0] % batch:
        return array
    rows = array.reshape(batch, -1, *array.shape[1:]).repeat(_BEAMS, axis=0)
    return rows.reshape(-1, *array.shape[1:])


def hidden_states_of(output: Any) -> tuple[torch.Tensor, ...]:
    """Return the hidden states that an output carries, of the decoder if it has two parts."""
    found = output.get("decoder_hidden_states", output.get("hidden_states"))
    return tuple(found or ())


def attentions_of(output: Any) -> dict[str, Array]:
    """Return the attention weights that an output carries, by their kind and layer."""
    kinds = ("attentions", "decoder_attentions", "cross_attentions")
    return to_arrays(
        {
            f"{kind} {place}": one
            for kind in kinds
            for place, one in enumerate(output.get(kind) or ())
            if one is not None
        }
    )


def _is_uniform(weights: Array) -> bool:
    """Return whether each position has the same weight as all others that have one."""
    seen = weights > 0
    equal = seen / np.maximum(seen.sum(-1, keepdims=True), 1)
    return bool((seen.sum(-1) > 1).any() and np.abs(weights - equal).max() < _EQUAL)


def larger_images(inputs: Mapping[str, Array], name: str) -> dict[str, Array]:
    """Return inputs with images of twice the height and three times the width: the same image again."""
    images = inputs[name]
    return {**inputs, name: np.tile(images, (*[1] * (images.ndim - 2), 2, 3))}
