import torch
from transformers import RecurrentGemmaConfig, RecurrentGemmaForCausalLM

torch.manual_seed(0)
sizes = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
}
model = RecurrentGemmaForCausalLM(RecurrentGemmaConfig(**sizes, lru_width=32, attention_window_size=16)).eval()
for parameter in model.parameters():
    torch.nn.init.normal_(parameter, std=0.5)
text = torch.arange(6)[None]
how = {"num_beams": 4, "max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False, "output_scores": True}
scores = [
    model.generate(text, use_cache=cached, return_dict_in_generate=True, **how).sequences_scores.item()
    for cached in (True, False)
]
print(f"the best beam scores {scores[0]:.4f} with a cache, {scores[1]:.4f} without")
