"""A bank row of weight w counts as w equal rows, in every head and readout."""

import pytest
import torch

from vicinal.heads import NONA, Ensemble, Kriging
from vicinal.heads.folds import FoldMembers
from vicinal.masks import SoftStep
from vicinal.masks.simplex import entmax15, of_repeated, softmax, sparsemax

COUNTS = torch.tensor([1.0, 3.0, 1.0, 2.0, 5.0, 1.0, 1.0], dtype=torch.float64)
each_map = pytest.mark.parametrize("simplex", [softmax, sparsemax, entmax15], ids=lambda one: one.__name__)


def data(width=3):
    generator = torch.Generator().manual_seed(0)
    queries, bank, labels = (torch.randn(*shape, generator=generator) for shape in ((5, width), (7, width), (7,)))
    return queries.double(), bank.double(), labels.double()


def repeated(rows):
    return rows.repeat_interleave(COUNTS.long(), dim=0)


def together(weights):
    """Weights of repeated rows, summed over the copies of each."""
    rows = repeated(torch.arange(len(COUNTS)))
    return torch.zeros(len(weights), len(COUNTS), dtype=weights.dtype).index_add_(1, rows, weights)


@each_map
def test_a_simplex_map_of_counts_is_that_of_scores_which_stand_there_so_often(simplex):
    scores = torch.randn(40, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    scores[3, 2], scores[4], scores[5] = -torch.inf, 1.0, torch.tensor([1e4, -1e4, 0, 1, 2, 3, 4])
    expected = together(simplex(repeated(scores.T).T))
    torch.testing.assert_close(of_repeated(simplex, scores, COUNTS), expected, atol=1e-9, rtol=0)


@each_map
def test_counts_below_one_still_sum_to_one_and_hidden_rows_have_nothing(simplex):
    scores = torch.randn(6, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    scores[0], scores[1, :6] = -torch.inf, -torch.inf
    weights = of_repeated(simplex, scores, COUNTS / 1000)
    sums = weights.sum(dim=1)
    torch.testing.assert_close(sums, torch.tensor([0.0, 1, 1, 1, 1, 1], dtype=torch.float64))
    assert weights[1, 6] == 1
    assert (weights >= 0).all()


@each_map
def test_the_gradient_of_a_map_of_counts_is_right(simplex):
    scores = torch.randn(4, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).requires_grad_()
    assert torch.autograd.gradcheck(lambda s: of_repeated(simplex, s, COUNTS), (scores,))


def test_a_map_of_the_users_own_has_no_counts():
    with pytest.raises(ValueError, match="simplex: expected softmax, sparsemax or entmax15"):
        NONA(simplex=lambda s: s.softmax(-1)).weights(*data()[:2], bank_weight=COUNTS)


@pytest.mark.parametrize("name", ["softmax", "sparsemax", "entmax15"])
@pytest.mark.parametrize("family", [None, "s1", "s2"])
def test_attention_to_rows_with_weights_is_attention_to_their_copies(name, family):
    queries, bank, labels = data()
    torch.manual_seed(0)
    head = NONA("l2", None if family is None else SoftStep(3, family=family), name).double()
    ids, groups = torch.tensor([0, 3, 9, 9, 9]), torch.arange(7)
    known = {"query_groups": ids, "bank_groups": groups}
    copies = {"query_groups": ids, "bank_groups": repeated(groups)}
    weights = head.weights(queries, bank, **known, bank_weight=COUNTS)
    torch.testing.assert_close(weights, together(head.weights(queries, repeated(bank), **copies)), atol=1e-9, rtol=0)
    prediction = head(queries, bank, labels, **known, bank_weight=COUNTS)
    torch.testing.assert_close(prediction, head(queries, repeated(bank), repeated(labels), **copies))
    best, positions = head.top_weights(queries, bank, 3, **known, bank_weight=COUNTS)
    torch.testing.assert_close(best, weights.topk(3).values)
    assert (weights.gather(1, positions.clamp(min=0)) == best)[positions >= 0].all()


def test_members_and_folds_weigh_rows_as_one_head_does():
    queries, bank, labels = data(6)
    torch.manual_seed(0)
    head = Ensemble([NONA("l2", SoftStep(3), "entmax15").double() for _ in range(2)])
    many = repeated(bank), repeated(labels)
    torch.testing.assert_close(head(queries, bank, labels, bank_weight=COUNTS), head(queries, *many))
    weights = head.weights(queries, bank, bank_weight=COUNTS)
    torch.testing.assert_close(weights @ labels, head(queries, *many))
    members, folds = FoldMembers(head, 2, 2), torch.tensor([0, 1, 0, 1, 0, 1, 1])
    part = members.predict(0, queries, bank, labels, folds, bank_weight=COUNTS)
    torch.testing.assert_close(part, members.predict(0, queries, *many, repeated(folds)))
    ids = torch.arange(7)
    own = {"query_groups": ids, "bank_groups": ids, "bank_weight": COUNTS}
    copies = {"query_groups": repeated(ids), "bank_groups": repeated(ids)}
    one, valid = members.training_predictions(bank, labels, folds, **own)
    several, _ = members.training_predictions(*many, repeated(folds), **copies)
    torch.testing.assert_close(repeated(one)[repeated(valid)], several[repeated(valid)])


@pytest.mark.parametrize("convex", [True, False])
@pytest.mark.parametrize("linear", [0, 1])
def test_kriging_from_rows_with_weights_is_kriging_from_their_copies(convex, linear):
    queries, bank, labels = data()
    head = Kriging(k=20, scale=2.0, noise=0.4, convex=convex, linear=linear)
    one = head.local_weights(queries, bank, bank_weight=COUNTS)
    many = head.local_weights(queries, repeated(bank))
    torch.testing.assert_close(one.mean(labels), many.mean(repeated(labels)), atol=1e-6, rtol=0)
    torch.testing.assert_close(one.variance, many.variance, atol=1e-6, rtol=0)
    torch.testing.assert_close(one.weights.sum(dim=1), torch.ones(5, dtype=torch.float64))


def test_weights_of_another_form_are_refused():
    queries, bank, _ = data()
    for head in (NONA(), Kriging(3)):
        with pytest.raises(ValueError, match=r"bank_weight: expected shape \(7,\), got \(6,\)"):
            head.weights(queries, bank, bank_weight=COUNTS[:6])
        with pytest.raises(TypeError, match="bank_weight: expected a floating tensor"):
            head.weights(queries, bank, bank_weight=torch.ones(7, dtype=torch.int64))
