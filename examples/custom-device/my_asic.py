"""A device that torch doesn't know, registered and held against the CPU: `python examples/custom-device/my_asic.py`.

Its kernels are the host's, so that the example runs anywhere; a vendor's `launch` would hand operators to hardware.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from hwcompat.hardware.custom_device import (
    CustomDeviceBackend,
    HardwareVendor,
    PrivateUse1Config,
    register_custom_device,
)

NAME = "my_asic"


class HostDriver:
    """Computes with the host's kernels, except for operators that the device `lacks`."""

    def __init__(self, lacks: frozenset[str] = frozenset()) -> None:
        self.lacks = lacks

    def has_kernel(self, name: str) -> bool:
        return name not in self.lacks

    def launch(self, operator: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        return operator(*args, **kwargs)


class MyAsic(CustomDeviceBackend):
    """One device; its memory is the host's."""

    def __init__(self, driver: HostDriver) -> None:
        super().__init__(NAME, HardwareVendor.CUSTOM_ASIC)
        self.driver = driver

    def initialize_device(self, device_id: int = 0) -> bool:
        return True

    def get_device_count(self) -> int:
        return 1

    def get_device_properties(self, device_id: int = 0) -> Mapping[str, Any]:
        return {"name": "an example without hardware"}

    def allocate_memory(self, size: int, device_id: int = 0) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8, device=f"{NAME}:{device_id}")

    def copy_to_device(self, tensor: torch.Tensor, device_id: int = 0) -> torch.Tensor:
        return tensor.to(f"{NAME}:{device_id}")


def bert() -> torch.nn.Module:
    """A small random BERT."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
    )
    return BertModel(config).eval()


def llama() -> Any:
    """A small random Llama whose embedding is tied to its output layer."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=99,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=64,
        tie_word_embeddings=True,
        eos_token_id=None,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config).eval()


def compare_bert() -> tuple[float, float]:
    """The largest difference to the CPU of BERT's output and of its gradients."""
    host = bert()
    there = copy.deepcopy(host).to(NAME)
    tokens = torch.randint(0, 99, (2, 7))
    mask = torch.ones_like(tokens)
    mask[1, 5:] = 0
    want = host(input_ids=tokens, attention_mask=mask).last_hidden_state
    got = there(input_ids=tokens.to(NAME), attention_mask=mask.to(NAME)).last_hidden_state
    assert got.device.type == NAME
    want.square().mean().backward()
    got.square().mean().backward()
    gradients = [
        float((one.grad.cpu() - other.grad).abs().max())
        for one, other in zip(there.parameters(), host.parameters(), strict=True)
        if other.grad is not None
    ]
    return float((got.detach().cpu() - want.detach()).abs().max()), max(gradients)


def same_tokens() -> bool:
    """Whether Llama generates the same eight tokens there as on the CPU, with its weights still tied."""
    host = llama()
    there = copy.deepcopy(host).to(NAME)
    assert there.lm_head.weight is there.model.embed_tokens.weight
    prompt = torch.tensor([[5, 17, 42, 3]])
    asked = {"max_new_tokens": 8, "do_sample": False}
    want = host.generate(prompt, attention_mask=torch.ones_like(prompt), **asked)
    got = there.generate(prompt.to(NAME), attention_mask=torch.ones_like(prompt).to(NAME), **asked)
    return torch.equal(got.cpu(), want)


def main() -> int:
    """Register, compare, print. Returns the exit code: 1 where anything differs."""
    backend = MyAsic(HostDriver())
    if not register_custom_device(backend, PrivateUse1Config(device_name=NAME)):
        print(f"not registered: {backend.reason}")
        return 1
    output, gradient = compare_bert()
    alike = same_tokens()
    print(f"bert on {NAME}: output off by {output:.1e}, gradients by {gradient:.1e}")
    print(f"llama on {NAME}: {'the same tokens' if alike else 'other tokens'} as on the CPU")
    return 0 if alike and max(output, gradient) < 1e-5 else 1


if __name__ == "__main__":
    sys.exit(main())
