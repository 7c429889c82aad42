"""Where a loss made of a link is sensitive: at high scores, low ones, both or neither, alone and among classes.

Beside each verdict the loss of a prediction that is one too low, at a low and at a high target; of squares it is 0.5.
"""

import torch

from vicinal.links import AntiExp, Exp, Identity, Sigmoid, Sinh, class_ranking, class_region, region
from vicinal.losses import MatchingLoss

for link in (Identity(), Exp(), AntiExp(), Sigmoid(), Sinh()):
    loss, target = MatchingLoss(link, reduction="none"), torch.tensor([-2.0, 2.0])
    low, high = loss(target - 1, target).tolist()
    name = type(link).__name__
    print(
        f"{name:9} {region(link)}, among classes {class_region(link)} ({class_ranking(link)}); {low:.2f} and {high:.2f}"
    )
