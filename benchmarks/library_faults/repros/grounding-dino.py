import torch
from transformers import BertConfig, BertModel

torch.manual_seed(0)
sizes = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}
model = BertModel(BertConfig(**sizes), add_pooling_layer=False).double().eval()
text = torch.arange(8)[None]
mask = torch.eye(8, dtype=torch.bool)[None, None]  # as Grounding DINO gives it: each token sees itself
with torch.no_grad():
    sdpa = model(text, attention_mask=mask).last_hidden_state
    model.set_attn_implementation("eager")
    eager = model(text, attention_mask=mask).last_hidden_state
print(f"sdpa and eager differ by {(sdpa - eager).abs().max():.1e}: eager adds a boolean mask to the scores")
