"""Two digits by a plane: normalized steps and the perceptron, beside gradient descent and logistic regression.

Printed are the steps until no row is wrong, and the share of right rows among others.
"""

import math

import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from vicinal.losses import separate

x, y = load_digits(return_X_y=True)
for one, other in ((3, 5), (1, 8), (4, 9)):
    among = (y == one) | (y == other)
    rows = torch.nn.functional.pad(torch.from_numpy(x[among] / 16), (0, 1), value=1.0)
    labels = torch.where(torch.from_numpy(y[among] == one), 1, -1)
    signed, descent, steps = rows[:200] * labels[:200, None], torch.zeros(65).double(), 0
    while bool((signed @ descent <= 0).any()):
        descent, steps = descent + torch.sigmoid(-signed @ descent) @ signed / 200, steps + 1
    ends = {"gradient descent": (descent, steps)}
    for name, rate in (("normalized", 1.0), ("perceptron", math.inf)):
        plane = separate(rows[:200], labels[:200], rate=rate)
        ends[name] = plane.weights, plane.steps
    model = LogisticRegression(fit_intercept=False).fit(rows[:200], labels[:200])
    ends["logistic regression"] = torch.from_numpy(model.coef_[0]), int(model.n_iter_[0])
    print(f"{one} or {other}:")
    for name, (weights, steps) in ends.items():
        print(f"  {name:20} {steps:4} steps, {float(((rows[200:] @ weights) * labels[200:] > 0).double().mean()):.3f}")
