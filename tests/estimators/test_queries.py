"""Rows that are ranked within queries: whole lists in batches, folds and losses, and what has no order."""

import numpy as np
import pandas as pd
import pytest
import torch

from vicinal import NeighborRegressor, links, losses
from vicinal.estimators.loss import OfLists
from vicinal.estimators.queries import ranked_rows
from vicinal.training.rows import GroupBatches, Rows

QUERIES = np.repeat(np.arange(12), 5)
X = np.random.default_rng(0).normal(size=(60, 2))
Y = np.round(X[:, 0])


def test_queries_of_one_row_or_grade_are_left_out_and_counted():
    some, said = ranked_rows(["a", "b", "a", "c", "c"], [0.0, 1.0, 2.0, 3.0, 3.0])
    assert some.tolist() == [True, False, True, False, False]
    assert said == "2 of 3 queries have one row or one grade, so no order, and are left out (3 rows)"
    assert ranked_rows(["a", "a"], [0.0, 1.0])[1] == ""
    with pytest.raises(ValueError, match=r"^queries: expected some with rows of different grades, got 2"):
        ranked_rows(["a", "b"], [0.0, 1.0])


def test_a_fit_has_only_rows_of_ranked_queries_and_these_are_its_groups():
    y = Y.copy()
    y[:5], y[5:10] = 1.0, np.arange(5)
    with pytest.warns(UserWarning, match=r"^queries: \d+ of 12 queries have one row or one grade|^queries: 1 of 12"):
        model = NeighborRegressor(metric="kernel").fit(pd.DataFrame(X, columns=["a", "b"]), y, queries=QUERIES)
    assert set(range(5)).isdisjoint(model.bank_.ids.tolist())  # ids are those of all rows
    assert 5 in model.bank_.ids
    at = model.bank_.keys_of(np.arange(5, 10))
    assert len(set(model.bank_.store.group_codes[at].tolist())) == 1


def test_a_loss_of_lists_compares_rows_of_one_query_only():
    scores, grades, queries = torch.tensor([0.1, 0.5, 0.9, 0.2]), torch.tensor([0.0, 1.0, 0.5, 0.0]), [3, 1, 3, 1]
    loss = OfLists(losses.PlackettLuceLoss(), -1.0, 1.0)
    lists = -1 + 2 * torch.tensor([[0.5, 0.2], [0.1, 0.9]])
    want = losses.PlackettLuceLoss()(lists, torch.tensor([[1.0, -1.0], [-1.0, 0.0]]))
    torch.testing.assert_close(loss(scores, grades, torch.tensor(queries)), want)
    squares = OfLists(losses.PointwiseRankingLoss(links.Identity()), 0.0, 1.0)
    grades = torch.tensor([0.0, 1.0, 0.0, 0.0])  # the list of one grade is left out
    torch.testing.assert_close(squares(scores, grades, torch.tensor(queries)), torch.tensor((0.5**2 + 0.2**2) / 4))


def test_batches_hold_whole_groups_and_every_row_once():
    groups = torch.tensor([4, 4, 7, 7, 7, 9, 1, 1])
    batches = GroupBatches(groups, 3, seed=0)
    for _ in range(4):
        batches.set_epoch(batches.epoch + 1)
        drawn = list(batches)
        assert sorted(row for batch in drawn for row in batch) == list(range(8))
        assert len(drawn) == len(batches)
        for batch in drawn:
            inside = set(groups[batch].tolist())
            assert len(inside) > 1
            assert len(batch) == sum(int((groups == one).sum()) for one in inside)


def test_rows_that_stop_training_are_whole_groups():
    groups = torch.arange(20).repeat_interleave(5)
    rows = Rows(None, torch.zeros(100), torch.arange(100), groups)
    some = rows.spread(30, whole=True)
    assert torch.equal(some.groups.bincount()[some.groups.unique()], torch.full((6,), 5))


TRAINED = {"hidden": (8,), "members": 2, "max_epochs": 6, "learning_rate": 2e-2, "batch_size": 20}


@pytest.mark.parametrize("loss", ["plackett_luce", "listwise"])
def test_lists_train_a_network_that_orders_new_queries(loss):
    model = NeighborRegressor(loss=loss, **TRAINED).fit(X, Y, queries=QUERIES)
    assert model.metric_ == "network"
    new = np.c_[np.linspace(-1.5, 1.5, 5), np.zeros(5)]
    assert np.corrcoef(model.predict(new, groups=["new"] * 5), new[:, 0])[0, 1] > 0.8


def test_preferences_are_queries_of_two_rows():
    preferred = X.reshape(30, 2, 2)[:, :, 0].argmax(axis=1)  # of two rows the one with more of the first column
    grades = np.eye(2)[preferred].reshape(-1)
    model = NeighborRegressor(loss="pairwise", **TRAINED).fit(X, grades, queries=np.arange(60) // 2)
    more, less = np.random.default_rng(1).normal(size=(2, 50, 2))
    more[:, 0], less[:, 0] = np.maximum(more[:, 0], less[:, 0]), np.minimum(more[:, 0], less[:, 0])
    scores = model.predict(np.r_[more, less], groups=list(range(50)) * 2)
    assert (scores[:50] > scores[50:]).mean() > 0.85


@pytest.mark.parametrize(
    ("settings", "rows", "message"),
    [
        ({}, {"queries": QUERIES, "groups": QUERIES}, r"^groups: expected none with queries"),
        ({}, {"queries": QUERIES[:5]}, r"^queries: expected 60, one a row, got 5"),
        ({}, {"queries": np.arange(60)}, r"^queries: expected some with rows of different grades"),
        ({"loss": "soft_ranks"}, {}, r"^queries: expected at least 3 for 'soft_ranks', .* got none; say fit"),
        ({"loss": "listwise"}, {"groups": QUERIES > 5}, r"^queries: expected at least 3 .* got 2"),
        (
            {"loss": "pairwise", "validation_fraction": 0},
            {"queries": QUERIES},
            r"^validation_fraction: .* a loss of lists",
        ),
    ],
)
def test_what_cannot_be_ranked_is_refused(settings, rows, message):
    with pytest.raises(ValueError, match=message):
        NeighborRegressor(max_epochs=1, **settings).fit(X, Y, **rows)


def test_weights_of_single_rows_do_not_go_with_lists():
    with pytest.raises(ValueError, match=r"^loss: expected one of single rows"):
        NeighborRegressor(loss="plackett_luce").fit(X, Y, queries=QUERIES, sample_weight=1 + np.arange(60))
    with pytest.raises(ValueError, match=r"^y: expected one finite grade for each of 60 rows"):
        NeighborRegressor().fit(X, np.array(["a"] * 60), queries=QUERIES)
