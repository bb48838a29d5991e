import torch

# The product of 125 numbers in bfloat16 is rounded more than once: rounded once, it is off by at most half a unit.
numbers = torch.empty(2000, 125).uniform_(-2, 2, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
got, right = torch.stack([row.prod() for row in numbers]).double(), numbers.double().prod(1)
units = (got - right).abs() / (torch.finfo(torch.bfloat16).eps * 2.0 ** right.abs().log2().floor())
print(f"prod in bfloat16 is off by up to {units.max():.1f} units in the last place")
