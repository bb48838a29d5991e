import torch
from transformers import ProphetNetConfig, ProphetNetForConditionalGeneration

torch.manual_seed(0)
layers = {"num_encoder_layers": 1, "num_decoder_layers": 2, "num_decoder_attention_heads": 16}
sizes = {
    "vocab_size": 64,
    "hidden_size": 32,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "num_encoder_attention_heads": 16,
}
model = ProphetNetForConditionalGeneration(ProphetNetConfig(**sizes, **layers)).double().eval()
for parameter in model.parameters():
    torch.nn.init.normal_(parameter, std=0.3)
source, text, changed = torch.arange(7)[None], torch.arange(7)[None], torch.arange(7)[None]
changed[0, 3] = 60
with torch.no_grad():
    before, after = (
        model(input_ids=source, decoder_input_ids=one, use_cache=False).logits for one in (text, changed)
    )
moved = (before - after)[0].abs().amax(-1) > 1e-9
print(f"changing token 3 moves the logits of positions {moved.nonzero().flatten().tolist()}")
