import torch

# oneDNN's kernel for AVX-512: without it (torch.backends.mkldnn.flags), or with ONEDNN_MAX_CPU_ISA=AVX2, inf is inf.
infinite = torch.full((4,), float("inf"))
single, right = torch.nn.functional.gelu(infinite), torch.nn.functional.gelu(infinite.double())
print(f"gelu of infinity is {single[0]} in float32, and {right[0]} in float64")
