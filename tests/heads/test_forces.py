"""Section 4.1 and appendix D of the NONA paper: terms of pairs and of triplets, their slopes, and the best weights."""

import itertools

import numpy as np
import pytest
import torch

from vicinal.estimators import NeighborRegressor
from vicinal.heads import best_weights, forces
from vicinal.masks import entmax15, softmax, sparsemax

MAPS = {"softmax": softmax, "entmax15": entmax15, "sparsemax": sparsemax}


def drawn(generator, b=4, n=6):
    scores = 2 * torch.randn(b, n, generator=generator, dtype=torch.float64)
    return scores, *(torch.randn(size, generator=generator, dtype=torch.float64) for size in (n, b))


def in_loops(p, labels, y):
    """The terms, by every pair and every ordered pair of different neighbors."""
    pairs, triplets = np.zeros_like(p), np.zeros_like(p)
    for i, j in itertools.product(range(len(y)), range(len(labels))):
        pairs[i, j] = p[i, j] ** 2 * (y[i] - labels[j]) ** 2
        for k in range(len(labels)):
            if k != j:
                triplets[i, j] += p[i, j] * p[i, k] * (y[i] - labels[j]) * (y[i] - labels[k])
    return pairs, triplets


@pytest.mark.parametrize("simplex", MAPS)
def test_terms_are_those_of_the_paper_and_slopes_those_of_the_scores(simplex, generator):
    scores, labels, y = drawn(generator)
    scores.requires_grad_()
    p = MAPS[simplex](scores)
    got = forces(p.detach(), labels, y, simplex)
    want = in_loops(p.detach().numpy(), labels.numpy(), y.numpy())
    np.testing.assert_allclose(got.pairs.numpy(), want[0], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(got.triplets.numpy(), want[1], rtol=1e-9, atol=1e-14)
    errors = (y - p @ labels).square()
    torch.testing.assert_close((got.pairs + got.triplets).sum(1), errors.detach())
    by_pairs = torch.autograd.grad((p * (y[:, None] - labels)).square().sum(), scores, retain_graph=True)[0]
    by_error = torch.autograd.grad(errors.sum(), scores)[0]
    torch.testing.assert_close(got.pull_pairs, -by_pairs)
    torch.testing.assert_close(got.pull, -by_error)
    torch.testing.assert_close(got.pull_triplets, by_pairs - by_error)
    assert (got.pull.sum(1).abs() < 1e-12).all()


def test_the_paper_counts_triplets_twice():
    """Two neighbors of weight 1/2 with gaps 1 and -1: the error is 0; with the printed factor 2 it would be -1/2."""
    p, labels, y = torch.tensor([[0.5, 0.5]]), torch.tensor([-1.0, 1.0]), torch.tensor([0.0])
    got = forces(p, labels, y)
    assert got.pairs.sum() == 0.5
    assert got.triplets.sum() == -0.5
    assert (p @ labels - y).square() == 0
    assert got.pairs.sum() + 2 * got.triplets.sum() == -0.5


def test_a_row_is_pulled_where_its_label_lies_on_the_side_of_the_truth():
    got = forces(torch.tensor([[0.25, 0.25, 0.5]]), torch.tensor([0.0, 4.0, 2.0]), torch.tensor([3.0]))
    assert got.pull.tolist() == [[-1.0, 1.0, 0.0]]  # 2 (3 - 2) p (y_j - 2)
    flat = forces(torch.tensor([[0.5, 0.5]]), torch.tensor([1e4, 1e4]), torch.tensor([1e4]))
    assert all((part == 0).all() for part in flat)
    alone = forces(torch.tensor([[1.0]]), torch.tensor([1.0]), torch.tensor([3.0]), "entmax15")
    assert (alone.pairs.item(), alone.triplets.item(), alone.pull.item()) == (4.0, 0.0, 0.0)
    with pytest.raises(ValueError, match=r"^target: expected \[b\] for weights"):
        forces(torch.ones(2, 1), torch.ones(1), torch.ones(3))
    with pytest.raises(ValueError, match="simplex: expected one of"):
        forces(torch.ones(1, 1), torch.ones(1), torch.ones(1), "topk")


def test_best_weights_have_no_better_rival(generator):
    r"""$(\sum_j p_j (y - y_j))^2$ over 20,000 points of the simplex of mass R is nowhere lower."""
    labels = torch.tensor([0.9, -0.3, 0.1, 0.5, 0.1], dtype=torch.float64)
    y = torch.tensor([-1.0, -0.3, -0.2, 0.1, 0.3, 0.8, 2.0], dtype=torch.float64)
    for mass in (1.0, 0.4):
        p = best_weights(labels, y, mass)
        assert (p >= 0).all()
        torch.testing.assert_close(p.sum(1), torch.full((7,), mass, dtype=torch.float64))
        value = (p * (y[:, None] - labels)).sum(1).square()
        trials = torch.from_numpy(np.random.default_rng(0).dirichlet(np.full(5, 0.4), 20_000)) * mass
        rivals = (trials @ (y[None] - labels[:, None])).square()
        assert (value <= rivals.amin(0) + 1e-15).all()
        assert ((p > 0).sum(1) <= 3).all()  # the two of equal labels are one


def test_best_weights_are_the_closed_form_of_appendix_d():
    labels = torch.tensor([0.0, 1.0, 3.0, 4.0], dtype=torch.float64)
    p = best_weights(labels, torch.tensor([-2.0, 0.25, 2.5, 4.0, 9.0], dtype=torch.float64), 0.8)
    want = [[0.8, 0, 0, 0], [0.6, 0.2, 0, 0], [0, 0.2, 0.6, 0], [0, 0, 0, 0.8], [0, 0, 0, 0.8]]
    torch.testing.assert_close(p, torch.tensor(want, dtype=torch.float64))
    y, j, k = 2.5, 1, 2  # the triplet of section 4.1
    assert (p[2, j] / p[2, k]).item() == pytest.approx((labels[k] - y) / (y - labels[j]))
    same = best_weights(torch.tensor([1.0, 1.0, 2.0]), torch.tensor([1.0, 1.5]))
    assert same.tolist() == [[0.5, 0.5, 0.0], [0.25, 0.25, 0.5]]
    with pytest.raises(ValueError, match="mass: expected a number from 0 to 1"):
        best_weights(labels, labels, 2.0)
    with pytest.raises(ValueError, match="labels: expected"):
        best_weights(torch.ones(0), labels)


@pytest.mark.sweep(9)
@pytest.mark.parametrize("members", [1, 2])
def test_a_fitted_network_says_what_pulls_a_row(members):
    x = np.linspace(0, 6, 60)[:, None]
    settings = {"metric": "network", "readout": "attention", "simplex": "entmax15", "mask": "s2", "hidden": (8, 2)}
    model = NeighborRegressor(members=members, max_epochs=2, **settings).fit(x, np.sin(x[:, 0]))
    got = model.forces(x[3:5], np.sin(x[3:5, 0]), k=100, ids=[3, 4])
    assert all(n.id != row for row, one in zip((3, 4), got, strict=True) for n in one.neighbors if n.weight)
    heads = getattr(model.network_.head, "heads", [model.network_.head])
    parts = torch.from_numpy(model.embed(x)).chunk(members, dim=1)
    labels = model.bank_.labels
    for row, one in zip((3, 4), got, strict=True):
        want, pull = 0.0, torch.zeros(60, dtype=torch.float64)
        for head, rows in zip(heads, parts, strict=True):
            ids = {"query_ids": torch.tensor([row]), "bank_ids": torch.arange(60)}
            p = head.weights(rows[row : row + 1], rows, **ids).detach()
            want += float((p @ labels - labels[row]).square()) / members
            root = p.sqrt() * (p > 0)
            slope = -2 * (labels[row] - p @ labels) * labels
            pull -= (root * (slope - (root * slope).sum() / root.sum()))[0] / members
        assert one.error == pytest.approx(want, rel=1e-6)
        assert one.pairs + one.triplets == pytest.approx(want, rel=1e-6)
        for n in one.neighbors:
            assert n.pull == pytest.approx(pull[n.id].item(), rel=1e-4, abs=1e-7)
            assert n.label == np.sin(x[n.id, 0])
        sizes = [abs(n.pull) for n in one.neighbors]
        assert sizes == sorted(sizes, reverse=True)
    assert str(model.forces(x[:1], [9.0], k=2)[0]).startswith("error ")
    with pytest.raises(ValueError, match=r"^forces: expected readout='attention'"):
        NeighborRegressor(metric="kernel").fit(x, np.sin(x[:, 0])).forces(x[:1], [0.0])
