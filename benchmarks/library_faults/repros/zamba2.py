import torch
from transformers import Zamba2Config, Zamba2ForCausalLM

torch.manual_seed(0)
sizes = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "layers_block_type": ["mamba", "hybrid"],
    "num_attention_heads": 2,
    "n_mamba_heads": 2,
    "mamba_d_state": 8,
    "mamba_ngroups": 1,
    "chunk_size": 8,
}
model = Zamba2ForCausalLM(Zamba2Config(**sizes, use_conv_bias=False)).double().eval()
for layer in model.model.layers[:1]:
    torch.nn.init.normal_(layer.mamba.conv1d.bias)
text = torch.arange(8)[None]
with torch.no_grad():
    whole = model(text).logits[:, -1]
    first = model(text[:, :-1], use_cache=True)
    step = model(text[:, -1:], past_key_values=first.past_key_values, use_cache=True).logits[:, -1]
print(f"the last logits differ by {(whole - step).abs().max():.1e} with a cache, which drops the convolution's bias")
