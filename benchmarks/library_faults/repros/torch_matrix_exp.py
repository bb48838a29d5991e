import torch

# In half precision the exponential of a matrix has infinities, where the result in float64 is between -2 and 2.
matrix = torch.tensor([[0.5, -1.5], [1.25, 0.25]])
for dtype in (torch.bfloat16, torch.float16):
    got = torch.linalg.matrix_exp(matrix.to(dtype))
    right = torch.linalg.matrix_exp(matrix.to(dtype).double())
    print(f"matrix_exp in {dtype} gives {got.tolist()}, and should give {right.tolist()}")
