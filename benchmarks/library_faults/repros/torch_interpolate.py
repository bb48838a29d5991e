import torch

# With antialiasing, an image of one column takes its first row for all rows; turned on its side, it doesn't.
image = torch.arange(5.0).view(1, 1, 5, 1)
resize = torch.nn.functional.interpolate
got = resize(image, (10, 1), mode="bilinear", antialias=True).flatten()
right = resize(image.transpose(2, 3), (1, 10), mode="bilinear", antialias=True).flatten()
print(f"interpolate gives {got.tolist()}, and should give {right.tolist()}")
