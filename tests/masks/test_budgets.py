"""Masks with one budget for a batch."""

import pytest
import torch

from vicinal.masks import MutualChoice, feature_choice, mutual_choice, zipf_budgets


def activations(b=6, f=9, seed=0):
    return torch.randn(b, f, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).relu()


def test_mutual_choice_takes_the_largest_of_all():
    z = activations()
    for budget in (0, 1, 7, 20, 54, 99):
        mask = mutual_choice(z, budget)
        assert int(mask.sum()) == min(budget, int((z > 0).sum()))
        if 0 < int(mask.sum()) < int((z > 0).sum()):
            assert z[mask].min() >= z[~mask].max()
    row = mutual_choice(z[:1] + 0.1, 1)
    assert row.nonzero()[:, 1].tolist() == [int(z[0].argmax())]
    ties = torch.ones(3, 2)
    assert mutual_choice(ties, 3).tolist() == [[True, True], [True, False], [False, False]]
    each_row = feature_choice(z.T, torch.full((6,), 2)).T  # k a row meet the budget of all, not the other way round
    assert z[each_row].sum() <= z[mutual_choice(z, 12)].sum()


def test_feature_choice_keeps_to_each_budget():
    z = activations()
    budgets = torch.tensor([0, 1, 2, 3, 4, 5, 6, 1, 2])
    mask = feature_choice(z, budgets)
    assert (mask.sum(0) == torch.minimum(budgets, (z > 0).sum(0))).all()
    for f in range(9):
        best = z[:, f].topk(int(budgets[f])).values
        assert z[mask[:, f], f].sum() == pytest.approx(float(best.sum()))
    assert feature_choice(torch.ones(3, 1), torch.tensor([2])).tolist() == [[True], [True], [False]]


def test_the_gradient_is_the_mask():
    z = activations().requires_grad_()
    for mask in (mutual_choice(z, 10), feature_choice(z, torch.full((9,), 2))):
        (grad,) = torch.autograd.grad((z * mask).sum(), z)
        assert torch.equal(grad, mask.double())


def test_budgets_of_zipf():
    density = torch.rand(12, generator=torch.Generator().manual_seed(0))
    for total in (0, 5, 30, 70, 72):
        for power in (0.0, 1.0, 2.5):
            budgets = zipf_budgets(density, total, rows=6, power=power)
            assert int(budgets.sum()) == total
            assert int(budgets.min()) >= 0
            assert int(budgets.max()) <= 6
            ordered = budgets[density.argsort(descending=True)]
            assert (ordered.diff() <= 0).all()
    assert zipf_budgets(density, 24, rows=6, power=0.0).tolist() == [2] * 12


def test_a_threshold_makes_rows_independent_afterwards():
    choose, z = MutualChoice(3, rate=0.5).double(), activations()
    first = choose(z)
    assert torch.equal(first, z * mutual_choice(z, 18))
    assert choose.threshold == z[mutual_choice(z, 18)].min()
    other = activations(seed=1)
    before = float(choose.threshold)
    choose(other)
    assert float(choose.threshold) == pytest.approx((before + float(other[mutual_choice(other, 18)].min())) / 2)
    copy = MutualChoice(3).double()
    copy.load_state_dict(choose.state_dict())
    copy.eval()
    rows = torch.cat([copy(z[[i]]) for i in range(6)])
    assert torch.equal(rows, copy(z))
    assert (copy(0 * z) == 0).all()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda z: mutual_choice(z[0], 2), "^activations: expected"),
        (lambda z: mutual_choice(z, -1), "^budget: expected"),
        (lambda z: feature_choice(z, torch.full((9,), 7)), "^budgets: expected numbers from 0 to 6"),
        (lambda z: feature_choice(z, torch.ones(9)), "^budgets: expected whole numbers"),
        (lambda z: zipf_budgets(z[0], 99, rows=6), "^total: expected"),
        (lambda z: MutualChoice(10)(z), "^k: expected at most 9"),
        (lambda z: MutualChoice(2).eval()(z), "^activations: expected a batch in training first"),
    ],
)
def test_what_does_not_fit_is_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call(activations())
