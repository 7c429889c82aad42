"""Five guesses about the lower half of a digit, from its upper half, in four rows that should fit one another.

Errors of the best guess of each row, and of the best guess of all four together, on digits that were not trained on.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn

from vicinal.losses import best_of_k, guess_errors

images = torch.from_numpy(load_digits().images).float() / 16
upper, lower = images[:, :4].flatten(1), images[:, 4:, :, None]  # [n, 32], [n, 4 rows, 8 pixels, 1]
near = torch.cdist(upper[1200:], upper[:1200]).topk(5, largest=False).indices
guesses = {"nearest digits": lower[near].movedim(1, 2)}  # [n, 4, 5, 8, 1]


def trained(loss):
    """Guesses of a network after 100 steps."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 160), nn.Unflatten(1, (4, 5, 8, 1)))
    optimizer = torch.optim.Adam(model.parameters(), 0.003)
    for _ in range(100):
        rows = torch.randint(1200, (128,))
        optimizer.zero_grad()
        torch.vmap(loss)(model(upper[rows]), lower[rows]).mean().backward()
        optimizer.step()
    return model(upper[1200:]).detach()


guesses["mean of guesses"] = trained(lambda guess, truth: (guess.mean(1) - truth).square().mean())
guesses["each row"] = trained(lambda guess, truth: best_of_k(guess, truth, joint=0.0))
guesses["rows together"] = trained(lambda guess, truth: best_of_k(guess, truth, joint=1.0))
for name, some in guesses.items():
    errors = torch.stack([guess_errors(*pair) for pair in zip(some, lower[1200:], strict=True)])  # [n, 4, 5]
    each, together = errors.amin(2).mean(), errors.mean(1).amin(1).mean()
    print(f"{name:16} each {each:.3f}, together {together:.3f}")
