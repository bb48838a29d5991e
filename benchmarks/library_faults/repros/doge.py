import torch
from transformers import DogeConfig, DogeForCausalLM

torch.manual_seed(0)
sizes = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
model = DogeForCausalLM(DogeConfig(**sizes)).double().eval()
text, changed = torch.arange(8)[None], torch.arange(8)[None]
changed[0, -1] = 60  # only the last token
with torch.no_grad():
    moved = (model(text).logits - model(changed).logits)[0, 0].abs().max()
print(f"the first logits move by {moved:.1e}, and should not move")
