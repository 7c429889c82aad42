"""Digits 6 to 9 by vectors learned on 0 to 5: from batches, with mixed rows (Metrix), with mixed negatives (KaLM).

Printed are MAP@R of the digits never seen, and how much they differ in what one threshold does to them (OPIS).
"""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import normalize

from vicinal.losses import EmbeddingLoss, MixedLoss
from vicinal.metrics import map_at_r, opis
from vicinal.mixing import append_negatives, draw_mixed_negatives

x, y = (torch.from_numpy(part) for part in load_digits(return_X_y=True))
rows, labels, x, y = x[y < 6][:400].float() / 16, y[y < 6][:400], x[y > 5].float() / 16, y[y > 5]
plain, mixed = EmbeddingLoss("metrix"), MixedLoss(EmbeddingLoss("metrix"), nearest=20)


def mixed_negatives(vectors, classes):
    same, scores = (classes[:, None] == classes).float(), vectors @ vectors.T
    hard = vectors[scores.masked_fill(same > 0, -2).topk(8).indices]
    return plain.loss(*append_negatives(vectors, draw_mixed_negatives(hard), scores, same, 1 - torch.eye(64)))


for name, loss in {"batches": plain, "mixed rows": mixed, "mixed negatives": mixed_negatives}.items():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
    optimizer = torch.optim.Adam(model.parameters(), 0.003)
    for _ in range(100):
        at = torch.randint(400, (64,))
        optimizer.zero_grad()
        loss(normalize(model(rows[at]), dim=1), labels[at]).backward()
        optimizer.step()
    vectors, others = normalize(model(x), dim=1).detach(), 1 - torch.eye(len(y))
    precision = map_at_r(vectors @ vectors.T, (y[:, None] == y).float(), others).mean()
    print(f"{name:16} MAP@R {precision:.3f}, OPIS {opis(vectors @ vectors.T, y, weight=others):.4f}")
