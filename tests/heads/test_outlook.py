"""Heads of the paper's outlook, several heads and blocks upstream, against numpy; and its kin, MLKR."""

import math

import numpy as np
import pytest
import torch

from references import nona as reference
from vicinal.heads import NONA, IntersampleAttention, MultiHead, NeuralNearest, Refined
from vicinal.masks import SoftStep
from vicinal.similarity import Mapped

DIM, B, N = 4, 3, 6


@pytest.fixture
def rows(generator):
    queries, bank = (torch.randn(k, DIM, generator=generator, dtype=torch.float64) for k in (B, N))
    labels = torch.randn(N, generator=generator, dtype=torch.float64)
    return queries, bank, labels, {"query_ids": torch.tensor([0, 9, 8]), "bank_ids": torch.arange(N)}


def numbers(module):
    return {name: value.detach().numpy() for name, value in module.named_parameters()}


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("similarity", ["l2", "squared_l2", "cosine", "dot"])
def test_a_mapped_similarity_is_that_of_the_mapped_rows(rows, similarity, shared):
    queries, bank, *_ = rows
    mapped = Mapped(similarity, DIM, 2, shared=shared).double()
    p = numbers(mapped)
    key = p["query.weight"] if shared else p["key.weight"]
    want = reference.scores(similarity, queries.numpy() @ p["query.weight"].T, bank.numpy() @ key.T)
    np.testing.assert_allclose(mapped(queries, bank).detach().numpy(), want, rtol=1e-12, atol=1e-12)


def test_mlkr_is_nona_of_a_mahalanobis_distance(rows):
    r"""$\hat y_i = \sum_{j \ne i} y_j k_{ij} / \sum_{j \ne i} k_{ij}$ with $k_{ij} = e^{-\|A x_i - A x_j\|^2}$."""
    _, bank, labels, _ = rows
    head, ids = NONA(Mapped("squared_l2", DIM, 2, shared=True)).double(), torch.arange(N)
    weight = head.similarity.query.weight
    loss = (head(bank, bank, labels, query_ids=ids, bank_ids=ids) - labels).square().sum()
    loss.backward()

    def mlkr(a):
        z, y = bank.numpy() @ a.T, labels.numpy()
        total = 0.0
        for i in range(N):
            k = [0.0 if j == i else math.exp(-np.sum((z[i] - z[j]) ** 2)) for j in range(N)]
            total += (np.dot(k, y) / np.sum(k) - y[i]) ** 2
        return total

    a = weight.detach().numpy().copy()
    assert loss.item() == pytest.approx(mlkr(a), rel=1e-12)
    step = np.zeros_like(a)
    step[1, 2] = 1e-5
    slope = (mlkr(a + step) - mlkr(a - step)) / 2e-5
    assert weight.grad[1, 2].item() == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize("masked", [False, True])
def test_several_heads_weigh_by_the_mean_of_their_weights(rows, masked):
    queries, bank, labels, ids = rows
    mask = SoftStep(DIM, "s1", "global").double() if masked else None
    head = MultiHead(DIM, heads=2, width=3, mask=mask).double()
    p, allowed = numbers(head), ids["query_ids"].numpy()[:, None] != np.arange(N)
    mass = reference.softstep([(0.5, 0.5, 0.5)] * B, family="s1", extent="admissible", eps=1e-6)
    parts = []
    for h in range(2):
        q, k = (p[f"heads.{h}.similarity.{side}.weight"] for side in ("query", "key"))
        scores = reference.scores("l2", queries.numpy() @ q.T, bank.numpy() @ k.T)
        parts.append(reference.head_weights(scores, allowed, mass if masked else reference.no_mass))
    want = np.mean(parts, axis=0)
    assert np.abs(parts[0] - parts[1]).max() > 1e-3
    np.testing.assert_allclose(head.weights(queries, bank, **ids).detach().numpy(), want, rtol=1e-9, atol=1e-12)
    got = head(queries, bank, labels, **ids).detach().numpy()
    np.testing.assert_allclose(got, want @ labels.numpy(), rtol=1e-9)
    values, places = head.top_weights(queries, bank, 2, **ids)
    np.testing.assert_allclose(values.numpy(), -np.sort(-want, axis=1)[:, :2], rtol=1e-9)
    np.testing.assert_array_equal(places.numpy()[0], np.argsort(-want[0])[:2])


def layer_norm(x):
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)


def gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def saint(p, heads, z, x, allowed):
    def linear(name, rows):
        return rows @ p[f"{name}.weight"].T + p[f"{name}.bias"]

    q, k, v = linear("query", z), linear("key", x), linear("value", x)
    width, parts = DIM // heads, []
    for h in range(heads):
        cut = slice(h * width, (h + 1) * width)
        scores = q[:, cut] @ k[:, cut].T / math.sqrt(width)
        weights = np.array([reference.head_weights(scores[i : i + 1], allowed[i : i + 1])[0] for i in range(len(z))])
        parts.append(weights @ v[:, cut])
    hidden = layer_norm(z + linear("out", np.hstack(parts)))
    return layer_norm(hidden + linear("narrow", gelu(linear("wide", hidden))))


def n3(p, k, z, x, allowed):
    result = []
    for i, row in enumerate(z):
        alpha = np.array([-np.sum((row - other) ** 2) for other in x])
        alpha[~allowed[i]] = -np.inf
        means = []
        for _ in range(k):
            w = np.exp((alpha - alpha.max()) / math.exp(p["log_temperature"]))
            w /= w.sum()
            means.append(w @ x - row)
            alpha = alpha + np.log(1 - w)
        result.append(row + p["mix.weight"] @ np.concatenate(means) + p["mix.bias"])
    return np.array(result)


@pytest.mark.parametrize("heads", [1, 2])
def test_intersample_attention_equals_numpy(rows, heads):
    queries, bank, _, ids = rows
    block = IntersampleAttention(DIM, heads).double()
    allowed = ids["query_ids"][:, None] != ids["bank_ids"]
    want = saint(numbers(block), heads, queries.numpy(), bank.numpy(), allowed.numpy())
    np.testing.assert_allclose(block(queries, bank, allowed).detach().numpy(), want, rtol=1e-9, atol=1e-12)
    with pytest.raises(ValueError, match=r"^heads: expected a divisor of the width 4, got 3"):
        IntersampleAttention(DIM, 3)


@pytest.mark.parametrize("k", [1, 3])
def test_soft_nearest_neighbors_equal_numpy(rows, k):
    queries, bank, _, ids = rows
    block = NeuralNearest(DIM, k).double()
    allowed = ids["query_ids"][:, None] != ids["bank_ids"]
    want = n3(numbers(block), k, queries.numpy(), bank.numpy(), allowed.numpy())
    np.testing.assert_allclose(block(queries, bank, allowed).detach().numpy(), want, rtol=1e-9, atol=1e-12)


def test_a_cold_soft_neighbor_is_the_next_nearest_row(rows):
    queries, bank, *_ = rows
    block = NeuralNearest(DIM, 3).double()
    with torch.no_grad():
        block.log_temperature.fill_(-8.0)
    chosen = torch.stack([weights.argmax(-1) for weights in block.choices(queries, bank)], dim=1)
    distance = ((queries.numpy()[:, None] - bank.numpy()) ** 2).sum(-1)
    np.testing.assert_array_equal(chosen.numpy(), np.argsort(distance, axis=1)[:, :3])
    assert all(torch.allclose(w.sum(-1), torch.ones(B).double()) for w in block.choices(queries, bank[:1]))


@pytest.mark.parametrize("block", ["saint", "n3"])
def test_a_refined_head_compares_changed_rows_and_nobody_sees_itself(rows, block):
    queries, bank, labels, ids = rows
    head = Refined(DIM, block, NONA("squared_l2")).double()
    p = {name.removeprefix("block."): value for name, value in numbers(head).items()}
    change = (lambda *a: saint(p, 1, *a)) if block == "saint" else (lambda *a: n3(p, 3, *a))
    allowed = ids["query_ids"].numpy()[:, None] != np.arange(N)
    z = change(queries.numpy(), bank.numpy(), allowed)
    x = change(bank.numpy(), bank.numpy(), ~np.eye(N, dtype=bool))
    want = reference.head_weights(reference.scores("squared_l2", z, x), allowed)
    np.testing.assert_allclose(head.weights(queries, bank, **ids).detach().numpy(), want, rtol=1e-8, atol=1e-12)
    got = head(queries, bank, labels, **ids).detach()
    torch.testing.assert_close(got, torch.from_numpy(want) @ labels, rtol=1e-8, atol=1e-12)
    moved = queries.clone()
    moved[1] += 1  # other queries change nothing
    assert torch.equal(head(moved, bank, labels, **ids)[[0, 2]].detach(), got[[0, 2]])
    groups = {"query_groups": torch.zeros(B).long(), "bank_groups": torch.zeros(N).long()}
    with pytest.raises(ValueError, match=r"^bank: expected a row of another id and group"):
        head(queries, bank, labels, **groups)


@pytest.mark.parametrize("block", ["saint", "n3"])
def test_gradients_of_a_refined_head_are_those_of_differences(rows, block):
    queries, bank, labels, ids = rows
    head = Refined(DIM, block).double()
    names = [queries.requires_grad_(), bank.requires_grad_()]
    assert torch.autograd.gradcheck(lambda q, x: head(q, x, labels, **ids), names, atol=1e-6)
    large = Refined(DIM, block)
    got = large(1e4 * queries.float(), 1e4 * bank.float(), labels.float(), **ids)
    got.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in large.parameters())
