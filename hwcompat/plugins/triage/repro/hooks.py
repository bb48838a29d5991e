"""Hook a recorder into `ModelTest` and the entry points of runtimes, in the one process that captures a failure."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hwcompat.hardware.cell import GRAPH_TASK

from .captured_failure import Does, FailedStep, Way
from .failure_recorder import FailureRecorder, TriedStep, expected_of, masks_for, wishes_of

if TYPE_CHECKING:
    from hwcompat.hardware.compare import Array
    from hwcompat.hardware.testing.model_test import ModelTest

_BY_ONNX = "torch.onnx.export and folded by ONNX Runtime; on its CPU provider the graph agrees with torch"
_RELATIVE = re.compile(r"(inf|\d\.\d+e[+-]\d+) of the output's scale")


def watch(recorder: FailureRecorder) -> None:
    """Record the calls of suites to models, and of models to runtimes, from here on."""
    _watch_passes(recorder)
    _watch_gradients(recorder)
    _watch_decoding(recorder)
    _watch_exports(recorder)
    _watch_openvino(recorder)
    _watch_qnn(recorder)
    _watch_files(recorder)
    _watch_pages(recorder)


def _around(owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Replace `owner.name` by `around`, which gets the original before the arguments."""
    before = getattr(owner, name)

    @functools.wraps(before)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        return around(before, *args, **kwargs)

    setattr(owner, name, replaced)


def _try_torch(
    recorder: FailureRecorder, case: ModelTest, does: Does, runnable: Any, inputs: Mapping[str, Array], **facts: Any
) -> TriedStep | None:
    """Record a step of a target that torch reaches; return None if another runtime computes."""
    from hwcompat.hardware.backends._torch import TorchBackend

    recorder.case = case
    if not isinstance(case.backend, TorchBackend):
        return None
    step = FailedStep(
        way=Way.TORCH,
        does=does,
        device=str(case.backend.torch_device().type),
        precision=case.cell.precision,
        facts={**facts, "trains_only": case.trains_only, **wishes_of(getattr(runnable, "model", None))},
    )
    return recorder.try_(step, inputs)


def _watch_passes(recorder: FailureRecorder) -> None:
    from hwcompat.hardware.testing.graph_files import GraphTest
    from hwcompat.hardware.testing.graph_outputs import with_parts
    from hwcompat.hardware.testing.model_test import ModelTest

    reloading: list[bool] = []

    def run(before: Any, case: ModelTest, runnable: Any, inputs: Mapping[str, Array]) -> Any:
        _try_torch(recorder, case, Does.RELOAD if reloading else Does.FORWARD, runnable, inputs)
        outputs = before(case, runnable, inputs)
        recorder.by_output[id(outputs)] = outputs, recorder.tried
        return outputs

    def save(before: Any, case: ModelTest, folder: Path, inputs: Mapping[str, Array]) -> Any:
        _try_torch(recorder, case, Does.RELOAD, case.runnable, inputs)
        reloading.append(True)
        try:
            return before(case, folder, inputs)
        finally:
            reloading.clear()

    def load(before: Any, case: ModelTest) -> Any:
        recorder.case = case
        return before(case)

    def error(before: Any, case: ModelTest, got: Any, want: Any) -> Any:
        found = before(case, got, want)
        if not found <= case.tolerance:
            _, tried = recorder.by_output.get(id(got), (None, recorder.tried))
            expected = expected_of(want, got.arrays, case.required)
            worst = case.measured.comparison.worst if case.measured.comparison else ""
            parts = case.parts if isinstance(case, GraphTest) else {}
            how = {"tolerance": case.tolerance, "worst": worst, "scales": dict(want.scales), "parts": dict(parts)}
            recorder.failed(tried, with_parts(expected, parts), error=found, **how)
        return found

    def recorded(before: Any, case: ModelTest, *args: Any) -> Any:
        error = before(case, *args)
        if not error <= case.tolerance:
            recorder.refused = "it compares with numbers that were recorded with another version of the library"
        return error

    _around(ModelTest, "_run", run)
    _around(ModelTest, "_build", load)
    for kind in (ModelTest, GraphTest):
        _around(kind, "_load", load)
    _around(ModelTest, "save_and_reload", save)
    _around(ModelTest, "error", error)
    _around(ModelTest, "recorded_error", recorded)


def _watch_gradients(recorder: FailureRecorder) -> None:
    from hwcompat.hardware.testing import reference
    from hwcompat.hardware.testing.model_test import ModelTest

    gradients: list[dict[str, Array]] = []

    def error(before: Any, case: ModelTest) -> Any:
        tried = _try_torch(recorder, case, Does.GRADIENTS, case.runnable, case.inputs)
        found = before(case)
        if not found <= case.tolerance and gradients:
            names = set(case.reference(case.inputs).arrays)
            expected = {**gradients[-1], **masks_for(case.masked_by, case.inputs, names)}
            recorder.failed(tried, expected, error=found, tolerance=case.tolerance, worst="gradients")
        return found

    def of_reference(before: Any, *args: Any, **kwargs: Any) -> Any:
        gradients[:] = [before(*args, **kwargs)]
        return gradients[-1]

    _around(ModelTest, "gradient_error", error)
    _around(reference, "float64_gradients", of_reference)


def _watch_decoding(recorder: FailureRecorder) -> None:
    from hwcompat.hardware.backends.base import STEPS
    from hwcompat.hardware.testing.model_test import ModelTest

    decoded: list[TriedStep | None] = []

    def generate(before: Any, case: ModelTest) -> Any:
        if "_generated" not in case.__dict__:
            facts = _generation_of(getattr(case.runnable, "model", None), case.inputs, STEPS)
            decoded[:] = [_try_torch(recorder, case, Does.GENERATE, case.runnable, case.inputs, **facts)]
        return before(case)

    def failed(case: ModelTest, logits: Any, tokens: Any, error: float | None, said: str = "") -> None:
        if not any(decoded):
            recorder.refused = "it decodes with graphs in a loop of hwcompat's own"
            return
        expected = {"tokens": tokens, "logits": logits}
        recorder.failed(decoded[0], expected, error=error, tolerance=case.tolerance, worst="logits", message=said)

    def tokens(before: Any, case: ModelTest, got: Any, want: Any) -> Any:
        found = before(case, got, want)
        if found:
            place = tuple(int(one) for one in np.argwhere(got.tokens != want.tokens)[0])
            said = f"token {place} is {got.tokens[place]}, expected {want.tokens[place]}"
            failed(case, want.logits, want.tokens, None, said)
        return found

    def logits(before: Any, case: ModelTest, got: Any, want: Any, *more: Any) -> Any:
        found = before(case, got, want, *more)
        if not found <= case.tolerance:
            failed(case, want, got.tokens, found)
        return found

    _around(ModelTest, "generate", generate)
    _around(ModelTest, "different_tokens", tokens)
    _around(ModelTest, "_logits_error", logits)


def _generation_of(model: Any, inputs: Mapping[str, Array], steps: int) -> dict[str, Any]:
    """Return the call of the library's own loop, as `hardware/model/greedy_decoding.py` makes it."""
    prompt = [name for name in inputs if name != "position_ids" and not name.startswith("decoder_")]
    complete = bool({getattr(model, "main_input_name", "input_ids"), "inputs_embeds"} & set(prompt))
    return {"prompt": prompt, "limit": "max_new_tokens" if complete else "max_length", "steps": steps}


def _watch_exports(recorder: FailureRecorder) -> None:
    from hwcompat.hardware.backends._openvino_model import OPENVINO_OPTIONS
    from hwcompat.hardware.backends.base import Unsupported
    from hwcompat.hardware.export import onnx_export, openvino_export, verify_export

    def exporting(way: Way, before: Any, subject: Any, example: Any, *args: Any, **kwargs: Any) -> Any:
        options = dict(OPENVINO_OPTIONS["float32"]) if way is Way.OPENVINO_CONVERT else {}
        facts = {**wishes_of(subject.model), "order": list(example)}
        step = FailedStep(way=way, does=Does.FORWARD, device="CPU", options=options, facts=facts)
        recorder.export = recorder.try_(step, example)
        return before(subject, example, *args, **kwargs)

    def in_torch(does: Does, before: Any, subject: Any, example: Any) -> Any:
        if does is Does.GENERATE and subject.generates == "none":
            return before(subject, example)
        kept = recorder.tried
        steps = _generation_of(subject.model, example, verify_export.STEPS) if does is Does.GENERATE else {}
        facts = wishes_of(subject.model) | steps
        recorder.try_(FailedStep(way=Way.TORCH, does=does, device="cpu", facts=facts), example)
        found = before(subject, example)
        recorder.tried = kept
        return found

    def compare(before: Any, proof: Any, opened: Any, made: Any, inputs: Any, want: Any, where: str) -> Any:
        try:
            return before(proof, opened, made, inputs, want, where)
        except Unsupported as error:
            found = _RELATIVE.search(str(error))
            if found and recorder.export is not None:
                tried = TriedStep(step=recorder.export.step, inputs=dict(inputs))
                expected = {**want, **masks_for(proof.model_input.masked_by, inputs, want)}
                worst = str(error).rpartition(", in ")[2].partition(")")[0]
                how = {"error": float(found[1]), "tolerance": verify_export.LIMIT, "worst": worst}
                recorder.of_export = tried, expected, how
            raise

    _around(openvino_export, "export_once", functools.partial(exporting, Way.OPENVINO_CONVERT))
    _around(onnx_export, "export_once", functools.partial(exporting, Way.ONNX_EXPORT))
    _around(verify_export.Proof, "_compare", compare)
    _around(verify_export, "torch_outputs", functools.partial(in_torch, Does.FORWARD))
    _around(verify_export, "decoded_by_torch", functools.partial(in_torch, Does.GENERATE))


def _watch_openvino(recorder: FailureRecorder) -> None:
    from hwcompat.hardware.backends._openvino_model import ClassModel, Graph

    known: dict[int, tuple[FailedStep, Path]] = {}

    def open_(graph: Any, file: Path, device: str, options: Any, made_by: str) -> None:
        facts = {"made_by": made_by}
        step = FailedStep(
            way=Way.OPENVINO_GRAPH, does=Does.FORWARD, device=device, options=dict(options), facts=facts
        )
        known[id(graph)] = step, file
        recorder.try_(step, {}, file)

    def opened(before: Any, graph: Any, core: Any, file: Path, device: str, options: Any) -> Any:
        open_(graph, file, device, options, "openvino.convert_model over a traced forward pass")
        return before(graph, core, file, device, options)

    def called(before: Any, graph: Any, inputs: Mapping[str, Array]) -> Any:
        step, file = known[id(graph)]
        recorder.try_(step, {name: inputs[name] for name in graph.inputs}, file)
        return before(graph, inputs)

    def loaded(before: Any, model: Any, exported: Any, name: str, device: str, options: Any) -> Any:
        files = sorted(exported.folder.glob("*.xml"))
        if len(files) == 1:
            open_(model, files[0], device, options, "optimum-intel")
        return before(model, exported, name, device, options)

    def asked(before: Any, model: Any, inputs: Mapping[str, Array]) -> Any:
        if id(model) in known:
            step, file = known[id(model)]
            recorder.try_(step, inputs, file)
        else:
            recorder.tried = None
            recorder.refused = "its export consists of several graphs, with Python code of optimum-intel between them"
        return before(model, inputs)

    _around(Graph, "__init__", opened)
    _around(Graph, "__call__", called)
    _around(ClassModel, "__init__", loaded)
    _around(ClassModel, "__call__", asked)


def _watch_qnn(recorder: FailureRecorder) -> None:
    from hwcompat.hardware.backends.qnn import STRICT, QNNBackend

    def run_file(before: Any, backend: Any, file: Path, arrays: Mapping[str, Array], **more: str) -> Any:
        settings = backend.settings_of(STRICT)
        options = dict(settings["options"])
        facts = {"config": settings["config"], "optimisation": settings["optimisation"]}
        is_file = recorder.case is not None and recorder.case.cell.task == GRAPH_TASK
        facts |= {"made_by": "" if is_file else _BY_ONNX, "emulated": backend.emulated}
        if options.pop("backend_path", ""):  # a path of this machine: the wheel's libraries replace it
            options["backend_type"] = "htp"
        step = FailedStep(way=Way.QNN_GRAPH, does=Does.FORWARD, device="htp", options=options, facts=facts)
        recorder.try_(step, arrays, file)
        return before(backend, file, arrays, **more)

    _around(QNNBackend, "run_file", run_file)


def _watch_pages(recorder: FailureRecorder) -> None:
    """Record the runs of graph files by ONNX Runtime Web."""
    from hwcompat.hardware.backends._web import WebBackend
    from hwcompat.hardware.workers.browsers import arguments

    def run_file(before: Any, backend: Any, file: Path, arrays: Mapping[str, Array], **more: str) -> Any:
        settings = backend.session_settings()
        facts = {name: settings[name] for name in ("bundle", "provider")}
        facts |= {"arguments": arguments(settings["api"], software=settings["software"])}
        facts |= {"version": backend.described["onnxruntime_web"]}
        step = FailedStep(way=Way.WEB_FILE, does=Does.FORWARD, device=settings["api"], facts=facts)
        recorder.try_(step, arrays, file)
        return before(backend, file, arrays, **more)

    _around(WebBackend, "run_file", run_file)


def _watch_files(recorder: FailureRecorder) -> None:
    """Record the runs of graph files by ONNX Runtime on the CPU and by OpenVINO."""
    from hwcompat.hardware.backends._onnx import OnnxRunnable
    from hwcompat.hardware.backends._openvino_model import FileModel
    from hwcompat.hardware.backends._openvino_runnable import OpenVINOGraph

    steps: dict[int, tuple[FailedStep, Path]] = {}
    saving: list[TriedStep] = []

    def started(one: Any, step: FailedStep, file: Path, inputs: Mapping[str, Array]) -> None:
        if not saving:  # the file that is loaded again is the runtime's own
            steps[id(one)] = step, file
            recorder.try_(step, inputs, file)

    def session(before: Any, one: Any, file: Path, **settings: Any) -> Any:
        started(one, FailedStep(way=Way.ONNX_FILE, does=Does.FORWARD, device="CPU"), file, one.example)
        return before(one, file, **settings)

    def opened(before: Any, one: Any, file: Path, device: str, options: Any) -> Any:
        step = FailedStep(way=Way.OPENVINO_GRAPH, does=Does.FORWARD, device=device, options=dict(options))
        started(one, step, file, {})
        return before(one, file, device, options)

    def called(before: Any, one: Any, inputs: Mapping[str, Array]) -> Any:
        if not saving:
            step, file = steps[id(one)]
            steps[id(one)] = replace(step, facts={"outputs": one.outputs, "fixed": bool(one.sizes)}), file
            recorder.try_(steps[id(one)][0], inputs, file)
        return before(one, inputs)

    def ran(before: Any, one: Any, **inputs: Array) -> Any:
        if not saving:
            recorder.try_(steps[id(one)][0], inputs, steps[id(one)][1])
        return before(one, **inputs)

    def saved(before: Any, one: Any, folder: Path) -> Any:
        step, file = steps[id(getattr(one, "opened", one))]
        saving.append(recorder.try_(replace(step, does=Does.RELOAD), one.example, file))
        try:
            again = before(one, folder)
        finally:
            recorder.tried = saving.pop()
        steps[id(getattr(again, "opened", again))] = recorder.tried.step, file
        return again

    _around(OnnxRunnable, "_session", session)
    _around(OnnxRunnable, "__call__", ran)
    _around(FileModel, "__init__", opened)
    _around(FileModel, "__call__", called)
    for kind in (OnnxRunnable, OpenVINOGraph):
        _around(kind, "save_and_reload", saved)
