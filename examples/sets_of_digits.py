"""Which set has a digit like this one? Share of queries for which a set with the same digit comes first."""

import torch
from sklearn.datasets import load_digits

from vicinal.similarity import FixedDimensionalEncoding, SetScores

x, y = (torch.from_numpy(part) for part in load_digits(return_X_y=True))
x, draw = (x.float() - 8) / 8, torch.Generator().manual_seed(0)
kinds = torch.rand(40, 10, generator=draw).argsort(1)[:, :4].repeat(1, 2)  # four digits, twice each
rows = [torch.where(y[:1200] == kind)[0] for kind in range(10)]
sets = torch.stack([x[torch.stack([rows[k][torch.randint(100, (), generator=draw)] for k in one])] for one in kinds])
queries, truth = x[1200:], y[1200:]
right = (kinds[None] == truth[:, None, None]).any(2)


def first(scores: torch.Tensor) -> float:
    return float(right[torch.arange(len(queries)), scores.argmax(1)].float().mean())


plain = first(queries @ sets.mean(1).T)
codes = FixedDimensionalEncoding(64, bits=3, repetitions=10)
for name, scores in {
    "best element": SetScores("max")(sets, queries).reshape(len(sets), -1).T,
    "fixed-width codes": codes.queries(queries[:, None]) @ codes.documents(sets).T,
}.items():
    share = first(scores)
    print(f"{name} {share:.2f}, mean vectors {plain:.2f}{' (loses)' if share <= plain else ''}")
