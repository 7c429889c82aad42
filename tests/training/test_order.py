"""Every epoch of training sees the rows in another order: a batch is its own bank, so neighbors must change."""

import torch
from torch import nn

from vicinal.encoders import MemberProjectors, Projector
from vicinal.heads import NONA, Dense, Ensemble
from vicinal.training import NeighborModule, NeighborNetwork, Rows, TrainingSettings, train


class Watched:
    """Vectors that note which rows were asked for."""

    def __init__(self, values):
        self.values, self.asked = values, []

    def __len__(self):
        return len(self.values)

    def select(self, rows):
        self.asked.append(tuple(rows.tolist()))
        return self.values[rows]


def test_each_epoch_has_its_own_batches():
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    rows = Rows(Watched(x), x[:, 0], torch.arange(40))
    held = Rows(Watched(x[:5]), x[:5, 0], torch.arange(40, 45))
    network = NeighborNetwork(nn.Identity(), Projector(3, (4, 2)), Dense(2))
    train(network, rows, held, TrainingSettings(max_epochs=3, batch_size=20, accelerator="cpu"))
    asked = [batch for batch in rows.inputs.asked if len(batch) == 20]  # the whole bank is asked for in validation
    assert len(asked) == 6
    assert len(set(asked)) == 6


def test_members_are_trained_each_by_its_own_error():
    """The gradients of a member are those that it has alone, over the number of members."""
    torch.manual_seed(0)
    x = torch.randn(12, 3)
    rows = Rows(Watched(x), x[:, 0], torch.arange(12))
    pair = [NONA(), NONA("squared_l2")]
    projector = MemberProjectors(3, (4, 2), members=2)
    batch = rows.select(torch.arange(12))

    def gradient(head, cut):
        network = NeighborNetwork(nn.Identity(), Cut(projector, cut), head)
        module = NeighborModule(network, rows, TrainingSettings())
        projector.zero_grad()
        module.training_step(batch, 0).backward()
        return projector.weights[0].grad.clone()

    both = gradient(Ensemble(pair), slice(0, 4))
    for m in range(2):
        torch.testing.assert_close(2 * both[m], gradient(pair[m], slice(2 * m, 2 * m + 2))[m])


class Cut(nn.Module):
    """Some columns of what a module gives."""

    def __init__(self, module, columns):
        super().__init__()
        self.module, self.columns = module, columns

    def forward(self, x):
        return self.module(x)[:, self.columns]
