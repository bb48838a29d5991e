import torch
from transformers import Aimv2TextConfig, Aimv2TextModel

torch.manual_seed(0)
sizes = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
model = Aimv2TextModel(Aimv2TextConfig(**sizes, eos_token_id=63, max_position_embeddings=16)).double().eval()
rows, mask = torch.arange(16).view(2, 8), torch.ones(2, 8, dtype=torch.long)
mask[1, 4:] = 0
with torch.no_grad():
    alone = model(rows[:1], attention_mask=mask[:1]).last_hidden_state
    beside = model(rows, attention_mask=mask).last_hidden_state[:1]
print(f"a row differs by {(alone - beside).abs().max():.1e} from the same row beside a padded one")
