"""Scores of subsets that see what they were taken from."""

import itertools

import pytest
import torch
from torch import nn

from vicinal.encoders.sets import SubsetScore, mean_field

EXACT = {"rtol": 1e-12, "atol": 1e-12}
HALF = torch.full((2, 5), 0.5, dtype=torch.float64)


def normal(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def module(*, context=True, seed=0):
    torch.manual_seed(seed)
    return SubsetScore(3, hidden=8, context=context).double()


def chosen(*rows):
    return torch.tensor(rows, dtype=torch.bool)


def test_it_is_a_network_of_both_sums():
    f, v = module(), normal(0, 2, 4, 3)
    s = chosen([1, 0, 1, 0], [0, 0, 0, 0])
    sums = torch.stack([torch.cat([f.kappa(x[c]).sum(0), f.nu(x).sum(0)]) for x, c in zip(v, s, strict=True)])
    torch.testing.assert_close(f(v, s), f.rho(sums)[:, 0], **EXACT)
    several = torch.stack([s, ~s], dim=1)
    torch.testing.assert_close(f(v, several), torch.stack([f(v, s), f(v, ~s)], dim=1), **EXACT)


def test_order_and_padding_do_not_matter_and_what_was_left_does():
    f, v = module(), normal(1, 1, 4, 3)
    s, order = chosen([1, 1, 0, 0]), [2, 0, 3, 1]
    torch.testing.assert_close(f(v[:, order], s[:, order]), f(v, s), **EXACT)
    padded = torch.cat([v, torch.full((1, 2, 3), 1e6).double()], dim=1).requires_grad_()
    valid = chosen([1, 1, 1, 1, 0, 0])
    value = f(padded, chosen([1, 1, 0, 0, 0, 0]), valid)
    torch.testing.assert_close(value, f(v, s), **EXACT)
    value.sum().backward()
    assert not padded.grad[~valid].any()
    other = v.clone()
    other[0, 3] += 1
    assert not torch.allclose(f(other, s), f(v, s))
    plain = module(context=False)
    torch.testing.assert_close(plain(other, s), plain(v, s), **EXACT)


def test_a_sum_of_values_needs_no_draws():
    value = normal(2, 5)
    for samples in (1, 7, None):
        q = mean_field(lambda sets: sets.double() @ value, HALF, samples=samples)
        torch.testing.assert_close(q, value.sigmoid().expand(2, -1), **EXACT)


def test_all_subsets_are_the_mean_that_draws_come_near_to():
    f, v = module(), normal(3, 1, 5, 3)
    q, score = torch.rand(1, 5, generator=torch.Generator().manual_seed(1)).double(), lambda sets: f(v, sets)
    want = torch.zeros(5).double()
    for bits in itertools.product([0, 1], repeat=5):
        s = torch.tensor(bits).bool()
        chance = torch.where(s, q[0], 1 - q[0]).prod()
        for i in range(5):
            one = torch.arange(5) == i
            want[i] += chance * (f(v, (s | one)[None]) - f(v, (s & ~one)[None]))[0]
    torch.testing.assert_close(mean_field(score, q, samples=None)[0], want.sigmoid())
    drawn = mean_field(score, q, samples=4000, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(drawn[0], want.sigmoid(), rtol=0, atol=0.01)


@pytest.mark.slow
def test_it_learns_to_choose_what_differs_from_the_rest():
    """The elements whose sign the fewer of the set have: a score without the set knows less."""
    generator = torch.Generator().manual_seed(0)

    def draw(b):
        few = torch.rand(b, 1, generator=generator) < 0.5
        sign = torch.where(torch.arange(6) < 2, 1.0, -1.0) * torch.where(few, 1.0, -1.0)
        return sign[..., None] + 0.1 * torch.randn(b, 6, 1, generator=generator), (torch.arange(6) < 2).expand(b, -1)

    errors = []
    for context in (True, False):
        torch.manual_seed(0)
        f = SubsetScore(1, hidden=16, context=context)
        optimizer = torch.optim.Adam(f.parameters(), lr=1e-2)
        for _ in range(100):
            v, s = draw(32)
            q = mean_field(lambda sets: f(v, sets), torch.full((32, 6), 0.5), generator=generator)  # noqa: B023
            loss = nn.functional.binary_cross_entropy(q.clamp(1e-6, 1 - 1e-6), s.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        v, s = draw(200)
        q = mean_field(lambda sets: f(v, sets), torch.full((200, 6), 0.5), generator=generator)  # noqa: B023
        errors.append(float(((q > 0.5) != s).float().mean()))
    assert errors[0] < 0.02
    assert errors[1] > 0.03  # it sees of the others only what is drawn into the subset


def test_gradients_and_padding_of_the_step():
    f, v = module(), normal(4, 1, 4, 3)
    valid = chosen([1, 1, 1, 0])
    q = mean_field(lambda sets: f(v, sets, valid), torch.full((1, 4), 0.5), valid, samples=None)
    assert q[0, 3] == 0
    assert torch.autograd.gradcheck(lambda x: f(x, chosen([1, 0, 1, 0]), valid), (v.requires_grad_(),))


def test_what_is_not_there_cannot_be_chosen():
    f, v = module(), normal(5, 1, 3, 3)
    with pytest.raises(ValueError, match=r"^chosen: expected elements that are there"):
        f(v, chosen([1, 0, 1]), chosen([1, 1, 0]))
    with pytest.raises(ValueError, match=r"^chosen: expected boolean"):
        f(v, chosen([1, 0]))
    with pytest.raises(ValueError, match=r"^chances: expected \[b, n\] in \[0, 1\]"):
        mean_field(f, torch.full((1, 3), 1.5))
    with pytest.raises(ValueError, match=r"^elements: expected"):
        mean_field(f, torch.full((1, 13), 0.5), samples=None)
