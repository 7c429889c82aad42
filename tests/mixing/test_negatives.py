"""Hard unrelated rows by mixing others."""

import numpy as np
import pytest
import torch

from vicinal.losses import focal_nt_xent, nt_xent
from vicinal.mixing import append_negatives, draw_mixed_negatives, mix_negatives


def directions(*shape, seed=0):
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.nn.functional.normalize(x, dim=-1)


def test_a_mixture_of_two_equals_numpy_and_is_the_first_for_share_1():
    one, two, share = directions(5, 3, 4), directions(5, 3, 4, seed=1), torch.rand(5, 3, dtype=torch.float64)
    got = mix_negatives(one, two, share)
    mixed = share.numpy()[..., None] * one.numpy() + (1 - share.numpy()[..., None]) * two.numpy()
    np.testing.assert_allclose(got, mixed / np.linalg.norm(mixed, axis=-1, keepdims=True), rtol=1e-12)
    torch.testing.assert_close(mix_negatives(one, two, torch.ones(5, 3)), one)
    torch.testing.assert_close(mix_negatives(one, two, torch.zeros(5, 3)), two)


def test_a_mixture_scores_at_least_as_high_as_the_lower_of_its_parents():
    q = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    one, two = directions(400, 3), directions(400, 3, seed=1)
    score = mix_negatives(one, two, torch.rand(400, dtype=torch.float64)) @ q
    lower = torch.minimum(one @ q, two @ q)
    assert (score >= lower - 1e-12)[lower >= 0].all()
    assert (lower >= 0).sum() > 50


def test_opposite_rows_that_cancel_give_the_first():
    one = directions(3, 4)
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        leaf = one.detach().to(dtype, copy=True).requires_grad_()
        got = mix_negatives(leaf, -leaf.detach(), torch.full((3,), 0.5))
        torch.testing.assert_close(got, leaf.detach(), rtol=1e-2, atol=1e-2)
        got.sum().backward()
        assert leaf.grad.isfinite().all()


def test_drawn_mixtures_are_of_two_rows_of_the_same_query():
    negatives = torch.eye(6, dtype=torch.float64)[None].expand(50, 6, 6)
    mixed = draw_mixed_negatives(negatives, 3, generator=torch.Generator().manual_seed(0))
    assert mixed.shape == (50, 3, 6)
    assert ((mixed > 0).sum(-1) == 2).all()
    torch.testing.assert_close(mixed.norm(dim=-1), torch.ones(50, 3, dtype=torch.float64))
    again = draw_mixed_negatives(negatives, 3, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(again, mixed)
    assert (draw_mixed_negatives(negatives, 3, generator=torch.Generator().manual_seed(1)) != mixed).any()
    used = (mixed > 0).double().mean((0, 1))
    torch.testing.assert_close(used, torch.full((6,), 1 / 3, dtype=torch.float64), rtol=0, atol=0.12)


def test_one_hard_row_is_its_own_mixture():
    n = directions(4, 1, 5, seed=1)
    torch.testing.assert_close(draw_mixed_negatives(n, 2), n.expand(4, 2, 5))


def test_weights_and_shares_pass_no_gradient():
    n = directions(4, 6, 5, seed=1).requires_grad_()
    share = torch.full((4, 6), 0.3, requires_grad=True)
    mix_negatives(n, n.detach().flip(1), share).sum().backward()
    assert share.grad is None
    given = [n.detach().clone().requires_grad_(), n.detach().flip(1)]
    assert torch.autograd.gradcheck(lambda a: mix_negatives(a, given[1], torch.full((4, 6), 0.3)), (given[0],))


def test_mixtures_are_unrelated_columns_that_raise_the_loss_of_each_row():
    q, d, mixed = directions(4, 5), directions(4, 5, seed=1), directions(4, 1, 5, seed=2)
    scores, relation = q @ d.T, torch.eye(4, dtype=torch.float64)
    given = append_negatives(q, mixed, scores, relation, 1 - 0.5 * torch.eye(4))
    assert given.scores.dtype == torch.float64
    torch.testing.assert_close(given.scores[:, 4], (q * mixed[:, 0]).sum(1))
    assert (given.relation[:, 4] == 0).all()
    assert (given.weight[:, 4] == 1).all()
    torch.testing.assert_close(given.weight[:, :4], 1 - 0.5 * torch.eye(4, dtype=torch.float64))
    for loss in (nt_xent, focal_nt_xent):
        plain = loss(scores, relation, given.weight[:, :4], reduction="none")
        assert (loss(*given, reduction="none") > plain).all()


def test_mixing_refuses():
    n = directions(2, 3, 4)
    for call, kind, sentence in [
        (lambda: draw_mixed_negatives(n[:, :0]), ValueError, r"^negatives: expected \[b, m, d\] with at least one row"),
        (lambda: draw_mixed_negatives(n[0]), ValueError, r"^negatives: expected \[b, m, d\]"),
        (lambda: draw_mixed_negatives(n.long()), TypeError, r"^negatives: expected a floating dtype"),
        (lambda: draw_mixed_negatives(n, 0), ValueError, r"^number: expected a whole number of at least 1"),
        (lambda: draw_mixed_negatives(n, alpha=0), ValueError, r"^alpha: expected a number above 0"),
        (lambda: mix_negatives(n, n, torch.full((2, 3), 1.1)), ValueError, r"^share: expected numbers from 0 to 1"),
        (lambda: mix_negatives(n, n, torch.ones(2)), ValueError, r"^share: expected one for each of the rows"),
        (
            lambda: append_negatives(n[:, 0], n, torch.zeros(3, 2), torch.zeros(3, 2)),
            ValueError,
            r"^mixed: expected rows for each",
        ),
    ]:
        with pytest.raises(kind, match=sentence):
            call()
