"""One test per promise of a similarity, each over every registered one."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from references import nona as reference
from vicinal.core import entries
from vicinal.similarity import NegativeL2
from vicinal.similarity.base import resolve_similarity

each = pytest.mark.parametrize("entry", entries("similarity"), ids=lambda e: e.name)


def rows(seed, n, d, dtype=torch.float64):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@each
def test_equals_numpy_reference(entry):
    q, x = rows(0, 4, 6), rows(1, 9, 6)
    x[3], x[5] = q[1], 0.0
    want = reference.scores(entry.name, q.numpy(), x.numpy())
    np.testing.assert_allclose(entry.factory()(q, x).numpy(), want, rtol=1e-12, atol=1e-12)


@each
def test_gradcheck(entry):
    q, x = rows(0, 3, 4).requires_grad_(), rows(1, 5, 4).requires_grad_()
    assert torch.autograd.gradcheck(entry.factory(), (q, x))


@each
def test_gradients_are_finite_at_coincident_and_zero_rows(entry):
    q = torch.stack([torch.ones(4), torch.zeros(4), torch.full((4,), 1e4)]).requires_grad_()
    x = q.detach().clone().requires_grad_()
    entry.factory()(q, x).sum().backward()
    assert q.grad.isfinite().all()
    assert x.grad.isfinite().all()


@each
@given(seed=st.integers(0, 10_000), rotate=st.booleans())
def test_keeps_what_it_declares(entry, seed, rotate):
    q, x = rows(seed, 3, 4), rows(seed + 1, 6, 4)
    similarity = entry.factory()
    scores = similarity(q, x)
    if "common-shift-invariant" in entry.facts:
        shift = 100 * rows(seed + 2, 1, 4)
        torch.testing.assert_close(similarity(q + shift, x + shift), scores)
    if "rotation-invariant" in entry.facts and rotate:
        turn = torch.linalg.qr(rows(seed + 3, 4, 4)).Q
        torch.testing.assert_close(similarity(q @ turn, x @ turn), scores)
    if "row-scale-invariant" in entry.facts:
        torch.testing.assert_close(similarity(3 * q, 0.2 * x), scores)
    if "bounded" in entry.facts:
        assert scores.abs().max() <= 1 + 1e-12


@each
@given(seed=st.integers(0, 10_000), cut=st.integers(0, 7))
def test_blocks_of_the_bank_can_be_scored_alone(entry, seed, cut):
    q, x = rows(seed, 3, 4), rows(seed + 1, 7, 4)
    similarity = entry.factory()
    torch.testing.assert_close(torch.cat([similarity(q, x[:cut]), similarity(q, x[cut:])], dim=1), similarity(q, x))


@each
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_scored_in_float32(entry, dtype):
    q, x = rows(0, 3, 4).to(dtype), rows(1, 5, 4).to(dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = entry.factory()(q, x)
    assert scores.dtype == torch.float32
    torch.testing.assert_close(scores, entry.factory()(q.double(), x.double()).float(), rtol=1e-5, atol=1e-5)


@each
def test_errors_name_the_argument(entry):
    similarity = entry.factory()
    with pytest.raises(ValueError, match=r"^bank: expected \[N, 3\]"):
        similarity(torch.zeros(2, 3), torch.zeros(2, 4))
    with pytest.raises(ValueError, match=r"^queries: expected a matrix"):
        similarity(torch.zeros(3), torch.zeros(2, 3))
    with pytest.raises(TypeError, match=r"^queries: expected a floating dtype"):
        similarity(torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, 3))


@each
def test_empty_bank_and_no_queries(entry):
    similarity = entry.factory()
    assert similarity(torch.zeros(2, 3), torch.zeros(0, 3)).shape == (2, 0)
    assert similarity(torch.zeros(0, 3), torch.zeros(2, 3)).shape == (0, 2)


@pytest.mark.parametrize("offset", [0.0, 300.0, 3000.0])
def test_l2_finds_the_true_neighbors_of_data_with_an_offset(offset, generator):
    """The plain squared trick keeps 0.4 % of the ten nearest at offset 3000, d = 32."""
    data = (torch.randn(1200, 32, generator=generator) + offset).float()
    q, x = data[:200], data[200:]
    want = torch.cdist(q.double(), x.double(), compute_mode="donot_use_mm_for_euclid_dist").topk(10, largest=False)
    got = NegativeL2()(q, x).topk(10)
    shared_rows = [len(set(a.tolist()) & set(b.tolist())) for a, b in zip(got.indices, want.indices, strict=True)]
    assert sum(shared_rows) / (10 * len(shared_rows)) == 1.0


def test_l2_is_exact_where_the_expansion_cancels(generator):
    """Clusters far apart: pairs inside one are near each other but far from the mean of the bank."""
    cluster = torch.randn(40, 8, generator=generator)
    data = torch.cat([cluster * 1e-3 + 50, cluster * 1e-3 - 50]).float()
    want = -torch.cdist(data.double(), data.double(), compute_mode="donot_use_mm_for_euclid_dist")
    got = NegativeL2()(data, data)
    assert (got.diagonal() == 0).all()
    torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-7)


def test_a_module_is_taken_as_it_is_and_a_wrong_name_gets_a_hint():
    module = NegativeL2()
    assert resolve_similarity(module) is module
    with pytest.raises(ValueError, match=r"did you mean 'cosine'\?"):
        resolve_similarity("cosin")
