"""The odd ones of eight digits: two are of another class than six; the share of sets of new classes with both found."""

import torch
from sklearn.datasets import load_digits

from vicinal.encoders.sets import SubsetScore, mean_field

x, y = (torch.from_numpy(part) for part in load_digits(return_X_y=True))
x, draw = (x.float() - 8) / 8, torch.Generator().manual_seed(0)


def sets(count: int, classes: range) -> tuple[torch.Tensor, torch.Tensor]:
    rows = torch.stack([torch.where(y == k)[0][:170] for k in classes])
    kinds = torch.rand(count, len(rows), generator=draw).argsort(1)[:, :2]
    odd = (torch.rand(count, 8, generator=draw).argsort(1) < 2).long()
    return x[rows[kinds.gather(1, odd), torch.randint(170, (count, 8), generator=draw)]], odd.float()


def both(score: torch.Tensor) -> float:
    return float((score.topk(2).indices.sort().values == truth.topk(2).indices.sort().values).all(1).float().mean())


new, truth = sets(200, range(7, 10))
plain = both((new - new.mean(1, keepdim=True)).norm(dim=-1))
print(f"distance from the mean {plain:.2f} of sets")
for context in (False, True):
    torch.manual_seed(0)
    score = SubsetScore(64, hidden=64, context=context)
    adam, half = torch.optim.Adam(score.parameters(), lr=2e-3), torch.full((200, 8), 0.25)
    for _ in range(100):
        some, odd = sets(64, range(7))
        q = mean_field(lambda chosen: score(some, chosen), half[:64], samples=8, generator=draw)
        adam.zero_grad()
        torch.nn.BCELoss()(q, odd).backward()
        adam.step()
    with torch.no_grad():
        q = mean_field(lambda chosen: score(new, chosen), half, samples=64, generator=draw)
    print(
        f"score {'with' if context else 'without'} the set {both(q):.2f} of sets{' loses' if both(q) < plain else ''}"
    )
