"""Tables of ids and levels of vectors: values of public code, and what cannot be looked up."""

import numpy as np
import pytest
import torch

from vicinal.encoders import FSQ, IdTable, SelectedIdTable

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


def test_folded_tables_hold_the_budget_and_what_stays_is_unchanged(generator):
    counts = torch.rand(50, generator=generator)
    table = SelectedIdTable(counts, 6, blocks=4)
    ids = torch.arange(50)
    torch.testing.assert_close(table(ids), table.table)  # all weights are 1
    with torch.no_grad():
        table.selection.copy_(torch.randn(4, 6, generator=generator))
    assert counts[table.block == 0].min() >= counts[table.block == 3].max()
    torch.testing.assert_close(table.folded(300)(ids), table(ids))
    last = 301
    for budget in (300, 200, 77, 13):
        small = table.folded(budget)
        assert budget >= small.parameter_count() == sum(each.numel() for each in small.parameters()) <= last
        last = small.parameter_count()
        vectors, there = small(ids.view(5, 10)).view(50, 6), small.stays[small.block]
        torch.testing.assert_close(vectors, torch.where(there, table(ids), 0.0))
        assert sum(w * int((small.block == b).sum()) for b, w in enumerate(small.widths())) == small.parameter_count()
    cut = table.folded(77)
    least = table.selection.detach().abs()[cut.stays].min()
    rest = table.selection.detach().abs()[~cut.stays]
    assert int((rest > least).sum()) == 0
    again = SelectedIdTable(counts, 6, blocks=4).folded(cut.parameter_count() + 12)
    assert again(ids).shape == (50, 6)
    cut(ids).sum().backward()
    torch.testing.assert_close(cut.values.grad, torch.ones_like(cut.values))


def test_weights_learned_on_other_rows_leave_frequent_ids_more_dimensions(generator):
    """Labels of rare ids are noise: what is learned of them on some rows does not help on others."""
    counts = torch.tensor([40.0] * 10 + [2.0] * 60)
    truth = torch.randn(70, generator=generator) * (counts > 2)
    ids = torch.repeat_interleave(torch.arange(70), counts.long())
    labels = truth[ids] + 0.7 * torch.randn(len(ids), generator=generator)
    half = torch.arange(len(ids)) % 2 == 0
    torch.manual_seed(0)
    table = SelectedIdTable(counts, 4, blocks=7)
    steps = torch.optim.Adam([table.table], 0.05), torch.optim.SGD([table.selection], 0.03)
    for step in range(300):
        mine = half if step % 2 == 0 else ~half
        loss = (table(ids[mine]).sum(1) - labels[mine]).square().mean() + 0.01 * table.table.square().sum(1).mean()
        table.zero_grad()
        loss.backward()
        if step % 2:
            table.even_gradients()
            lengths = table.selection.grad.norm(dim=1)
            torch.testing.assert_close(lengths, torch.ones_like(lengths))
        steps[step % 2].step()
        with torch.no_grad():
            table.selection.clamp_(0, 1)
    weights = table.selection.detach().mean(1)
    assert float(weights[0]) > 3 * float(weights[1:].max())


@pytest.mark.parametrize(
    ("run", "sentence"),
    [
        (lambda: SelectedIdTable(torch.tensor([1.0, -1.0]), 2), "counts: expected numbers of at least 0"),
        (lambda: SelectedIdTable(torch.tensor([1.0, torch.nan]), 2), "counts: expected numbers of at least 0"),
        (lambda: SelectedIdTable(torch.ones(3), 2, blocks=4), "blocks: expected a whole number of at most 3"),
        (lambda: SelectedIdTable(torch.ones(3), 2, blocks=1).folded(7), "budget: expected a whole number of at most 6"),
        (
            lambda: SelectedIdTable(torch.ones(3), 2, blocks=1).folded(2),
            "budget: expected at least 3, one a row, got 2",
        ),
        (lambda: SelectedIdTable(torch.ones(3), 2, blocks=1)(torch.tensor([3])), "ids: expected 0 to 2"),
    ],
)
def test_bad_selections_are_told(run, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        run()
    table = SelectedIdTable(torch.ones(3), 2, blocks=1)
    with torch.no_grad():
        table.selection[0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"^selection: expected finite weights"):
        table.folded(3)
