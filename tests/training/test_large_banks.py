"""A network predicts over a large bank without a matrix of all scores, and with the same numbers."""

import torch
from torch import nn

from vicinal.blockwise import block_policy
from vicinal.heads import NONA, Dense
from vicinal.masks import SoftStep
from vicinal.training import NeighborNetwork


def rows(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_many_queries_are_streamed_together(monkeypatch):
    """Also in parts of the queries, with ids, and in the bank's own dtype."""
    head = NONA(mask=SoftStep(3)).double()
    network = NeighborNetwork(nn.Identity(), nn.Identity(), head)
    queries, bank, labels = rows(0, 20, 3), rows(1, 50, 3).float(), rows(2, 50)
    keys = {"query_ids": torch.arange(20), "bank_ids": torch.arange(50)}
    want = head(queries, bank, labels, **keys).detach()
    seen = []
    monkeypatch.setattr(head, "weights", lambda *args, **settings: seen.append(args))
    with block_policy(streamed_entries=0, batch_queries=9):
        got = network.predict(queries, bank, labels, **keys)
    assert seen == []
    torch.testing.assert_close(got, want)


def test_heads_without_a_bank_are_not_asked_to_stream():
    network = NeighborNetwork(nn.Identity(), nn.Identity(), Dense(3).double())
    assert network.predict(rows(0, 20, 3), rows(1, 50, 3), rows(2, 50)).shape == (20,)
