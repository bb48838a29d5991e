import torch
from transformers.models.autoformer.modeling_autoformer import AutoformerAttention

torch.manual_seed(0)
attention = AutoformerAttention(embed_dim=16, num_heads=2).eval()
rows = torch.randn(2, 24, 16)
with torch.no_grad():
    together = attention(rows)[0]
    alone = torch.cat([attention(row[None])[0] for row in rows])
print(f"rows differ by {(together - alone).abs().max():.1e} between a batch of two and each alone")
