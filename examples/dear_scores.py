"""Photos by structure (SSIM): which crop is this, with another contrast? And how few of these dear scores find it.

Anchors: the scores of 30 crops say which others are worth a score; beside them the crops that are nearest by pixels.
"""

import numpy as np
import torch
from sklearn.datasets import load_sample_images

from vicinal.index import anchor_codes, anchor_search
from vicinal.losses import ms_ssim_loss
from vicinal.similarity import ImageSimilarity

SIDE, QUERIES = 40, 30
draw = torch.Generator().manual_seed(0)
photos = torch.from_numpy(np.stack(load_sample_images().images)).float().mean(-1, keepdim=True).movedim(-1, 1) / 255
changed = {"brighter": photos + 0.08, "noisy": photos + 0.08 * torch.randn(photos.shape, generator=draw)}
for name, other in changed.items():
    error = (other - photos).square().mean()
    print(f"{name} photos: squared error {error:.4f}, lack of structure {ms_ssim_loss(photos, other):.3f}")

crops = photos[:, 0].unfold(1, SIDE, SIDE).unfold(2, SIDE, SIDE).reshape(-1, SIDE**2)
truth = torch.randperm(len(crops), generator=draw)[:QUERIES]
means, noise = crops[truth].mean(1, keepdim=True), 0.03 * torch.randn(QUERIES, SIDE**2, generator=draw)
queries = means + 0.6 * (crops[truth] - means) + 0.2 * torch.rand(QUERIES, 1, generator=draw) + noise
score = ImageSimilarity(SIDE, SIDE)
structure, pixels = score(queries, crops), -torch.cdist(queries, crops)
hits = [float((scores.argmax(1) == truth).double().mean()) for scores in (structure, pixels)]
print(f"the crop comes first: SSIM {hits[0]:.2f}, pixels {hits[1]:.2f}{' (loses)' if hits[0] <= hits[1] else ''}")

anchors = torch.randperm(len(crops), generator=draw)[:30]
codes, shares = anchor_codes(score(crops[anchors], crops), anchors), []
for first in (None, pixels):
    rows = [query[None] for query in queries]
    best = anchor_search(lambda row, at: score(row, crops[at])[0], rows, codes, anchors, 1, calls=60, first=first)
    shares.append(float((best.ids[:, 0] == structure.argmax(1)).double().mean()))
lost = " (loses)" if shares[0] <= shares[1] else ""
print(f"best of all {len(crops)} by 60 scores: by anchors {shares[0]:.2f}, nearest by pixels {shares[1]:.2f}{lost}")
