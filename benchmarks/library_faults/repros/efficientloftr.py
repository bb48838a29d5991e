import torch
from transformers import EfficientLoFTRConfig, EfficientLoFTRForKeypointMatching

torch.manual_seed(0)
config = EfficientLoFTRConfig(coarse_matching_border_removal=0, coarse_matching_threshold=0.0)
model = EfficientLoFTRForKeypointMatching(config).eval()
scores = torch.rand(2, 4, 4, 4, 4)  # two pairs of images, each of 4 by 4 places
together, _ = model._get_matches_from_scores(scores)
alone = torch.cat([model._get_matches_from_scores(pair[None])[0] for pair in scores])
print(f"{(together != alone).sum()} of {alone.numel()} matches differ between two pairs at once and each pair alone")
