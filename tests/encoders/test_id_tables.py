"""Tables of ids and levels of vectors: values of public code, and what cannot be looked up."""

import numpy as np
import pytest
import torch

from vicinal.encoders import FSQ, IdTable

GOLDEN = np.load("tests/golden/retrieval/qr_md_embedding.npz")
LEVELS = np.load("tests/golden/retrieval/fsq.npz")


@pytest.mark.parametrize(("kind", "name"), [("multiplied", "mult"), ("added", "add"), ("joined", "concat")])
def test_quotient_and_remainder_give_the_vectors_and_gradients_of_dlrm(kind, name):
    """Of several ids the public code multiplies the sums of both parts, which is no sum of their vectors."""
    dim = 10 if kind == "joined" else 5
    table = IdTable(10, dim, kind, rows=3).double()
    with torch.no_grad():
        table.quotient.copy_(torch.from_numpy(GOLDEN["weight_q"]))
        table.remainder.copy_(torch.from_numpy(GOLDEN["weight_r"]))
    np.testing.assert_allclose(table(torch.arange(10)).detach(), GOLDEN[f"{name}__table_of_all_ids"], atol=1e-12)
    ids = torch.from_numpy(GOLDEN["indices"])
    bags = table(ids).sum(1)
    if kind == "multiplied":
        bags = table.quotient[ids // 3].sum(1) * table.remainder[ids % 3].sum(1)
    np.testing.assert_allclose(bags.detach(), GOLDEN[f"{name}__bag_sum"], atol=1e-12)
    bags.sum().backward()
    np.testing.assert_allclose(table.quotient.grad, GOLDEN[f"{name}__grad_q"], atol=1e-12)
    np.testing.assert_allclose(table.remainder.grad, GOLDEN[f"{name}__grad_r"], atol=1e-12)


def test_ids_beyond_2_to_the_24_are_told_apart():
    """The public code divides ids as float32, which has no more digits."""
    table = IdTable(3 * 2**24, 2, "added", rows=5000)
    ids = torch.arange(2**24 - 2, 2**24 + 6)
    torch.testing.assert_close(table(ids), table.quotient[ids // 5000] + table.remainder[ids % 5000])
    assert len(torch.unique(table(ids), dim=0)) == 8


def test_tables_are_smaller_and_only_hashed_ids_share_a_vector():
    torch.manual_seed(0)
    ids = torch.arange(1000)
    counts = {}
    for kind in IdTable.KINDS:
        table = IdTable(1000, 8, kind)
        vectors = table(ids)
        counts[kind] = table.parameter_count()
        assert counts[kind] == sum(each.numel() for each in table.parameters())
        assert len(torch.unique(vectors, dim=0)) == (100 if kind == "hashed" else 1000)
        assert 0.2 < float(vectors.detach().std()) < 0.6  # of length about 1
        torch.testing.assert_close(table(ids.flip(0)).flip(0), vectors)
    assert counts == {"full": 8000, "hashed": 800, "multiplied": 512, "added": 512, "joined": 256}
    again = IdTable(1000, 8, "joined")
    again.load_state_dict(table.state_dict())
    assert torch.equal(again(ids), vectors)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"size": 0}, "size: expected a whole number of at least 1"),
        ({"kind": "robe"}, "kind: expected one of 'full', 'hashed'"),
        ({"kind": "joined", "dim": 5}, "dim: expected an even number for 'joined', got 5"),
        ({"kind": "hashed", "rows": 11}, "rows: expected a whole number of at most 10"),
    ],
)
def test_bad_tables_are_told(settings, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        IdTable(**{"size": 10, "dim": 4, **settings})


def test_ids_outside_the_table_are_told():
    table = IdTable(10, 4)
    for ids in (torch.tensor([10]), torch.tensor([-1])):
        with pytest.raises(ValueError, match=r"^ids: expected 0 to 9, got"):
            table(ids)
    with pytest.raises(TypeError, match=r"^ids: expected whole numbers, got torch.float32"):
        table(torch.ones(2))


@pytest.mark.parametrize("case", ["odd", "even"])
def test_levels_codes_and_gradients_are_those_of_the_fsq_code(case):
    quantizer = FSQ(LEVELS[f"{case}__levels"].tolist())
    x = torch.from_numpy(LEVELS["x"]).requires_grad_()
    vectors = quantizer(x)
    np.testing.assert_allclose(vectors.detach(), LEVELS[f"{case}__codes"], atol=1e-12)
    np.testing.assert_array_equal(quantizer.codes(vectors.detach()), LEVELS[f"{case}__indices"])
    vectors.sum().backward()
    np.testing.assert_allclose(x.grad, LEVELS[f"{case}__grad"], atol=1e-12)
    every = torch.arange(len(LEVELS[f"{case}__codebook"]))
    np.testing.assert_allclose(quantizer.vectors(every), LEVELS[f"{case}__codebook"], atol=1e-7)
    assert torch.equal(quantizer.codes(quantizer.vectors(every)), every)


def test_levels_that_cannot_be_are_told():
    with pytest.raises(ValueError, match=r"^levels: expected a whole number of at least 2, got 1"):
        FSQ([5, 1])
    with pytest.raises(ValueError, match=r"^levels: expected at least one number"):
        FSQ([])
    quantizer = FSQ([5, 5])
    with pytest.raises(ValueError, match=r"^x: expected floating \[\.\.\., 2\]"):
        quantizer(torch.ones(3, 3))
    with pytest.raises(ValueError, match=r"^x: expected finite numbers"):
        quantizer(torch.tensor([[torch.nan, 0.0]]))
    with pytest.raises(ValueError, match=r"^codes: expected whole numbers from 0 to 24"):
        quantizer.vectors(torch.tensor([25]))
    assert quantizer(torch.tensor([[1e4, -1e4]], dtype=torch.bfloat16)).tolist() == [[1.0, -1.0]]
