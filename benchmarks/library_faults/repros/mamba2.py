import torch
from transformers import Mamba2Config, Mamba2ForCausalLM

torch.manual_seed(1)
sizes = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_heads": 4, "head_dim": 16, "state_size": 8}
model = Mamba2ForCausalLM(Mamba2Config(**sizes, n_groups=1, chunk_size=8)).eval()
torch.nn.init.normal_(model.lm_head.weight, std=1.0)
how = {"num_beams": 4, "max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False, "output_scores": True}
text = torch.arange(6)[None]
scores = [
    model.generate(text, use_cache=cached, return_dict_in_generate=True, **how).sequences_scores.item()
    for cached in (True, False)
]
print(f"the best beam scores {scores[0]:.4f} with a cache, {scores[1]:.4f} without: states of beams aren't reordered")
