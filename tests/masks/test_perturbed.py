"""The k highest under noise, and an ensemble whose members are chosen for each row."""

import math

import pytest
import torch
from torch import nn

from vicinal.heads import MemberSelection
from vicinal.masks import hard_topk, perturbed_topk

DOUBLE = torch.float64


def normal(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_choices_sum_to_k_and_without_noise_they_are_the_highest():
    scores = normal(0, 5, 7)
    scores[0, 1] = scores[0, 4]
    for k in (1, 3, 7):
        shares = perturbed_topk(scores, k, generator=seeded())
        torch.testing.assert_close(shares.sum(1), torch.full((5,), float(k), dtype=DOUBLE))
        assert ((shares >= 0) & (shares <= 1)).all()
        hard = hard_topk(scores, k)
        torch.testing.assert_close(hard.sum(1), torch.full((5,), float(k), dtype=DOUBLE))
        assert (scores[hard > 0].min() >= scores[0].min()) or k == 7
        torch.testing.assert_close(perturbed_topk(scores[1:], k, sigma=1e-9), hard[1:])
    assert torch.equal(perturbed_topk(scores, 3, generator=seeded(1)), perturbed_topk(scores, 3, generator=seeded(1)))
    assert perturbed_topk(scores.bfloat16(), 2).dtype == torch.float32
    assert perturbed_topk(1e4 * scores, 2).isfinite().all()


def test_of_two_columns_it_is_the_normal_distribution_of_their_difference():
    scores = torch.tensor([[0.3, 0.0]], dtype=DOUBLE).requires_grad_()
    share = perturbed_topk(scores, 1, sigma=0.5, samples=200_000, generator=seeded())
    z = 0.3 / (0.5 * math.sqrt(2))
    assert float(share[0, 0].detach()) == pytest.approx((1 + math.erf(z / math.sqrt(2))) / 2, abs=3e-3)
    share[0, 0].backward()
    slope = math.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) / (0.5 * math.sqrt(2))
    torch.testing.assert_close(scores.grad, torch.tensor([[slope, -slope]], dtype=DOUBLE), rtol=0, atol=0.01)


def test_the_gradient_pairs_choices_with_their_noise():
    scores, outer = normal(1, 4, 6).requires_grad_(), normal(2, 4, 6)
    perturbed_topk(scores, 2, sigma=0.7, samples=10, generator=seeded(3)).backward(outer)
    noise = torch.randn((5, 4, 6), generator=seeded(3), dtype=DOUBLE)
    noise = torch.cat([noise, -noise])
    chosen = torch.stack([hard_topk(scores + 0.7 * each, 2) for each in noise])
    want = torch.einsum("sbi,bi,sbj->bj", chosen, outer, noise) / (10 * 0.7)
    torch.testing.assert_close(scores.grad, want)


def test_all_columns_have_no_gradient_and_opposite_draws_vary_less():
    scores = normal(4, 3, 5).requires_grad_()
    perturbed_topk(scores, 5).backward(normal(5, 3, 5))
    assert not scores.grad.any()
    one, outer = normal(6, 1, 4), normal(7, 1, 4) + 5  # a constant in it says nothing
    ours, plain = [], []
    for seed in range(60):
        s = one.clone().requires_grad_()
        perturbed_topk(s, 2, samples=4, generator=seeded(seed)).backward(outer)
        ours.append(s.grad)
        noise = torch.randn((4, 1, 4), generator=seeded(seed), dtype=DOUBLE)
        chosen = torch.stack([hard_topk(one + 0.5 * each, 2) for each in noise])
        plain.append(torch.einsum("sbi,bi,sbj->bj", chosen, outer, noise) / (4 * 0.5))
    assert torch.stack(ours).var(0).sum() < torch.stack(plain).var(0).sum() / 2


def test_an_ensemble_learns_which_member_knows_which_rows():
    torch.manual_seed(0)
    x = torch.randn(400, 2)
    y = x.sum(1, keepdim=True)
    wrong = torch.randn(400, 4, 1, generator=seeded())
    knows = torch.stack([x[:, 0] > 0, x[:, 0] <= 0, x[:, 0] > 9, x[:, 0] > 9], dim=1)  # two know half each, two nothing
    predictions = torch.where(knows[..., None], y[:, None], wrong)
    selection = MemberSelection(2, 4, k=1, hidden=(16,))
    optimizer = torch.optim.Adam(selection.parameters(), lr=3e-2)
    for step in range(60):
        loss = nn.functional.mse_loss(selection(x, predictions, seeded(step)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    selection.eval()
    mean, best = (((p - y) ** 2).mean() for p in (predictions.mean(1), predictions[:, 0]))
    assert ((selection(x, predictions) - y) ** 2).mean() < 0.3 * min(mean, best)
    assert selection.choose(x).sum(1).eq(1).all()


def test_members_in_another_order_are_chosen_alike_and_all_of_them_are_the_mean():
    selection, x, f = MemberSelection(2, 4, k=2).double().eval(), normal(8, 5, 2), normal(9, 5, 4, 3)
    want, order = selection(x, f), [2, 0, 3, 1]
    with torch.no_grad():
        last = selection.network[-1]
        last.weight.copy_(last.weight[order])
        last.bias.copy_(last.bias[order])
    torch.testing.assert_close(selection(x, f[:, order]), want)
    torch.testing.assert_close(MemberSelection(2, 4, k=4).double()(x, f), f.mean(1))
    pruned = MemberSelection(0, 4, k=3).double()
    with torch.no_grad():
        pruned.scores.copy_(torch.tensor([0.0, 3.0, 1.0, 2.0]))
    torch.testing.assert_close(pruned.eval()(x, f), f[:, 1:].mean(1))


def test_what_cannot_be_chosen_is_refused():
    scores = torch.zeros(2, 3)
    for call, sentence in [
        (lambda: perturbed_topk(scores, 4), r"^k: expected"),
        (lambda: perturbed_topk(scores, 1, sigma=0.0), r"^sigma: expected"),
        (lambda: perturbed_topk(scores, 1, samples=3), r"^samples: expected an even number"),
        (lambda: perturbed_topk(scores[0], 1), r"^scores: expected floating \[b, n\]"),
        (lambda: MemberSelection(2, 3, k=4), r"^k: expected"),
        (lambda: MemberSelection(2, 3)(torch.zeros(2, 5), torch.zeros(2, 3, 1)), r"^rows: expected \[b, 2\]"),
        (lambda: MemberSelection(2, 3)(torch.zeros(2, 2), torch.zeros(2, 4, 1)), r"^predictions: expected \[2, 3, C\]"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            call()
