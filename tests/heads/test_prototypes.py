"""Nearest class mean: exact sums, forgetting, empty classes, scores."""

import pytest
import torch

from vicinal.heads import NearestClassMean
from vicinal.similarity import class_means


def drawn(rows: int = 40, classes: int = 4, dim: int = 6, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(rows) % classes
    return torch.randn(rows, dim, generator=generator), labels


@pytest.mark.parametrize("spherical", [True, False])
def test_means_and_classes_are_those_of_the_functions(spherical):
    rows, labels = drawn()
    head = NearestClassMean(4, 6, spherical=spherical)
    head.add(rows, labels)
    torch.testing.assert_close(head.means(), class_means(rows.double(), labels, spherical=spherical), rtol=0, atol=1e-8)
    queries, _ = drawn(seed=1)
    means = class_means(rows, labels, spherical=spherical)
    cosines = torch.nn.functional.cosine_similarity(queries[:, None], means, dim=-1)
    assert head(queries).argmax(1).tolist() == cosines.argmax(1).tolist()
    torch.testing.assert_close(head(queries).sum(1), torch.ones(len(queries)))


@pytest.mark.parametrize("spherical", [True, False])
def test_forgetting_leaves_nothing_and_order_does_not_matter(spherical):
    rows, labels = drawn()
    rows = rows * torch.logspace(-4, 4, len(rows))[:, None]
    never, late = (NearestClassMean(4, 6, spherical=spherical) for _ in range(2))
    never.add(rows[:20], labels[:20])
    for start in (20, 0, 30, 10):
        late.add(rows[start : start + 10].flip(0), labels[start : start + 10].flip(0))
    late.forget(rows[20:], labels[20:])
    assert torch.equal(late.sums, never.sums)
    assert torch.equal(late.counts, never.counts)


def test_classes_without_rows_are_never_chosen():
    rows, labels = drawn()
    head = NearestClassMean(5, 6)
    head.add(rows, labels)
    shares = head(rows)
    assert bool((shares[:, 4] == 0).all())
    head.forget(rows[labels == 1], labels[labels == 1])
    assert bool((head(rows)[:, [1, 4]] == 0).all())
    head.grow(7)
    assert head(rows).shape == (40, 7)
    head.add(rows[:1], torch.tensor([6]))
    assert int(head(rows[:1]).argmax()) == 6
    assert bool(head.means()[5].isnan().all())


def test_it_is_saved_with_a_module():
    rows, labels = drawn()
    head, other = NearestClassMean(4, 6), NearestClassMean(4, 6)
    head.add(rows, labels)
    other.load_state_dict(head.state_dict())
    assert torch.equal(head(rows), other(rows))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_dtypes(dtype):
    rows, labels = drawn()
    head = NearestClassMean(4, 6)
    head.add(rows.to(dtype), labels)
    assert head(rows.to(dtype)).dtype == torch.promote_types(dtype, torch.float32)
    assert bool(head(rows.to(dtype)).isfinite().all())


def test_gradients_reach_the_queries():
    rows, labels = drawn()
    head = NearestClassMean(4, 6, similarity="squared_l2", spherical=False).double()
    assert head.sums.dtype == torch.int64
    head.add(rows, labels)
    queries = rows[:3].double().requires_grad_()
    assert torch.autograd.gradcheck(head, (queries,))


def test_one_row_and_zero_rows():
    head = NearestClassMean(2, 3)
    head.add(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64))
    with pytest.raises(ValueError, match="queries: expected a head that rows were added to"):
        head(torch.zeros(1, 3))
    head.add(torch.zeros(1, 3), torch.tensor([0]))  # a row of zeros has no direction
    assert head(torch.ones(1, 3)).tolist() == [[1.0, 0.0]]


def test_wrong_arguments_are_named_and_change_nothing():
    rows, labels = drawn()
    head = NearestClassMean(4, 6)
    head.add(rows, labels)
    before = head.sums.clone()
    with pytest.raises(ValueError, match="at most 10 rows of class 0"):
        head.forget(rows[:1].repeat(11, 1), torch.zeros(11, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"classes 0 to 3, got 4\.\.4; call grow"):
        head.add(rows[:1], torch.tensor([4]))
    with pytest.raises(ValueError, match="finite"):
        head.add(torch.full((1, 6), torch.nan), torch.tensor([0]))
    with pytest.raises(ValueError, match="whole numbers"):
        head.add(rows[:1], torch.tensor([0.0]))
    with pytest.raises(ValueError, match=r"expected \[b, 6\]"):
        head(torch.zeros(1, 5))
    with pytest.raises(ValueError, match=r"below 2\^30"):
        NearestClassMean(2, 1, spherical=False).add(torch.tensor([[1e10]]), torch.tensor([0]))
    with pytest.raises(ValueError, match="temperature"):
        NearestClassMean(2, 2, temperature=0.0)
    with pytest.raises(ValueError, match="at least 4"):
        head.grow(3)
    assert torch.equal(head.sums, before)
