import torch
from transformers import GPTNeoConfig, GPTNeoForCausalLM

torch.manual_seed(0)
sizes = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_layers": 2,
    "num_heads": 2,
    "attention_types": [[["global", "local"], 1]],
}
model = GPTNeoForCausalLM(GPTNeoConfig(**sizes, max_position_embeddings=64, window_size=8)).eval()
for parameter in model.parameters():
    torch.nn.init.normal_(parameter, std=0.3)
text = torch.arange(12)[None]
how = {"max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False, "output_logits": True}
dynamic, static = (
    torch.stack(model.generate(text, return_dict_in_generate=True, cache_implementation=kind, **how).logits)
    for kind in (None, "static")
)
print(f"logits with a static cache differ by {(dynamic - static).abs().max():.1e}")
