import torch
from transformers import GlmMoeDsaConfig, GlmMoeDsaForCausalLM

torch.manual_seed(0)
sizes = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "moe_intermediate_size": 16,
    "num_hidden_layers": 2,
}
heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_head_dim": 24}
parts = {"qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16, "index_n_heads": 2, "index_head_dim": 16}
experts = {"n_routed_experts": 4, "num_experts_per_tok": 2, "index_topk": 4, "first_k_dense_replace": 1}
model = GlmMoeDsaForCausalLM(GlmMoeDsaConfig(**sizes, **heads, **parts, **experts)).eval()
text, changed = torch.arange(8)[None], torch.arange(8)[None]
changed[0, -1] = 60  # only the last token
with torch.no_grad():
    moved = (model(text).logits - model(changed).logits)[0, 0].abs().max()
print(f"the first logits move by {moved:.1e}, and should not move")
