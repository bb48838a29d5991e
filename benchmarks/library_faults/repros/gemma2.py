import torch
from transformers import Gemma2Config, Gemma2ForCausalLM

torch.manual_seed(0)
sizes = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
config = Gemma2Config(
    **sizes, num_key_value_heads=2, head_dim=16, attn_logit_softcapping=1.0, query_pre_attn_scalar=1
)
model = Gemma2ForCausalLM(config).double().eval()
text = torch.arange(8)[None]
with torch.no_grad():
    default = model(text).logits
    model.set_attn_implementation("eager")
    eager = model(text).logits
print(f"the default differs from eager by {(default - eager).abs().max():.1e}: it drops the softcap")
