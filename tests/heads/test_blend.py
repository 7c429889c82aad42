"""The mean of two heads as one set of weighted rows: equal to the mean of what both say, and to its own parts."""

import copy

import pytest
import torch

from vicinal.heads import Comparables, Kriging
from vicinal.heads.blend import Blend

ROWS, WIDTHS = 40, [5, 4]


def trended(k, trend, targets=1, noise=0.3):
    head = Comparables(k, noise=noise, trend=trend, targets=targets).double()
    head.base.copy_(torch.linspace(1, 2, targets))
    head.unit.fill_(1.5)
    return head


CASES = {
    "two trends": lambda: (trended(6, 3), trended(9, 2)),
    "a trend, and labels as they are": lambda: (trended(6, 3), Kriging(7)),
    "labels as they are, and a trend": lambda: (Kriging(7), trended(9, 2)),
    "signed weights of a few rows": lambda: (trended(6, 3), Kriging(12, convex=False, linear=2)),
    "signed weights of all rows": lambda: (trended(6, 3), Kriging(5, convex=False, linear=2, whole_up_to=ROWS)),
    "several targets": lambda: (trended(6, 2, 2), trended(9, 1, 2)),
}


@pytest.fixture(params=CASES)
def heads(request):
    return CASES[request.param]()


def data(heads, seed=0):
    draw = torch.Generator().manual_seed(seed)
    bank, queries = (torch.randn(n, sum(WIDTHS), generator=draw, dtype=torch.float64) for n in (ROWS, 8))
    targets = next(head.targets for head in heads if isinstance(head, Comparables))
    labels = torch.randn(ROWS, targets, generator=draw, dtype=torch.float64)
    known = {"query_ids": torch.arange(8), "bank_ids": torch.arange(ROWS)}
    known["bank_weight"] = torch.rand(ROWS, generator=draw).double() + 0.5
    return queries, bank, labels if targets > 1 else labels[:, 0], known


def alone(heads, queries, bank, labels, known):
    """What each head says by itself."""
    parts = zip(heads, torch.split(queries, WIDTHS, dim=1), torch.split(bank, WIDTHS, dim=1), strict=True)
    return [head(some, rows, labels, **known) for head, some, rows in parts]


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_it_is_the_weighted_mean_of_both(heads, share):
    queries, bank, labels, known = data(heads)
    first, second = alone(heads, queries, bank, labels, known)
    said = Blend(heads, WIDTHS, share)(queries, bank, labels, **known)
    torch.testing.assert_close(said, share * first + (1 - share) * second, rtol=0, atol=1e-10)


def test_a_row_stands_once_with_the_weights_of_both(heads):
    queries, bank, _, known = data(heads)
    head = Blend(heads, WIDTHS, 0.3)
    local = head.local_weights(queries, bank, **known)
    for places in local.positions:
        there = places[places >= 0]
        assert len(set(there.tolist())) == len(there)
    parts = zip(heads, torch.split(queries, WIDTHS, dim=1), torch.split(bank, WIDTHS, dim=1), strict=True)
    first, second = (one.weights(some, rows, **known) for one, some, rows in parts)
    torch.testing.assert_close(head.weights(queries, bank, **known), 0.3 * first + 0.7 * second, rtol=0, atol=1e-10)
    assert bool((local.positions != torch.arange(8)[:, None]).logical_or(local.weights == 0).all())


def test_terms_of_the_trend_sum_to_what_it_says_and_to_what_moves_each_row(heads):
    queries, bank, _, known = data(heads)
    head = Blend(heads, WIDTHS, 0.3)
    local = head.local_weights(queries, bank, **known).strongest(7)
    terms = head.trend_terms(queries, bank[local.positions.clamp(min=0)], local.shares)
    slack = 1 - head.local_weights(queries, bank, **known).weights.sum(dim=1)
    said, moves = terms.base + terms.columns.sum(dim=2), terms.differences.sum(dim=3)
    there = local.positions >= 0
    trend = local.trend.reshape(said.shape)
    torch.testing.assert_close(slack[:, None] * said, slack[:, None] * trend, rtol=0, atol=1e-10)
    torch.testing.assert_close(moves[there], local.moves.reshape(moves.shape)[there], rtol=1e-9, atol=1e-9)


def test_contributions_are_of_both_trends_each_by_its_share():
    heads = trended(6, 3), trended(9, 2)
    bank = data(heads)[1]
    each = Blend(heads, WIDTHS, 0.25).contributions(bank)
    parts = torch.split(bank, WIDTHS, dim=1)
    torch.testing.assert_close(each[..., :3], 0.25 * heads[0].contributions(parts[0]))
    torch.testing.assert_close(each[..., 3:], 0.75 * heads[1].contributions(parts[1]))


def test_rescaled_and_for_one_target_it_is_so_of_both():
    heads = trended(6, 2, 2), trended(9, 1, 2)
    queries, bank, labels, known = data(heads)
    head, other = Blend(heads, WIDTHS, 0.3), copy.deepcopy(Blend(heads, WIDTHS, 0.3))
    said = head(queries, bank, labels, **known)
    one = head.of_target(1, 0.0, 4.0)(queries, bank, 4 * labels[:, 1], **known)
    torch.testing.assert_close(one, 4 * said[:, 1], rtol=0, atol=1e-10)
    factor, offset = torch.tensor([2.0, 3.0]).double(), torch.tensor([1.0, -1.0]).double()
    other.rescale(factor, offset)
    torch.testing.assert_close(
        other(queries, bank, factor * labels + offset, **known), factor * said + offset, rtol=0, atol=1e-10
    )


@pytest.mark.parametrize("some", [(Kriging(3), Kriging(3)), (trended(3, 2),)])
def test_other_heads_are_refused(some):
    with pytest.raises(ValueError, match=r"^heads: expected two, one of them with a trend"):
        Blend(some, WIDTHS)


def test_terms_need_the_shares_of_the_weights():
    heads = trended(6, 3), trended(9, 2)
    queries, bank = data(heads)[:2]
    with pytest.raises(ValueError, match=r"^shares: expected those of the weights, got None"):
        Blend(heads, WIDTHS).trend_terms(queries, bank[None, :3].expand(8, 3, -1), None)
