"""Losses that look at the order of scores: alone, in blocks, and in a compiled graph."""

import pytest
import torch

from vicinal import losses
from vicinal.blockwise import block_policy
from vicinal.losses import EmbeddingLoss

pytestmark = pytest.mark.sweep(3)

NAMES = ("triplet", "adore", "rank_n_contrast", "soft_topk")
traced = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's own


def batch(name, rows=7, columns=9):
    generator = torch.Generator().manual_seed(3)
    scores = torch.randn(rows, columns, dtype=torch.float64, generator=generator)
    relation = torch.rand(rows, columns, dtype=torch.float64, generator=generator).mul(4).floor() / 4
    weight = (torch.rand(rows, columns, dtype=torch.float64, generator=generator) < 0.8).double()
    return scores, -relation if name == "rank_n_contrast" else relation * (relation > 0.3), weight


def value_and_slope(loss, scores, *given):
    leaf = scores.clone().requires_grad_()
    value = loss(leaf, *given)
    return value.detach(), *torch.autograd.grad(value.sum(), leaf)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("reduction", ["none", "mean_nonzero"])
def test_blocks_of_rows_change_nothing(name, reduction):
    scores, relation, weight = batch(name, rows=70)
    loss = lambda *given: getattr(losses, name)(*given, reduction=reduction)
    whole = value_and_slope(loss, scores, relation, weight)
    with block_policy(sort_entries=1):
        torch.testing.assert_close(value_and_slope(loss, scores, relation, weight), whole)


@pytest.mark.parametrize("name", NAMES)
def test_no_weight_is_a_weight_of_one(name):
    scores, relation, weight = batch(name)
    loss = getattr(losses, name)
    found = value_and_slope(loss, scores, relation)
    torch.testing.assert_close(found, value_and_slope(loss, scores, relation, torch.ones_like(weight)))


@pytest.mark.parametrize("name", ["adore", "rank_n_contrast", "soft_topk"])
@pytest.mark.parametrize("factor", [1.0, 900.0])
def test_gradient_of_scores_far_apart(name, factor):
    scores, relation, weight = batch(name)
    settings = {"alpha": 2.0 / factor} if name == "soft_topk" else {}
    loss = getattr(losses, name)
    assert torch.autograd.gradcheck(
        lambda s: loss(factor * s, relation, weight, **settings), (scores.requires_grad_(),)
    )


@pytest.mark.parametrize("name", ["adore", "rank_n_contrast"])
def test_logits_near_and_far_agree(name):
    scores, relation, weight = batch(name)
    far = torch.cat([scores, torch.linspace(-2000, 2000, 9, dtype=torch.float64)[None]])  # one row far for all
    relation, weight = (torch.cat([each, each[:1]]) for each in (relation, weight))
    loss = lambda *given: getattr(losses, name)(*given, reduction="none")
    alone = value_and_slope(loss, scores, relation[:-1], weight[:-1])
    beside = value_and_slope(loss, far, relation, weight)
    torch.testing.assert_close([each[:-1] for each in beside], list(alone), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", NAMES)
def test_a_relation_that_needs_a_gradient_has_it_by_the_formula(name):
    scores, relation, weight = batch(name)
    loss = lambda s, r: getattr(losses, name)(s, r, weight)
    torch.testing.assert_close(loss(scores, relation.clone().requires_grad_()).detach(), loss(scores, relation))
    if name != "rank_n_contrast":  # only the order of its relation counts
        soft = (relation * 0.5 + 0.2).requires_grad_()
        assert torch.autograd.gradcheck(loss, (scores.requires_grad_(), soft))


@pytest.mark.parametrize("settings", [{}, {"cut": 3, "temperature": 0.5}], ids=str)
def test_adore_is_its_formula(settings):
    scores, relation, weight = batch("adore")
    scores[:, 3], relation[0] = scores[:, 2], 0
    cut, temperature = settings.get("cut", 9), settings.get("temperature", 1.0)
    falling = torch.where(weight > 0, -scores, torch.inf)
    ahead = (falling[:, None] < falling[..., None]).sum(-1) + ((falling[:, None] == falling[..., None]).sum(-1) + 1) / 2
    worth = torch.where(ahead <= cut, 1 / ahead, 0.0)
    gain = (worth[:, None] - worth[..., None]).abs() * torch.nn.functional.softplus(
        (scores[:, None] - scores[..., None]) / temperature
    )
    positive, negative = weight * relation, weight * (1 - relation)
    mass = positive.sum(-1) * negative.sum(-1)
    want = torch.einsum("bp,bn,bpn->b", positive, negative, gain) / torch.where(mass > 0, mass, 1.0)
    torch.testing.assert_close(losses.adore(scores, relation, weight, reduction="none", **settings), want)


@pytest.mark.sweep(9)
@traced
@pytest.mark.parametrize("kind", ["all", "hard", "semi-hard"])
def test_triplets_compiled(kind):
    torch._dynamo.reset()
    given = batch("triplet")
    loss = lambda *given: losses.triplet(*given, triplets=kind)
    made = torch.compile(loss, backend="eager", fullgraph=True)
    torch.testing.assert_close(value_and_slope(made, *given), value_and_slope(loss, *given))


@pytest.mark.slow
@traced
@pytest.mark.parametrize("names", [("supcon", "triplet"), ("multi_similarity", "contrastive"), ("adore", "soft_topk")])
def test_compiled_criteria_are_told_apart(names):
    """All pair losses are made by one function; a compiled graph of one once served another of the same facts."""
    torch._dynamo.reset()
    generator = torch.Generator().manual_seed(0)
    x, labels = torch.randn(12, 5, generator=generator), torch.arange(12) // 3
    for name in names:
        loss = EmbeddingLoss(name)
        made = torch.compile(loss, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(value_and_slope(made, x, labels), value_and_slope(loss, x, labels))


@pytest.mark.parametrize("factor", [1.0, 900.0])
def test_equally_far_columns_are_contrasted_too(factor):
    scores, relation, weight = batch("rank_n_contrast", rows=4, columns=6)
    scores = factor * scores
    as_far = (relation[:, None] <= relation[..., None]) & (weight > 0)[:, None]  # [b, j, k]
    terms = torch.where(as_far, scores[:, None] / 2, -torch.inf).logsumexp(-1) - scores / 2
    want = torch.where(weight > 0, terms, 0.0).sum(-1)
    got = losses.rank_n_contrast(scores, relation, weight, reduction="none")
    torch.testing.assert_close(got, want)


def test_gaps_beyond_the_span_count_as_the_span():
    from vicinal.losses.histograms import gap_histograms

    positive = torch.tensor([[1.0, 0.0, 0.0]])
    _, gaps, _ = gap_histograms(torch.tensor([[0.0, 3.0, -5.0]]), 1 - positive, positive, 1.0, 4)
    assert gaps.tolist() == [[-1.0, 0.0, 0.0, 1.0]]
