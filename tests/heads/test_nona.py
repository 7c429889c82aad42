"""NONA against numpy over similarities, masks, extents and simplex maps; targets, parts of one's own, gradients."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from references import nona as reference
from vicinal.core import entries
from vicinal.heads import NONA
from vicinal.masks import SoftStep, TopK

pytestmark = pytest.mark.sweep(3)

DIM = 3
SIMILARITIES = [entry.name for entry in entries("similarity")]
SIMPLEX = [entry.name for entry in entries("simplex")]
MASKS = {
    "none": lambda: None,
    "s1-all": lambda: SoftStep(DIM, "s1", extent="all", eps=1e-4),
    "s1-admissible": lambda: SoftStep(DIM, "s1", eps=1e-4),
    "s2-all": lambda: SoftStep(DIM, "s2", "global", "all"),
    "s2-admissible": lambda: SoftStep(DIM, "s2"),
    "topk": lambda: TopK(3),
}
quick = settings(deadline=None, derandomize=True, max_examples=15)


def rows(seed, n, d=DIM, dtype=torch.float64):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def head(similarity="l2", mask="none", simplex="softmax", seed=0):
    """NONA in float64 with parameters drawn at random."""
    made = NONA(similarity, MASKS[mask](), simplex).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return made


def mass_in_numpy(mask, queries):
    """The mask of a head as the reference wants it."""
    if mask is None:
        return reference.no_mass
    if isinstance(mask, TopK):
        return reference.top_k(mask.k)
    if mask.parameters_from == "global":
        logits = np.tile(mask.logits.detach().numpy(), (len(queries), 1))
    else:
        logits = queries.numpy() @ mask.projection.weight.detach().numpy().T + mask.projection.bias.detach().numpy()
    shapes = mask.eps + (1 - 2 * mask.eps) / (1 + np.exp(-logits))
    return reference.softstep(shapes, family=mask.family, extent=mask.extent, eps=mask.eps)


def allowed_in_numpy(query_ids, bank_ids, query_groups=None, bank_groups=None):
    allowed = query_ids.numpy()[:, None] != bank_ids.numpy()
    if query_groups is not None:
        allowed &= query_groups.numpy()[:, None] != bank_groups.numpy()
    return allowed


@pytest.mark.parametrize(("similarity", "mask", "simplex"), list(itertools.product(SIMILARITIES, MASKS, SIMPLEX)))
def test_equals_numpy_reference(similarity, mask, simplex):
    """A batch that is its own bank, with ids and groups: two equal rows, one group of three, one query from outside."""
    bank = rows(0, 9)
    bank[4] = bank[7]
    queries = torch.cat([bank, rows(1, 1)])
    ids, groups = torch.arange(10) * 3, torch.tensor([0, 1, 2, 0, 3, 4, 0, 5, 6, 9])
    labels = rows(2, 9, 1)[:, 0]
    made = head(similarity, mask, simplex)
    keys = {"query_ids": ids, "bank_ids": ids[:9], "query_groups": groups, "bank_groups": groups[:9]}
    weights = made.weights(queries, bank, **keys).detach().numpy()
    allowed = allowed_in_numpy(ids, ids[:9], groups, groups[:9])
    matrix = reference.scores(similarity, queries.numpy(), bank.numpy())
    want = reference.head_weights(matrix, allowed, mass_in_numpy(made.mask, queries), getattr(reference, simplex))
    np.testing.assert_allclose(weights, want, rtol=1e-8, atol=1e-11)
    prediction = made(queries, bank, labels, **keys).detach().numpy()
    np.testing.assert_allclose(prediction, want @ labels.numpy(), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("mask", MASKS)
def test_several_targets_are_the_single_targets_stacked(mask):
    made, queries, bank, labels = head(mask=mask), rows(0, 4), rows(1, 8), rows(2, 8, 5)
    together = made(queries, bank, labels)
    assert together.shape == (4, 5)
    torch.testing.assert_close(together, torch.stack([made(queries, bank, column) for column in labels.T], dim=1))


@pytest.mark.parametrize("simplex", SIMPLEX)
@pytest.mark.parametrize("mask", MASKS)
def test_one_hot_labels_give_probabilities(mask, simplex):
    classes = nn.functional.one_hot(torch.tensor([0, 1, 2, 1, 0, 2, 2, 1]), 4).double()
    got = head(mask=mask, simplex=simplex)(rows(0, 5), rows(1, 8), classes)
    assert (got >= 0).all()
    torch.testing.assert_close(got.sum(dim=-1), torch.ones(5, dtype=torch.float64))
    assert (got[:, 3] == 0).all()  # a class without a row gets nothing


@pytest.mark.parametrize("simplex", SIMPLEX)
@pytest.mark.parametrize("mask", MASKS)
@quick
@given(seed=st.integers(0, 10_000), size=st.sampled_from([0.01, 1.0, 100.0]))
def test_prediction_lies_in_the_hull_of_admissible_labels(mask, simplex, seed, size):
    bank, labels = size * rows(seed, 7), rows(seed + 1, 7, 1)[:, 0]
    groups = torch.tensor([0, 0, 1, 1, 2, 3, 4])
    made = head(mask=mask, simplex=simplex, seed=seed)
    got = made(bank, bank, labels, query_groups=groups, bank_groups=groups)
    for i in range(7):
        others = labels[groups != groups[i]]
        assert others.min() - 1e-12 <= got[i] <= others.max() + 1e-12


@pytest.mark.parametrize("mask", MASKS)
def test_a_constant_label_is_predicted_exactly(mask):
    got = head(mask=mask)(rows(0, 4), rows(1, 8), torch.full((8,), 0.25, dtype=torch.float64))
    torch.testing.assert_close(got, torch.full((4,), 0.25, dtype=torch.float64), rtol=0, atol=1e-15)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("mask", MASKS)
def test_gradcheck_with_self_masked(similarity, mask):
    """Gradients reach each row both as a query and as a bank row."""
    made = head(similarity, mask, seed=3)
    ids = torch.arange(6)

    def predict(bank, labels):
        return made(bank, bank, labels, query_ids=ids, bank_ids=ids)

    assert torch.autograd.gradcheck(predict, (rows(4, 6).requires_grad_(), rows(5, 6, 2).requires_grad_()))


@pytest.mark.parametrize("extent", ["all", "admissible"])
@pytest.mark.parametrize("family", ["s1", "s2"])
def test_gradcheck_with_one_admissible_neighbor(family, extent):
    made = NONA(mask=SoftStep(DIM, family, extent=extent)).double()
    groups = torch.tensor([0, 0, 0, 0, 1])
    keys = {"query_groups": groups[:4], "bank_groups": groups}

    def predict(bank):
        return made(bank[:4], bank, torch.arange(5.0).double(), **keys)

    bank = rows(6, 5).requires_grad_()
    assert predict(bank).tolist() == [4.0] * 4
    assert torch.autograd.gradcheck(predict, (bank,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [1e4, 1.0, 0.0])
@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("mask", MASKS)
def test_values_and_gradients_are_finite_for_rows_of_any_size(similarity, mask, dtype, size):
    """Coincident rows, a row of zeros, flat rows (size 0) and one admissible neighbor."""
    if size == 1e4 and dtype == torch.float16 and "dot" in similarity:
        size = 100.0  # gradients are as large as the rows times the labels, above the largest float16
    base = torch.tensor([[1.0, -1, 0], [1, -1, 0], [0, 0, 0], [-1, 1, 0.5], [1, 1, 1]])
    bank = (size * base).to(dtype).requires_grad_()
    labels = torch.linspace(0, 1, 5).to(dtype).requires_grad_()
    made = NONA(similarity, MASKS[mask]()).to(dtype)
    ids, groups = torch.arange(5), torch.tensor([0, 1, 2, 0, 0])
    prediction = made(bank, bank, labels, query_ids=ids, bank_ids=ids, query_groups=groups, bank_groups=groups)
    assert prediction.isfinite().all()
    prediction.square().sum().backward()
    for tensor in (bank, labels, *made.parameters()):
        if tensor.grad is not None:
            assert tensor.grad.isfinite().all()


def test_autocast_leaves_the_arithmetic_in_float32():
    queries, bank, labels = rows(0, 4).float(), rows(1, 8).float(), rows(2, 8, 2).float()
    made = head(mask="s2-admissible").float()
    want = made(queries, bank, labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = made(queries, bank, labels)
    assert torch.equal(got, want)


def test_chunks_of_queries_give_the_same_numbers():
    made, queries, bank, labels = head(mask="s1-all"), rows(0, 9), rows(1, 8), rows(2, 8, 2)
    parts = [made(part, bank, labels) for part in queries.split(4)]
    torch.testing.assert_close(torch.cat(parts), made(queries, bank, labels))


def test_no_queries_give_no_predictions():
    assert NONA()(torch.zeros(0, 2), torch.zeros(3, 2), torch.zeros(3)).shape == (0,)
    assert NONA()(torch.zeros(0, 2), torch.zeros(3, 2), torch.zeros(3, 4)).shape == (0, 4)


class Bilinear(nn.Module):
    """A similarity of a user's own, with a parameter."""

    def __init__(self):
        super().__init__()
        self.metric = nn.Parameter(torch.eye(DIM, dtype=torch.float64))

    def forward(self, queries, bank):
        return queries @ self.metric @ bank.T


class KeepFirst(nn.Module):
    """A mask of a user's own: only the first admissible row."""

    def forward(self, scores, queries, weight=None):
        open_to = torch.ones_like(scores) if weight is None else weight
        first = (open_to > 0).int().argmax(dim=-1, keepdim=True)
        return torch.full_like(scores, -torch.inf).scatter(-1, first, 0.0)


def test_parts_of_ones_own_are_taken():
    queries, labels = rows(0, 6), rows(1, 6, 1)[:, 0]
    ids = torch.arange(6)
    keys = {"query_ids": ids, "bank_ids": ids}
    made = NONA(Bilinear(), KeepFirst(), lambda scores: scores.softmax(dim=-1))
    assert made(queries, queries, labels, **keys).tolist() == [labels[1], *[labels[0]] * 5]
    learned = NONA(Bilinear())
    assert [name for name, _ in learned.named_parameters()] == ["similarity.metric"]
    torch.testing.assert_close(learned(queries, queries, labels, **keys), head("dot")(queries, queries, labels, **keys))
    learned(queries, queries, labels, **keys).sum().backward()
    assert learned.similarity.metric.grad.abs().max() > 0


@pytest.mark.parametrize(
    ("settings", "error", "sentence"),
    [
        ({"similarity": "12"}, ValueError, "^similarity: expected one of 'cosine', "),
        ({"similarity": "cosin"}, ValueError, r"^similarity: .*; did you mean 'cosine'\?$"),
        ({"simplex": "soft_max"}, ValueError, r"^simplex: .*; did you mean 'softmax'\?$"),
        ({"simplex": None}, TypeError, "^simplex: expected a name or a callable, got None$"),
        (
            {"mask": "softstep"},
            TypeError,
            r"^mask: expected a module such as SoftStep\(dim\), or None, got 'softstep'$",
        ),
    ],
)
def test_wrong_settings_are_refused(settings, error, sentence):
    with pytest.raises(error, match=sentence):
        NONA(**settings)


@pytest.mark.parametrize(
    ("queries", "bank", "labels", "error", "sentence"),
    [
        (torch.zeros(2, 3), torch.zeros(4, 2), torch.zeros(4), ValueError, r"^bank: expected \[N, 3\] as wide"),
        (torch.zeros(2), torch.zeros(4, 2), torch.zeros(4), ValueError, r"^queries: expected a matrix"),
        (torch.zeros(2, 3), torch.zeros(4, 3), torch.zeros(3), ValueError, r"^labels: expected \[4\] or \[4, T\]"),
        (torch.zeros(2, 3), torch.zeros(4, 3), torch.zeros(4).long(), TypeError, r"^labels: .*one_hot"),
        (torch.zeros(2, 3), torch.zeros(0, 3), torch.zeros(0), ValueError, "^bank: expected at least one row"),
        (torch.zeros(2, 3).int(), torch.zeros(4, 3), torch.zeros(4), TypeError, "^queries: expected a floating dtype"),
        (None, torch.zeros(4, 3), torch.zeros(4), TypeError, "^queries: expected a tensor, got NoneType"),
        (torch.zeros(2, 3), None, torch.zeros(4), TypeError, "^bank: expected a tensor, got NoneType"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(queries, bank, labels, error, sentence):
    with pytest.raises(error, match=sentence):
        NONA()(queries, bank, labels)


def test_a_mask_of_another_width_is_refused():
    with pytest.raises(ValueError, match=r"^queries: expected \(2, 5\), got \(2, 3\)$"):
        NONA(mask=SoftStep(5))(torch.zeros(2, 3), torch.zeros(4, 3), torch.zeros(4))
