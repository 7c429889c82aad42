"""Rows that read one another (Set-Encoder, one token a row), beside the same network of single rows.

A list is eight images of digits; good are those of its most frequent digit. No row says that by itself, so a scorer of
single rows ranks as by chance. On search hits, whose grades are their own, context gains little, and trees rank better
than both: docs/results/rank-and-recommend.md.

    python examples/rank_in_context.py
"""

import torch
from sklearn.datasets import load_digits

from vicinal.encoders.sets import PassageScorer
from vicinal.losses import ranknet
from vicinal.metrics import ndcg

torch.manual_seed(0)
images, digits = (torch.tensor(part) for part in load_digits(return_X_y=True))
of_digit = torch.stack([(digits == digit).nonzero()[:170, 0] for digit in range(10)])  # [10, 170]


def lists(count: int, *, first: int, last: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Images ``[count, 8, 64]``, three of one digit at least, and 1 for each of the most frequent digit."""
    kinds = torch.cat([torch.randint(10, (count, 1)).expand(count, 3), torch.randint(10, (count, 5))], dim=1)
    same = (kinds[:, :, None] == kinds[:, None]).sum(dim=2)
    at = of_digit[kinds, torch.randint(first, last, (count, 8))]
    return images[at].float() / 16, (same == same.amax(dim=1, keepdim=True)).float()


test, good = lists(400, first=120, last=170)
for name in ("single rows", "rows in context"):
    first, scorer = torch.nn.Linear(64, 32), PassageScorer(32, blocks=1)
    optimizer = torch.optim.AdamW([*first.parameters(), *scorer.parameters()], lr=2e-3)
    for step in range(251):
        x, grades = (test, good) if step == 250 else lists(64, first=0, last=120)
        tokens = first(x)[:, :, None]  # [b, 8, 1, e]
        alone = name == "single rows"
        scores = scorer(tokens.flatten(0, 1)[:, None]).view(grades.shape) if alone else scorer(tokens)
        if step < 250:
            optimizer.zero_grad()
            ranknet(scores, grades).backward()
            optimizer.step()
    print(f"{name}: nDCG@10 {ndcg(scores.detach(), good, k=10).mean():.3f}")
print(f"by chance: nDCG@10 {ndcg(torch.rand(400, 8), good, k=10).mean():.3f}")
