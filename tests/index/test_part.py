"""A part of a bank reads the bank's columns and follows its changes."""

import pytest
import torch

from vicinal.index import ExactIndex, NeighborBank
from vicinal.index.part import BankPart, bank_part


def test_a_part_is_searched_as_a_bank_of_its_columns():
    generator = torch.Generator().manual_seed(0)
    vectors, queries = torch.randn(500, 6, generator=generator), torch.randn(9, 2, generator=generator)
    bank = NeighborBank(6)
    bank.add([f"r{i}" for i in range(500)], vectors, groups=[f"g{i % 9}" for i in range(500)])
    part = BankPart(bank, 2, 4)
    own = NeighborBank(2)
    own.add(range(500), vectors[:, 2:4])
    found, wanted = (ExactIndex(2, bank=one).search(queries, 7) for one in (part, own))
    assert torch.equal(found.ids, wanted.ids)
    assert torch.equal(found.scores, wanted.scores)
    bank.remove(["r3", "r499"])
    bank.add(["new"], torch.full((1, 6), 50.0), groups=["g1"])
    assert len(part) == 499
    assert ExactIndex(2, bank=part).search(torch.full((1, 2), 49.0), 1).ids.item() == bank.keys[-1]
    assert torch.equal(part.hidden_keys(groups=["g1"]), bank.hidden_keys(groups=["g1"]))
    assert torch.equal(part.vectors, bank.vectors[:, 2:4])


def test_all_columns_are_the_bank_itself():
    bank = NeighborBank(3)
    assert bank_part(bank, 0, 3) is bank
    with pytest.raises(ValueError, match=r"^stop: expected columns among 3, got 1 to 4"):
        BankPart(bank, 1, 4)
