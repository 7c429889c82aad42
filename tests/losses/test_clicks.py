"""Losses of clicks: values of the papers' code, expectations over exposure, and labels that may be wrong."""

import itertools
import math

import numpy as np
import pytest
import torch

from references import set_losses as reference
from vicinal import losses
from vicinal.metrics import average_precision, recall_at_k
from vicinal.samplers import draw_unlabelled


def load(name):
    return {
        key: torch.from_numpy(np.asarray(value)) for key, value in np.load(f"tests/golden/retrieval/{name}.npz").items()
    }


@pytest.mark.parametrize("case", ["unbiased", "clipped", "clip1_is_naive", "weight2", "allzero_labels"])
def test_clipped_losses_and_gradients_are_those_of_the_papers_code(case):
    data = load("mnar_clipped_loss")
    users, items = data["user_embeddings"].requires_grad_(), data["item_embeddings"].requires_grad_()
    scores = (users[data["users"]] * items[data["items"]]).sum(1)[None]
    labels = data["labels"] * (case != "allzero_labels")
    clip, strength = float(data[f"{case}__clip"]), float(data[f"{case}__lam"])
    loss = losses.exposed_relevance(
        scores, labels[None], propensity=data["propensity"], clip=clip, unclicked=float(data[f"{case}__weight"])
    )
    assert float(loss.detach()) == pytest.approx(float(data[f"{case}__data_loss"]))
    if strength == 0:
        loss.backward()
        np.testing.assert_allclose(users.grad, data[f"{case}__grad_user"], atol=1e-12)
        np.testing.assert_allclose(items.grad, data[f"{case}__grad_item"], atol=1e-12)


@pytest.mark.parametrize("form", ["squared", "log"])
def test_without_clip_the_expectation_is_the_loss_of_the_relevance(form):
    """All 16 outcomes of clicks on four pairs, each with its chance."""
    scores = torch.tensor([[0.3, -1.0], [2.0, 0.5]], dtype=torch.float64)
    seen = torch.tensor([[0.2, 0.9], [0.5, 0.7]], dtype=torch.float64)
    relevant = torch.tensor([[0.9, 0.1], [0.4, 0.6]], dtype=torch.float64)
    expected = 0.0
    for outcome in itertools.product([0.0, 1.0], repeat=4):
        clicks = torch.tensor(outcome, dtype=torch.float64).reshape(2, 2)
        chance = (clicks * seen * relevant + (1 - clicks) * (1 - seen * relevant)).prod()
        expected += chance * losses.exposed_relevance(
            scores, clicks, propensity=seen, clip=0, form=form, reduction="sum"
        )
    p = scores.sigmoid()
    hit, miss = ((1 - p) ** 2, p**2) if form == "squared" else (-p.log(), -(1 - p).log())
    assert float(expected) == pytest.approx(float((relevant * hit + (1 - relevant) * miss).sum()))


def test_pairs_of_weight_0_and_terms_below_0_may_be_left_out():
    scores, clicks = torch.tensor([[3.0, -2.0, 1e4]]), torch.tensor([[1.0, 1.0, 0.0]])
    seen = torch.tensor([0.2, 0.5, 0.9])
    some = losses.exposed_relevance(scores, clicks, torch.tensor([[1.0, 1.0, 0.0]]), propensity=seen)
    torch.testing.assert_close(some, losses.exposed_relevance(scores[:, :2], clicks[:, :2], propensity=seen[:2]))
    plain = losses.exposed_relevance(scores, clicks, propensity=seen, reduction="none")
    floored = losses.exposed_relevance(scores, clicks, propensity=seen, nonnegative=True, reduction="none")
    assert floored > plain
    assert losses.exposed_relevance(scores[:, :1], clicks[:, :1], propensity=seen[:1]) < 0
    leaf = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    given = {"propensity": seen.double(), "form": "log", "unclicked": 0.5}
    assert torch.autograd.gradcheck(lambda s: losses.exposed_relevance(s, clicks.repeat(2, 1), **given), (leaf,))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"propensity": torch.tensor([0.0, 0.5]), "clip": 0.0}, "propensity: expected numbers above 0 and at most 1"),
        ({"propensity": torch.tensor([1.5, 0.5])}, "propensity: expected numbers above 0 and at most 1"),
        ({"propensity": torch.tensor([math.nan, 0.5])}, "propensity: expected numbers above 0 and at most 1"),
        ({"propensity": torch.ones(3)}, r"propensity: expected \(1, 2\) or one a column"),
        ({"relation": torch.tensor([[0.5, 0.0]])}, "relation: expected clicks that are 0 or 1"),
        ({"clip": 1.5}, "clip: expected a number from 0 to 1"),
        ({"form": "huber"}, "form: expected one of 'squared', 'log'"),
    ],
)
def test_bad_clicks_are_told(settings, sentence):
    given = {"scores": torch.zeros(1, 2), "relation": torch.tensor([[1.0, 0.0]]), "propensity": torch.ones(2)}
    with pytest.raises(ValueError, match=f"^{sentence}"):
        losses.exposed_relevance(**{**given, **settings})


@pytest.mark.parametrize("k", [1, 3, 5, 10])
def test_metrics_of_exposure_are_those_of_the_papers_code(k):
    data = load("mnar_ips_metrics")
    scores, relation, seen = data["y_score"], data["y_true"], data["pscore"]
    recall = recall_at_k(scores, relation, k=k, propensity=seen)
    np.testing.assert_allclose(recall, data[f"recall_ips_at_{k}"], rtol=1e-12)
    np.testing.assert_allclose(recall_at_k(scores, relation, k=k), data[f"recall_at_{k}"], rtol=1e-12)
    precision = average_precision(scores, relation, k=k, propensity=seen)
    np.testing.assert_allclose(precision, data[f"ap_ips_at_{k}"], rtol=1e-12)
    even = torch.full((10,), 0.3)
    torch.testing.assert_close(
        recall_at_k(scores, relation, k=k, propensity=even), recall_at_k(scores, relation, k=k), equal_nan=True
    )
    torch.testing.assert_close(
        recall_at_k(scores, relation, k=k, propensity=even, empty=0.0)[1], torch.zeros(1).double()[0]
    )
    kept = torch.ones(4, 10)
    kept[:, 3:5] = 0
    taken_out = recall_at_k(scores, relation, kept, k=k, propensity=seen)
    columns = [0, 1, 2, 5, 6, 7, 8, 9]
    again = recall_at_k(scores[:, columns], relation[:, columns], k=k, propensity=seen[:, columns])
    torch.testing.assert_close(taken_out, again, equal_nan=True)
    with pytest.raises(ValueError, match=r"^propensity: expected numbers above 0"):
        recall_at_k(scores, relation, propensity=torch.zeros(10))


@pytest.mark.parametrize("case", ["warp", "plain", "no_impostor"])
def test_warp_is_the_loss_of_the_cml_code(case):
    """Its margin of -50 stands for one that all pairs hold; ours is above 0, and the scores are moved instead."""
    data = load("cml")
    users, items = data["user_embeddings"].requires_grad_(), data["item_embeddings"].requires_grad_()
    pairs, others = data["pairs"], data["negatives"]
    columns = torch.cat([pairs[:, 1:], others], 1)
    scores = -(users[pairs[:, 0], None] - items[columns]).square().sum(-1)
    margin = float(data[f"{case}__margin"])
    relation = torch.zeros(4, 4, dtype=torch.float64)
    relation[:, 0] = 1
    weight = torch.ones_like(relation)
    if margin < 0:
        scores, margin = scores + relation * (1 - margin), 1.0
    ours = losses.warp(
        scores, relation, weight, margin=margin, columns=int(data["n_items"]),
        by_rank=bool(data[f"{case}__rank_weight"]), reduction="sum",
    )  # fmt: skip
    assert float(ours.detach()) == pytest.approx(float(data[f"{case}__loss"]))
    ours.backward()
    np.testing.assert_allclose(users.grad, data[f"{case}__grad_user"], atol=1e-12)
    np.testing.assert_allclose(items.grad, data[f"{case}__grad_item"], atol=1e-12)


def test_warp_equals_numpy_and_leaves_out_rows_without_an_unrelated_column(generator):
    scores = torch.randn(5, 8, dtype=torch.float64, generator=generator)
    relation = (torch.rand(5, 8, generator=generator) < 0.4).double()
    weight = (torch.rand(5, 8, generator=generator) < 0.8).double()
    for settings in ({}, {"columns": 100, "margin": 1.0}, {"by_rank": False}):
        want = reference.warp(scores.numpy(), relation.numpy(), weight.numpy(), **settings)
        got = losses.warp(scores, relation, weight, reduction="none", **settings)
        np.testing.assert_allclose(got, want, atol=1e-12)
    relation[2] = 1.0
    with pytest.warns(UserWarning, match=r"^warp: expected an unrelated column in each row, got none in 1 rows"):
        alone = losses.warp(scores, relation, weight, reduction="none")
    assert alone[2] == 0
    leaf = scores.requires_grad_()
    relation[2, :4] = 0.0
    assert torch.autograd.gradcheck(lambda s: losses.warp(s, relation, by_rank=False), (leaf,))
    with pytest.raises(ValueError, match=r"^margin: expected a number above 0"):
        losses.warp(scores, relation, margin=0.0)


def test_covariances_are_squared_where_the_cml_code_adds_them_with_their_sign():
    data = load("cml")
    stacked = torch.cat([data["user_embeddings"], data["item_embeddings"]])
    centered = stacked - stacked.mean(0)
    matrix = centered.T @ centered / len(stacked)
    signed = (matrix.sum() - matrix.trace()) * float(data["cov__weight"])
    assert float(signed) == pytest.approx(float(data["cov__loss"]))
    assert float(data["cov__loss"]) < 0 < float(losses.covariance_penalty(stacked))
    matrix = np.cov(stacked.numpy().T)
    want = (np.sum(matrix**2) - np.sum(np.diag(matrix) ** 2)) / stacked.shape[1]
    assert float(losses.covariance_penalty(stacked)) == pytest.approx(want)
    with pytest.raises(ValueError, match=r"^embeddings: expected at least 2 rows"):
        losses.covariance_penalty(torch.ones(1, 2))


def test_rows_are_clipped_to_the_ball_in_place():
    rows = torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.1, 0.0]], requires_grad=True)
    assert losses.clip_rows(rows) is rows
    torch.testing.assert_close(rows.detach(), torch.tensor([[0.6, 0.8], [0.0, 0.0], [0.1, 0.0]]))
    with pytest.raises(ValueError, match=r"^vectors: expected floating numbers \[n, d\]"):
        losses.clip_rows(torch.ones(3))


@pytest.mark.parametrize(("missed", "spurious"), [(0.0, 0.0), (0.3, 0.0), (0.0, 0.2), (0.4, 0.5)])
def test_flipped_labels_equal_numpy_and_its_slope(missed, spurious, generator):
    scores = torch.randn(4, 6, dtype=torch.float64, generator=generator, requires_grad=True)
    relation = (torch.rand(4, 6, generator=generator) < 0.4).double()
    settings = {"missed": missed, "spurious": spurious}
    p = 1 / (1 + np.exp(-scores.detach().numpy()))
    labelled = p * (1 - missed) + (1 - p) * spurious
    want = -np.where(relation > 0, np.log(labelled), np.log(1 - labelled))
    loss = losses.pair_cross_entropy(scores, relation, **settings)
    assert float(loss.detach()) == pytest.approx(want.mean())
    assert torch.autograd.gradcheck(lambda s: losses.pair_cross_entropy(s, relation, **settings), (scores,))
    (grad,) = torch.autograd.grad(losses.pair_cross_entropy(scores, 0 * relation, reduction="sum", **settings), scores)
    slope = p * (1 - p) * (1 - missed - spurious) / (p * missed + (1 - p) * (1 - spurious))
    np.testing.assert_allclose(grad, slope, atol=1e-12)


def test_a_sure_pair_that_is_not_labelled_is_pushed_no_more():
    scores = torch.tensor([[1e4, -1e4]], requires_grad=True)
    losses.pair_cross_entropy(scores, torch.zeros(1, 2), missed=0.1).backward()
    assert scores.grad.tolist() == [[0.0, 0.0]]
    for settings in ({"missed": 0.6, "spurious": 0.4}, {"missed": 1.0}):
        with pytest.raises(ValueError, match=r"^spurious: expected less than 1 - missed"):
            losses.pair_cross_entropy(scores, torch.zeros(1, 2), **settings)


def test_learned_chances_have_gradients_and_are_those_of_the_labels(generator):
    """Scores are the true ones; how often a column's related pairs are not labelled is learned from the labels."""
    scores = 2 * torch.randn(4, 6, dtype=torch.float64, generator=generator)
    relation = (torch.rand(4, 6, generator=generator) < 0.4).double()
    for shape in ((6,), (4, 1), (4, 6)):
        missed, spurious = (0.5 * torch.rand(shape, dtype=torch.float64, generator=generator) for _ in range(2))
        settings = {"missed": missed.requires_grad_(), "spurious": spurious.requires_grad_()}
        assert torch.autograd.gradcheck(
            lambda s, m, w: losses.pair_cross_entropy(s, relation, missed=m, spurious=w),
            (scores.clone().requires_grad_(), *settings.values()),
        )
    same = losses.pair_cross_entropy(scores, relation, missed=torch.full((6,), 0.3), spurious=torch.zeros(6))
    torch.testing.assert_close(same, losses.pair_cross_entropy(scores, relation, missed=0.3))
    truth = torch.tensor([0.1, 0.4, 0.7])
    many = 2 * torch.randn(20_000, 3, generator=generator)
    labels = (torch.rand(20_000, 3, generator=generator) < many.sigmoid() * (1 - truth)).float()
    free = torch.zeros(3, requires_grad=True)
    optimizer = torch.optim.LBFGS([free], max_iter=30, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = losses.pair_cross_entropy(many, labels, missed=free.sigmoid())
        loss.backward()
        return loss

    optimizer.step(closure)
    torch.testing.assert_close(free.detach().sigmoid(), truth, atol=0.03, rtol=0)


@pytest.mark.parametrize(
    ("missed", "sentence"),
    [
        (torch.tensor([0.2, 1.0]), "missed: expected floating numbers from 0 to below 1"),
        (torch.tensor([0.2, math.nan]), "missed: expected floating numbers from 0 to below 1"),
        (
            torch.tensor([0.2, 0.6]),
            "spurious: expected less than 1 - missed, as such labels say nothing, got a sum of 1",
        ),
        (torch.zeros(3), "missed: expected one number, one a column or a row"),
    ],
)
def test_bad_chances_are_told(missed, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        losses.pair_cross_entropy(torch.zeros(1, 2), torch.zeros(1, 2), missed=missed, spurious=0.4)
    with pytest.raises(ValueError, match=f"^{sentence}"):
        draw_unlabelled(torch.zeros(1, 2), torch.zeros(1, 2), 1, missed=missed, spurious=0.4)


def test_unlabelled_columns_are_drawn_by_their_slope(generator):
    scores = torch.tensor([[-3.0, 0.0, 2.0, 5.0, 0.0]]).repeat(20_000, 1)
    relation = torch.tensor([[0.0, 0.0, 0.0, 0.0, 1.0]]).repeat(20_000, 1)
    counts = torch.bincount(
        draw_unlabelled(scores, relation, 1, missed=0.3, spurious=0.1, generator=generator)[:, 0], minlength=5
    )
    p = scores[0].double().sigmoid()
    mass = (1 - p) * 0.6 / (p * 0.3 + (1 - p) * 0.9)
    mass[4] = 0
    torch.testing.assert_close(counts / 20_000, mass / mass.sum(), atol=0.01, rtol=0, check_dtype=False)
    columns = torch.tensor([0.3, 0.3, 0.0, 0.3, 0.3])
    draws = draw_unlabelled(scores, relation, 1, missed=columns, spurious=0.1, generator=generator)[:, 0]
    mass[2] = 1 - 0.1
    mass[2] /= 0.9
    torch.testing.assert_close(
        torch.bincount(draws, minlength=5) / 20_000, mass / mass.sum(), atol=0.01, rtol=0, check_dtype=False
    )
    all_of_them = draw_unlabelled(scores[:1] * 1e4, relation[:1], 5, generator=generator)
    assert sorted(all_of_them[0].tolist()) == [-1, 0, 1, 2, 3]
    with pytest.raises(ValueError, match=r"^spurious: expected less than"):
        draw_unlabelled(scores, relation, 1, missed=0.6, spurious=0.6)
    with pytest.raises(ValueError, match=r"^relation: expected"):
        draw_unlabelled(scores, relation[0], 1)
