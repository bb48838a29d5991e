"""Targets whose torch device is made in Python, with the driver's launch log as their proof."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from ..model.calls import to_arrays
from ._torch import TorchBackend, TorchRunnable, listed
from ._trace import host_calls_elsewhere, operator_trace
from .base import Execution, Runnable

if TYPE_CHECKING:
    import torch

    from ..compare import Array
    from .base import Inputs

_BOOKKEEPING = "aten.detach"
"""Called by autograd for a gradient that it takes over: a trace sees it, and no kernel is launched."""


class LaunchLogRunnable(TorchRunnable):
    """A module on such a device."""

    backend: LaunchLogBackend

    def save_and_reload(self, folder: Path) -> Runnable:
        """Save from the host: saving reads the address of a tensor's memory, and tensors of a Python device have
        none."""
        self.model.to("cpu")
        try:
            return super().save_and_reload(folder)
        finally:
            self.model.to(self.device)

    def watched(self, inputs: Inputs) -> tuple[dict[str, Array], Mapping[str, int]]:
        trace = operator_trace(self.device.type)
        tensors = self._tensors(inputs)
        self.backend.ledger.clear()
        found: dict[str, torch.Tensor] = {}
        elsewhere = host_calls_elsewhere(lambda: found.update(self._forward(tensors)), trace)
        left: Counter[str] = trace.offloaded
        return to_arrays(found), left + self._never_launched(trace.native) + elsewhere

    def execution(self) -> Execution:
        """Return what the driver launched in a forward pass, in decoding and in a backward pass. Operators that torch
        requested and the driver didn't launch are offloaded."""
        forward, more = operator_trace(self.device.type), operator_trace(self.device.type)
        tensors = self._tensors(self.example)
        ledger = self.backend.ledger
        ledger.clear()
        elsewhere = host_calls_elsewhere(lambda: self._forward(tensors), forward)
        with more:
            unseen = self._decode_and_learn(tensors)
        launched = dict(ledger)
        never = self._never_launched(forward.native + more.native)
        offloaded = dict(forward.offloaded + never + more.on_host + elsewhere)
        proof = self._proof(forward)
        return replace(proof, native=launched, offloaded=offloaded, unseen=listed(proof.unseen, unseen))

    def _never_launched(self, asked: Counter[str]) -> Counter[str]:
        """Return the operators that torch requested and the driver didn't launch."""
        return Counter({name: n for name, n in asked.items() if name != _BOOKKEEPING}) - self.backend.ledger


class LaunchLogBackend(TorchBackend):
    """Base of such targets."""

    RUNNABLE: ClassVar[type[TorchRunnable]] = LaunchLogRunnable

    @property
    @abstractmethod
    def ledger(self) -> Counter[str]:
        """Number of launches of each operator (`aten.addmm`) since the log was cleared."""
