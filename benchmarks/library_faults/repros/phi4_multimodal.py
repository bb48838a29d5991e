import torch
from transformers import Phi4MultimodalVisionConfig, Phi4MultimodalVisionModel

torch.manual_seed(0)
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
model = Phi4MultimodalVisionModel(Phi4MultimodalVisionConfig(**sizes, image_size=56, patch_size=14)).double().eval()
image, mask = torch.randn(1, 3, 56, 56, dtype=torch.float64), torch.ones(1, 4, 4, dtype=torch.bool)
with torch.no_grad():
    sdpa = model(image, mask).last_hidden_state
    model.set_attn_implementation("eager")
    eager = model(image, mask).last_hidden_state
print(f"sdpa and eager differ by {(sdpa - eager).abs().max():.1e}: under sdpa the encoder of images is causal")
