import torch

# A result that was rounded once is off by at most half a unit in its last place; this one by up to twice that.
for dtype in (torch.bfloat16, torch.float16):
    numbers = torch.linspace(-2, 2, 2001).to(dtype)
    got, right = torch.special.i0e(numbers).double(), torch.special.i0e(numbers.double())
    units = (got - right).abs() / (torch.finfo(dtype).eps * 2.0 ** right.log2().floor())
    print(f"i0e in {dtype} is off by up to {units.max():.1f} units in the last place")
