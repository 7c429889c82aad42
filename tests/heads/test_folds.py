"""Promises of members as folds: what a member says of the rows that it leaves out owes nothing to their labels."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vicinal.heads import NONA, Dense, Ensemble, Kriging
from vicinal.heads.folds import FoldMembers
from vicinal.masks import SoftStep, TopK


def heads(count, dim=3, mask="s2"):
    torch.manual_seed(0)
    masks = {"s2": lambda: SoftStep(dim, "s2"), "topk": lambda: TopK(4), None: lambda: None}
    return Ensemble([NONA("l2", masks[mask](), "entmax15") for _ in range(count)]).double()


def data(rows=24, members=4, dim=3, folds=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, members * dim, generator=generator, dtype=torch.float64)
    return x, torch.randn(rows, generator=generator, dtype=torch.float64), torch.arange(rows) % folds


def by_hand(head, folds_count, queries, query_folds, bank, labels, bank_folds, query_ids=None):
    """Each query by each member of its fold alone, on the rows of the other folds alone."""
    said = []
    for row, fold in enumerate(query_folds.tolist()):
        others = bank_folds != fold
        each = []
        for member, one in enumerate(head.heads):
            if member % folds_count == fold:
                columns = slice(member * 3, member * 3 + 3)
                each.append(one(queries[row : row + 1, columns], bank[others][:, columns], labels[others]))
        said.append(torch.stack(each).mean(0))
    return torch.cat(said)


@pytest.mark.parametrize(("members", "folds"), [(4, 4), (4, 2), (6, 4), (5, 2)])
def test_out_of_fold_is_the_mean_of_the_members_that_leave_the_fold_out_over_the_other_rows(members, folds):
    x, y, codes = data(members=members, folds=folds)
    head = heads(members)
    found = FoldMembers(head, members, folds).out_of_fold(x, codes, x, y, codes)
    torch.testing.assert_close(found, by_hand(head, folds, x, codes, x, y, codes))


def test_labels_of_a_fold_change_nothing_that_is_said_of_its_rows():
    x, y, codes = data()
    members = FoldMembers(heads(4), 4, 4)
    other = torch.where(codes == 1, y + 100, y)
    before, after = (members.out_of_fold(x, codes, x, labels, codes) for labels in (y, other))
    assert torch.equal(before[codes == 1], after[codes == 1])
    assert (before[codes != 1] != after[codes != 1]).any()


def test_rows_of_no_fold_are_seen_by_all_members_and_cannot_be_asked_for():
    x, y, codes = data()
    members = FoldMembers(heads(4), 4, 4)
    added = codes.clone()
    added[-4:] = -1
    assert not torch.equal(
        members.out_of_fold(x[:4], codes[:4], x, y, codes), members.out_of_fold(x[:4], codes[:4], x, y, added)
    )
    with pytest.raises(ValueError, match="query_folds: expected folds from 0 to 3"):
        members.out_of_fold(x, added, x, y, added)


@pytest.mark.parametrize("mask", ["s2", "topk", None])
@pytest.mark.parametrize("targets", [None, 2])
@pytest.mark.parametrize("with_groups", [False, True])
def test_training_predictions_are_those_of_each_member_alone(mask, targets, with_groups):
    x, y, codes = data()
    if targets:
        y = torch.stack([y, y.square()], dim=1)
    head = heads(4, mask=mask)
    ids, groups = torch.arange(len(x)), torch.arange(len(x)) // 2 if with_groups else None
    keys = {"query_ids": ids, "bank_ids": ids, "query_groups": groups, "bank_groups": groups}
    found, valid = FoldMembers(head, 4, 4).training_predictions(x, y, codes, **keys)
    assert found.shape == (*y.shape, 4)
    assert valid.shape == (len(x), 4)
    for member, one in enumerate(head.heads):
        mine = codes != member
        assert torch.equal(valid[:, member], mine)
        part = x[mine][:, 3 * member : 3 * member + 3]
        own = {name: None if key is None else key[mine] for name, key in keys.items()}
        torch.testing.assert_close(found[mine][..., member], one(part, part, y[mine], **own))


def test_members_that_differ_train_one_after_the_other_to_the_same_numbers():
    x, y, codes = data()
    ids = torch.arange(len(x))
    keys = {"query_ids": ids, "bank_ids": ids}
    head = heads(4, mask=None)
    stacked, valid = FoldMembers(head, 4, 4).training_predictions(x, y, codes, **keys)
    for one in head.heads:
        one.chunk_size = 7  # streamed: one member at a time
    apart, same = FoldMembers(head, 4, 4).training_predictions(x, y, codes, **keys)
    assert torch.equal(valid, same)
    torch.testing.assert_close(stacked[valid], apart[valid])


def test_rows_without_neighbors_are_not_learned_from_and_leave_the_gradient_finite():
    x, y, codes = data(rows=8)
    x.requires_grad_()
    groups = torch.tensor([0, 0, 0, 0, 0, 0, 0, 1])  # for the member that leaves out row 7's fold, all are one group
    keys = {"query_groups": groups, "bank_groups": groups}
    found, valid = FoldMembers(heads(4), 4, 4).training_predictions(x, y, codes, **keys)
    assert valid[:, 3].sum() == 0
    assert valid[:, 0].sum() == 6
    found[valid].sum().backward()
    assert x.grad.isfinite().all()


def test_gradient_of_a_member_does_not_reach_the_rows_of_its_fold():
    x, y, codes = data()
    y.requires_grad_()
    ids = torch.arange(len(x))
    found, valid = FoldMembers(heads(4), 4, 4).training_predictions(x, y, codes, query_ids=ids, bank_ids=ids)
    found[:, 2][valid[:, 2]].sum().backward()
    assert (y.grad[codes == 2] == 0).all()
    assert (y.grad[codes != 2] != 0).any()


def test_dense_heads_are_folds_too():
    x, y, codes = data()
    head = Ensemble([Dense(3, bias=0.5) for _ in range(4)]).double()
    members = FoldMembers(head, 4, 4)
    found, valid = members.training_predictions(x, y, codes)
    assert torch.equal(valid, codes[:, None] != torch.arange(4))
    said = members.out_of_fold(x, codes, x, y, codes)
    torch.testing.assert_close(said, found[torch.arange(len(x)), codes])


@given(folds=st.sampled_from([2, 4]), seed=st.integers(0, 9))
def test_kriging_out_of_fold_reads_the_columns_of_the_folds_members(folds, seed):
    x, y, codes = data(folds=folds, seed=seed)
    head = Kriging(5, scale=2.0, noise=0.1)
    found = FoldMembers(head, 4, folds).out_of_fold(x, codes, x, y, codes)
    one = Kriging(5, scale=2.0 / np.sqrt(folds), noise=0.1)
    for fold in range(folds):
        columns = torch.cat([torch.arange(3 * m, 3 * m + 3) for m in range(4) if m % folds == fold])
        mine = codes == fold
        want = one(x[mine][:, columns], x[~mine][:, columns], y[~mine])
        torch.testing.assert_close(found[mine], want)
    assert head.log_scale.exp().item() == pytest.approx(2.0)


def test_errors_say_what_was_expected():
    with pytest.raises(ValueError, match="folds: expected a whole number of at most 4, got 5"):
        FoldMembers(heads(4), 4, 5)
    with pytest.raises(TypeError, match="head: expected an Ensemble or a Kriging head, got NONA"):
        FoldMembers(NONA(), 2, 2).part(0)
    with pytest.raises(TypeError, match="head: expected an Ensemble, got Kriging"):
        FoldMembers(Kriging(), 2, 2).training_predictions(torch.zeros(2, 2), torch.zeros(2), torch.arange(2))
