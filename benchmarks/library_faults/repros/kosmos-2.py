import torch
from transformers import Kosmos2Config
from transformers.models.kosmos2.modeling_kosmos2 import Kosmos2ImageToTextProjection

torch.manual_seed(0)
text = {"embed_dim": 32, "attention_heads": 2}
config = Kosmos2Config(text_config=text, vision_config={"hidden_size": 32}, latent_query_num=8)
config.text_config._attn_implementation = "sdpa"
projection = Kosmos2ImageToTextProjection(config).double().eval()
image = torch.randn(1, 8, 32, dtype=torch.float64)
with torch.no_grad():
    sdpa = projection(image)[0]
    config.text_config._attn_implementation = "eager"
    eager = projection(image)[0]
print(f"sdpa and eager differ by {(sdpa - eager).abs().max():.1e}: sdpa hides later patches from earlier queries")
