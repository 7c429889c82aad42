"""What the losses of sets, of retrieval and of blocks promise beyond what every pair loss does."""

import numpy as np
import pytest
import torch

from references import pair_losses, set_losses
from vicinal import losses
from vicinal.losses import EmbeddingLoss


def batch(seed=0, n=9, d=5):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=g, dtype=torch.float64)
    labels = torch.arange(n) % 3
    unit = torch.nn.functional.normalize(x, dim=-1)
    return x, labels, unit @ unit.T, (labels[:, None] == labels).double(), 1 - torch.eye(n, dtype=torch.float64)


def reduced(parts, reduction="mean"):
    return pair_losses.reduce(parts, reduction)


# NLSH


def test_nlsh_is_the_triplet_of_two_radii_up_to_its_least_value():
    radius, factor = 0.6, 1.7
    distance = torch.rand(50, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2
    near, far = distance.T
    triplet = near.clamp(min=radius) - far.clamp(max=factor * radius)
    relation = torch.tensor([[1.0, 0.0]]).expand(50, 2)
    ours = losses.nlsh(-distance, relation, radius=radius, factor=factor, reduction="none")
    torch.testing.assert_close(ours, triplet - radius * (1 - factor))
    assert (ours >= 0).all()


def test_nlsh_pulls_nothing_between_its_radii():
    scores = torch.tensor([[-0.2, -1.2, -0.6, -0.7]], requires_grad=True)
    losses.nlsh(scores, torch.tensor([[1.0, 0.0, 1.0, 0.0]]), reduction="sum").backward()
    assert scores.grad.tolist() == [[0.0, 0.0, -1.0, 1.0]]
    one = losses.nlsh(torch.tensor([[-0.5, -0.5]]), torch.tensor([[1.0, 0.0]]), factor=1)
    assert one == 0  # one radius


@pytest.mark.parametrize("similarity", ["l1", "l2"])
def test_nlsh_does_not_see_a_common_shift_of_the_hashes(similarity):
    x, labels, *_ = batch()
    loss = EmbeddingLoss("nlsh", similarity=similarity)
    torch.testing.assert_close(loss(x + 3, labels), loss(x, labels))


def test_nlsh_refuses():
    scores, relation = torch.zeros(1, 2), torch.tensor([[1.0, 0.0]])
    with pytest.raises(ValueError, match=r"^radius: expected a number above 0"):
        losses.nlsh(scores, relation, radius=0)
    with pytest.raises(ValueError, match=r"^factor: expected a number of at least 1"):
        losses.nlsh(scores, relation, factor=0.9)


# SCoRe


@pytest.mark.parametrize("seed", range(3))
def test_facility_location_of_classes_is_the_formula_of_the_paper(seed):
    _, labels, scores, relation, weight = batch(seed)
    weight[:, 4] = weight[4] = 0.0
    weight[2, 0] = weight[2, 3] = weight[2, 6] = 0.0  # nothing of one class is left for row 2
    want = set_losses.facility_location_of_classes(scores.numpy(), labels.tolist(), weight.numpy())
    for reduction in ("mean", "sum", "none"):
        got = losses.facility_location(scores, relation, weight, sets="classes", reduction=reduction)
        np.testing.assert_allclose(got, reduced(want, reduction), rtol=1e-12)
    leaf = scores.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda s: losses.facility_location(s, relation, weight, sets="classes"), (leaf,))


def test_facility_location_of_classes_refuses_what_is_no_partition():
    """Classes are read off the relation, which several labels of a row, or a list of pairs, do not give."""
    scores = torch.rand(5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.tensor([0, 0, 1, 1, 2])
    good = (labels[:, None] == labels).double()
    want = losses.facility_location(scores, good, sets="classes")
    for diagonal in (0.0, 1.0):  # whether a row is related to itself does not matter
        good.fill_diagonal_(diagonal)
        others = 1 - torch.eye(5)
        value = losses.facility_location(scores, good, others, sets="classes")
        torch.testing.assert_close(value, losses.facility_location(scores, good + torch.eye(5), others, sets="classes"))
    assert want.isfinite()
    for row, column, other in ((1, 2, 1.0), (1, 0, 0.0), (4, 0, 1.0)):
        one_way, both_ways = good.clone(), good.clone()
        one_way[row, column] = other
        both_ways[row, column] = both_ways[column, row] = other
        for relation in (one_way, both_ways) if other else (one_way,):
            with pytest.raises(ValueError, match=r"^relation: expected classes.*rows \d and \d"):
                losses.facility_location(scores, relation, sets="classes")
            losses.facility_location(scores, relation)
    several = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 1]])
    with pytest.raises(ValueError, match=r"^relation: expected classes"):
        losses.EmbeddingLoss("facility_location", sets="classes")(scores, several)


def test_facility_location_of_two_classes_knows_no_difference():
    _, _, scores, _, weight = batch()
    labels = torch.tensor([0, 1, 1, 0, 1, 0, 0, 1, 1])
    relation = (labels[:, None] == labels).double()
    one, other = (losses.facility_location(scores, relation, weight, sets=sets) for sets in ("rest", "classes"))
    torch.testing.assert_close(one, other)


@pytest.mark.parametrize("sets", ["rest", "classes"])
def test_facility_location_has_a_gradient_between_classes_only_and_becomes_the_maximum(sets):
    _, labels, scores, relation, weight = batch()
    leaf = scores.clone().requires_grad_()
    losses.facility_location(leaf, relation, weight, sets=sets).backward()
    assert (leaf.grad[relation > 0] == 0).all()
    assert (leaf.grad[relation == 0] > 0).all()
    sharp = losses.facility_location(scores, relation, weight, sets=sets, temperature=1e-4, reduction="none")
    best = torch.stack([scores.masked_fill((relation > 0) | (labels != k), -9).amax(1) for k in range(3)])
    wanted = best.amax(0) if sets == "rest" else torch.where(best > -9, best, 0.0).sum(0)
    torch.testing.assert_close(sharp, wanted, rtol=0, atol=1e-3)


@pytest.mark.parametrize(("name", "hyper"), [("facility_location", {"sets": "classes"}), ("log_det", {})])
def test_sets_do_not_depend_on_order_or_on_names_of_classes(name, hyper):
    x, labels, *_ = batch()
    loss = EmbeddingLoss(name, **hyper)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(loss(x[order], labels[order]), loss(x, labels))
    torch.testing.assert_close(loss(x, torch.tensor([7, 3, 5])[labels]), loss(x, labels))
    with pytest.raises(ValueError, match=r"^scores: expected as many rows as columns"):
        loss(x, labels, x[:4], labels[:4])


@pytest.mark.parametrize("form", ["information", "correlation", "ratio"])
def test_forms_of_graph_cut(form):
    _, _, scores, relation, weight = batch()
    scores = (scores - 1).exp()
    relation[8] = relation[:, 8] = 0.0  # one row without relatives
    for reduction in ("mean", "sum", "none", "mean_nonzero"):
        got = losses.graph_cut(scores, relation, weight, balance=0.7, form=form, reduction=reduction)
        parts = set_losses.graph_cut(scores.numpy(), relation.numpy(), weight.numpy(), 0.7, form)
        np.testing.assert_allclose(got, reduced(parts, reduction), rtol=1e-12)
    leaf = scores.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda s: losses.graph_cut(s, relation, weight, form=form), (leaf,))
    losses.graph_cut(leaf, relation, weight, form=form).backward()
    related = (relation * weight) > 0
    assert (leaf.grad[related] == 0).all() == (form == "correlation")
    assert (leaf.grad[(relation * weight == 0) & (weight > 0)][:40] >= 0).all()


def test_graph_cut_refuses_a_logarithm_of_what_is_not_above_0():
    _, _, scores, relation, weight = batch()
    with pytest.raises(ValueError, match=r"^scores: expected numbers above 0 under the logarithm, got -"):
        losses.graph_cut(scores, relation, weight, form="ratio")
    scores = scores.abs() + 0.1
    scores[2, 5], weight[2, 5] = -1.0, 0.0  # left out, so it may be anything
    assert losses.graph_cut(scores, relation, weight, form="ratio").isfinite()


@pytest.mark.parametrize("seed", range(5))
def test_log_det_is_that_of_each_class_and_never_negative(seed):
    _, labels, scores, relation, weight = batch(seed)
    ridge = 0.3
    of_classes = sum(
        torch.logdet(scores[labels == k][:, labels == k] + ridge * torch.eye(3, dtype=torch.float64)) for k in range(3)
    )
    information = losses.log_det(scores, relation, weight, ridge=ridge, form="information", reduction="sum")
    torch.testing.assert_close(information, of_classes)
    whole = torch.logdet(scores + ridge * torch.eye(9, dtype=torch.float64))
    value = losses.log_det(scores, relation, weight, ridge=ridge, reduction="sum")
    torch.testing.assert_close(value, of_classes - whole)
    assert value >= 0
    shared = torch.linspace(0.2, 1, 9, dtype=torch.float64)
    soft = relation * shared[:, None] * shared  # a positive semidefinite soft relation
    assert losses.log_det(scores, soft, weight, reduction="sum") >= -1e-12
    torch.testing.assert_close(
        losses.log_det(scores, relation, weight) * 9, losses.log_det(scores, relation, weight, reduction="sum")
    )


def test_log_det_is_0_where_classes_are_at_right_angles_and_grows_as_they_meet():
    labels = torch.tensor([0, 0, 1, 1])
    loss = EmbeddingLoss("log_det", reduction="sum")
    apart = torch.tensor([[1.0, 0, 0, 0], [0.8, 0.6, 0, 0], [0, 0, 1, 0], [0, 0, 0.6, 0.8]], dtype=torch.float64)
    assert loss(apart, labels).abs() < 1e-12
    values = [loss(apart + t * torch.ones(4, dtype=torch.float64), labels) for t in (0.1, 0.5, 2.0)]
    assert values == sorted(values)
    assert values[0] > 0


def test_a_row_that_counts_nowhere_is_as_good_as_gone_from_log_det():
    _, _, scores, relation, weight = batch()
    weight[:, 4] = weight[4] = 0.0
    scores[4] = scores[:, 4] = torch.nan
    leaf = scores.clone().requires_grad_()
    value = losses.log_det(leaf, relation, weight)
    value.backward()
    kept = [0, 1, 2, 3, 5, 6, 7, 8]
    fewer = (matrix[kept][:, kept] for matrix in (scores, relation, weight))
    torch.testing.assert_close(value.detach(), losses.log_det(*fewer))
    assert leaf.grad.isfinite().all()


def test_offset_of_log_det_is_a_constant_coordinate():
    x, _, scores, relation, weight = batch()
    unit = torch.nn.functional.normalize(x, dim=-1)
    longer = torch.cat([unit, torch.ones(9, 1, dtype=torch.float64)], dim=1)
    want = losses.log_det(longer @ longer.T, relation, weight)
    torch.testing.assert_close(losses.log_det(scores, relation, weight, offset=1), want)


# KaLM


def test_focus_0_is_nt_xent_in_value_and_gradient():
    _, _, scores, relation, weight = batch()
    leaf = scores.clone().requires_grad_()
    ours, theirs = losses.focal_nt_xent(leaf, relation, weight, focus=0), losses.nt_xent(leaf, relation, weight)
    torch.testing.assert_close(ours, theirs)
    gradients = [torch.autograd.grad(value, leaf)[0] for value in (ours, theirs)]
    torch.testing.assert_close(*gradients)


def test_the_focal_weight_is_in_0_1_falls_with_the_mass_and_passes_no_gradient():
    gap = torch.linspace(-3, 3, 25, dtype=torch.float64)
    scores = torch.stack([gap, torch.zeros_like(gap)], 1).requires_grad_()
    relation = torch.tensor([[1.0, 0.0]]).expand(25, 2)
    plain = losses.nt_xent(scores, relation, temperature=1, reduction="none")
    value = losses.focal_nt_xent(scores, relation, temperature=1, focus=1.5, reduction="none")
    share = (value / plain).detach()
    assert ((share > 0) & (share < 1)).all()
    assert (share.diff() < 0).all()
    torch.testing.assert_close(share, (1 - torch.sigmoid(gap)) ** 1.5)
    wanted = torch.autograd.grad(plain.sum(), scores)[0] * share[:, None]
    torch.testing.assert_close(torch.autograd.grad(value.sum(), scores)[0], wanted)


def test_focal_weight_with_gradient():
    _, _, scores, relation, weight = batch()
    weight[3, relation[3] == 0] = 0.0  # a row without unrelated columns
    leaf = scores.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda s: losses.focal_nt_xent(s, relation, weight, detach=False), (leaf,))
    value = [losses.focal_nt_xent(scores, relation, weight, detach=detach) for detach in (True, False)]
    torch.testing.assert_close(*value)
    for focus in (0.0, 0.5):
        assert losses.focal_nt_xent(scores, relation, weight, focus=focus, reduction="none")[3] == 0
    with pytest.raises(ValueError, match=r"^focus: expected a number of at least 0"):
        losses.focal_nt_xent(scores, relation, focus=-1)


# LMNN


@pytest.mark.parametrize("settings", [{"k": 1, "margin": 0.2}, {"k": 2, "push": 0.9}, {"k": 50, "top": 0.0}])
def test_settings_of_lmnn(settings):
    _, _, scores, relation, weight = batch()
    scores[:, 5] = scores[:, 2]  # ties
    parts = set_losses.lmnn(scores.numpy(), relation.numpy(), weight.numpy(), **settings)
    for reduction in ("mean", "sum", "none", "mean_nonzero"):
        got = losses.lmnn(scores, relation, weight, reduction=reduction, **settings)
        np.testing.assert_allclose(got, reduced(parts, reduction), rtol=1e-9, atol=1e-12)


def test_lmnn_pulls_its_targets_alone_and_pushes_only_those_within_the_margin():
    scores = torch.tensor([[-1.0, -9.0, -1.5, -3.0]], requires_grad=True)
    losses.lmnn(scores, torch.tensor([[1.0, 1.0, 0.0, 0.0]]), k=1, top=0.0, reduction="none").sum().backward()
    assert scores.grad.tolist() == [[-1.0, 0.0, 0.5, 0.0]]


# NGAME


@pytest.mark.parametrize("weighting", ["equal", "softmax"])
@pytest.mark.parametrize("k", [1, 2, 100])
def test_settings_of_ngame(weighting, k):
    _, _, scores, relation, weight = batch()
    scores[:, 5] = scores[:, 1]
    weight = weight * torch.linspace(0.3, 1, 9, dtype=torch.float64)
    settings = {"margin": 0.5, "k": k, "weighting": weighting, "temperature": 0.3}
    parts = set_losses.ngame(scores.numpy(), relation.numpy(), weight.numpy(), **settings)
    for reduction in ("mean", "sum", "none", "mean_nonzero"):
        got = losses.ngame(scores, relation, weight, reduction=reduction, **settings)
        np.testing.assert_allclose(got, reduced(parts, reduction), rtol=1e-12)


def test_ngame_is_the_triplet_of_the_columns_that_a_miner_keeps():
    from vicinal.miners import topk_hard

    _, _, scores, relation, weight = batch()
    mined = topk_hard(scores, relation, weight, k=2, margin=-1e6)
    want = losses.triplet(scores, relation, mined, margin=0.3)
    torch.testing.assert_close(losses.ngame(scores, relation, weight, k=2), want)
    every = losses.triplet(scores, relation, weight, margin=0.3)
    torch.testing.assert_close(losses.ngame(scores, relation, weight, k=50), every)


def test_gradient_of_ngame_with_softmax():
    _, _, scores, relation, weight = batch()
    weight[3, relation[3] == 0] = 0.0  # a row without unrelated columns
    leaf = scores.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda s: losses.ngame(s, relation, weight, weighting="softmax", margin=0.5, temperature=0.4), (leaf,)
    )


def test_ngame_is_0_where_all_margins_hold_and_refuses():
    relation = torch.eye(4)
    assert losses.ngame(torch.eye(4), relation) == 0
    assert losses.ngame(torch.eye(4), relation, weighting="softmax") == 0
    with pytest.raises(ValueError, match=r"^k: expected a whole number of at least 1"):
        losses.ngame(torch.eye(4), relation, k=0)


@pytest.mark.parametrize("size", [1e4, 1e-30])
def test_ngame_with_softmax_is_finite(size):
    _, _, scores, relation, weight = batch()
    leaf = (scores.float() * size).requires_grad_()
    value = losses.ngame(leaf, relation, weight, weighting="softmax", temperature=0.01)
    value.backward()
    assert value.isfinite()
    assert leaf.grad.isfinite().all()


# STAR and ADORE


@pytest.mark.parametrize("cut", [None, 1, 3])
def test_settings_of_adore(cut):
    _, _, scores, relation, weight = batch()
    scores[:, 5] = scores[:, 1]
    parts = set_losses.adore(scores.numpy(), relation.numpy(), weight.numpy(), cut, 0.5)
    for reduction in ("mean", "sum", "none", "mean_nonzero"):
        got = losses.adore(scores, relation, weight, cut=cut, temperature=0.5, reduction=reduction)
        np.testing.assert_allclose(got, reduced(parts, reduction), rtol=1e-12)


def test_adore_weighs_what_the_cut_separates():
    scores = torch.tensor([[4.0, 3.0, 2.0, 1.0]], dtype=torch.float64, requires_grad=True)
    relation = torch.tensor([[1.0, 0.0, 0.0, 1.0]])
    losses.adore(scores, relation, cut=1).backward()
    assert scores.grad[0, 0] < 0  # in order, but at the boundary
    assert scores.grad[0, 3] == 0  # all below the cut
    whole = losses.adore(scores, relation)
    torch.testing.assert_close(losses.adore(scores, relation, cut=4), whole)
    torch.testing.assert_close(losses.adore(scores, relation, cut=99), whole)
    torch.testing.assert_close(losses.adore(scores, relation, torch.ones(1, 4)), whole)
    zero = losses.adore(scores, relation, torch.zeros(1, 4))
    zero.backward()
    assert zero == 0
    with pytest.raises(ValueError, match=r"^cut: expected a whole number of at least 1"):
        losses.adore(scores, relation, cut=0)


# PamC


def graph(seed=0, n=8, k=3):
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(n, 4, generator=g, dtype=torch.float64)
    q = torch.rand(n, k, generator=g, dtype=torch.float64)
    a = (torch.rand(n, n, generator=g, dtype=torch.float64) < 0.4).double() + torch.eye(n)
    return z, q, a / a.sum(1, keepdim=True)


@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_block_contrast_equals_numpy(scale):
    z, q, a = graph()
    q[:, 1] = 0.0  # an empty block
    a[2] = 0.0  # a row without neighbors
    z[5] = 0.0
    want = set_losses.block_contrast(z.numpy(), q.numpy(), a.numpy(), scale)
    for neighbors in (a, a.to_sparse()):
        np.testing.assert_allclose(losses.block_contrast(z, q, neighbors, scale=scale), want, rtol=1e-12)
    fewer = losses.block_contrast(z, q[:, [0, 2]], a, scale=scale)
    np.testing.assert_allclose(fewer, want, rtol=1e-12)


def test_gradient_of_block_contrast():
    z, q, a = graph(1)
    q.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: losses.block_contrast(x, q.detach(), a), (z.requires_grad_(),))
    losses.block_contrast(z, q, a).backward()
    assert q.grad is None
    z = z.detach().clone()
    z[3], q = 0.0, q.detach()
    leaf = z.requires_grad_()
    losses.block_contrast(leaf, q, a).backward()
    assert leaf.grad.isfinite().all()


def test_block_contrast_of_one_block_and_of_rows_in_another_order():
    z, q, a = graph(2)
    one = losses.block_contrast(z, q[:, :1], a)
    unit = torch.nn.functional.normalize(z, dim=-1)
    cosine = (unit @ unit.T) * (1 - torch.eye(8))
    torch.testing.assert_close(one, -(a * cosine.exp()).sum(1).log().mean())  # the other term is log 1
    order = torch.randperm(8, generator=torch.Generator().manual_seed(0))
    moved = losses.block_contrast(z[order], q[order][:, [2, 0, 1]], a[order][:, order])
    torch.testing.assert_close(moved, losses.block_contrast(z, q, a))
    rotated = torch.linalg.qr(torch.randn(4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)).Q
    torch.testing.assert_close(losses.block_contrast(z @ rotated, q, a), losses.block_contrast(z, q, a))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_block_contrast_in_half_precision(dtype):
    z, q, a = graph()
    low = z.to(dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = losses.block_contrast(low, q, a, scale=2)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, losses.block_contrast(low.float(), q, a, scale=2), rtol=0.02, atol=1e-6)
    assert losses.block_contrast(low, q, a, scale=1e4).isfinite()


def test_block_contrast_refuses():
    z, q, a = graph()
    for call, sentence in [
        (lambda: losses.block_contrast(z, q[1:], a), r"^assignment: expected \[8, k\]"),
        (lambda: losses.block_contrast(z, q, a[1:]), r"^neighbors: expected \[8, 8\]"),
        (lambda: losses.block_contrast(z, q, -a), r"^neighbors: expected weights of at least 0"),
        (lambda: losses.block_contrast(z, q, a, scale=0), r"^scale: expected a number above 0"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            call()


def test_block_contrast_goes_along_edges_only():
    """A matrix of all pairs of these rows would take 160 GB."""
    n = 200_000
    row = torch.arange(n).repeat(3)
    edges = torch.stack([row, (row + torch.arange(3).repeat_interleave(n)) % n])
    neighbors = torch.sparse_coo_tensor(edges, torch.full((3 * n,), 1 / 3), (n, n), check_invariants=True)
    z = torch.randn(n, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    losses.block_contrast(z, torch.eye(5)[torch.arange(n) % 5], neighbors).backward()
    assert z.grad.isfinite().all()
