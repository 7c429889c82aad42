"""Several orders of one list: twelve digits, ranked for a query by each quarter of the image.

Printed is the share of the query's digit among the first three, beside the order by all pixels; then a ranker that
favors what it reads first, asked once, and about shuffled lists.
"""

import torch
from sklearn.datasets import load_digits

from vicinal.ranks import borda, kemeny, reciprocal_rank_fusion, self_consistent_order

images, digits = (torch.from_numpy(part) for part in load_digits(return_X_y=True))
quarters = images.reshape(-1, 2, 4, 2, 4).permute(1, 3, 0, 2, 4).reshape(4, -1, 16)
draw, hits = torch.Generator().manual_seed(0), {}


def favoring_the_first(items):
    """Places of candidates by distance, and by where they stand in the list."""
    late = 3.0 * torch.arange(12)
    return ((images[rows[items]] - images[query]).norm(dim=1) + late).argsort().tolist()


for query in range(1500, 1540):
    related = (digits[:1500] == digits[query]).double()
    rows = torch.cat([torch.multinomial(related, 3, generator=draw), torch.multinomial(1 - related, 9, generator=draw)])
    rows = rows[torch.randperm(12, generator=draw)]
    orders = torch.stack([(quarter[rows] - quarter[query]).norm(dim=1) for quarter in quarters]).argsort(1)
    for name, order in {
        "one quarter": orders[0],
        "Kemeny": kemeny(orders).order,
        "Borda": borda(orders),
        "reciprocal ranks": reciprocal_rank_fusion(orders),
        "all pixels": (images[rows] - images[query]).norm(dim=1).argsort(),
        "ranker, once": torch.tensor(favoring_the_first(list(range(12)))),
        "ranker, shuffled": self_consistent_order(favoring_the_first, range(12), repeats=10).order,
    }.items():
        hits.setdefault(name, []).append((digits[rows[order[:3]]] == digits[query]).double().mean())
print(", ".join(f"{name} {float(torch.stack(shares).mean()):.2f}" for name, shares in hits.items()))
