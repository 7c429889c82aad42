"""Losses of retrieval, of sets and of blocks against what the programs of their authors give, in float64."""

from pathlib import Path

import numpy as np
import pytest
import torch

from vicinal import losses
from vicinal.samplers import with_relevant

FOLDER = Path(__file__).parents[1] / "golden"
EXACT = 1e-9


def load(name):
    with np.load(FOLDER / f"{name}.npz") as data:
        return {key: torch.from_numpy(data[key]) if data[key].dtype.kind != "U" else data[key] for key in data}


def close(got, want, rtol=EXACT):
    want = torch.as_tensor(want)
    atol = rtol * max(1e-3, float(want.abs().max()))
    torch.testing.assert_close(got.detach(), want, rtol=rtol, atol=atol)


STAR = {
    "inbatch": (False, False),
    "inbatch_masked": (False, True),
    "star_hard_plus_random": (True, False),
    "star_masked": (True, True),
    "hard_only": ("alone", False),
    "hard_only_masked": ("alone", True),
}


@pytest.mark.parametrize("case", STAR)
def test_star_is_the_smooth_triplet_without_a_margin(case):
    data = load("retrieval/star_pairwise")
    hard, masked = STAR[case]
    q, d, n = (data[name].clone().requires_grad_() for name in ("q", "d", "hard_negs"))
    scores = torch.cat([q @ d.T, q @ n.flatten(0, 1).T], dim=1)  # [4, 4 + 8]
    own = torch.eye(4, dtype=torch.float64)
    relation = torch.cat([own, torch.zeros(4, 8)], dim=1)
    batch = data["rel_pair_mask"] if masked else 1 - own
    others = data["hard_pair_mask"] if masked else torch.ones(4, 8)
    weight = torch.cat([own + batch * (hard != "alone"), others * bool(hard)], dim=1)
    value = losses.triplet(scores, relation, weight, margin=0, smooth=True)
    close(value, data[f"{case}__loss"])
    gradients = torch.autograd.grad(value, (q, d, n), materialize_grads=True)
    for gradient, name in zip(gradients, ("grad_q", "grad_d", "grad_n"), strict=True):
        close(gradient, data[f"{case}__{name}"])


@pytest.mark.parametrize("case", ["cut_all", "cut3"])
def test_adore(case):
    data = load("retrieval/adore_lambda")
    queries = data["queries"].clone().requires_grad_()
    found = with_relevant(data["retrieved_topk"], data["relevant_padded"])
    scores = torch.einsum("bd,bnd->bn", queries, data["passages"][found.columns])
    cut = int(data[f"{case}__metric_cut"])
    given = (scores, found.relation.double(), found.weight.double())
    close(losses.adore(*given, cut=cut, reduction="none"), data[f"{case}__loss_per_query"])
    value = losses.adore(*given, cut=cut)
    value.backward()
    close(value, data[f"{case}__mean_loss"])
    close(queries.grad, data[f"{case}__grad_q"])


def ngame_of(case, **settings):
    data = load("retrieval/ngame_triplet_ohnm")
    scores = data["scores_ties" if case == "ties_k2" else "scores"].clone().requires_grad_()
    own = torch.eye(6, dtype=torch.float64)
    weight = own + (1 - data["target"])  # further related columns are no unrelated ones, and not trained on
    value = losses.ngame(scores, own, weight, k=int(data[f"{case}__k"]), **settings)
    value.sum().backward()
    return data, value, scores.grad


def test_ngame():
    data, value, gradient = ngame_of("mean")
    close(value, data["mean__loss"])
    close(gradient, data["mean__grad"])
    data, value, gradient = ngame_of("none", reduction="none")
    close(value, data["none__loss"].sum(1))
    close(gradient, data["none__grad"])


def test_ngame_with_softmax_but_for_a_constant():
    """The reference takes the mean over k of terms whose weights sum to 1 already: it is smaller by a factor of k."""
    data, value, gradient = ngame_of("softmax", weighting="softmax")
    close(value / 3, data["softmax__loss"])
    close(gradient / 3, data["softmax__grad"])


def test_ngame_shares_what_is_tied_where_the_reference_picks():
    data, value, gradient = ngame_of("ties_k2", reduction="none")
    close(value, data["ties_k2__loss"].sum(1))
    theirs = data["ties_k2__grad"]
    others = torch.tensor([0, 1, 3, 4, 5])
    close(gradient[others], theirs[others])
    assert sorted(theirs[2, others].tolist()) == [0, 0, 0, 1, 1]  # two of five equal columns
    close(gradient[2, others], torch.full((5,), 0.4, dtype=torch.float64))
    close(gradient[2, 2], theirs[2, 2])


def test_ngame_uses_no_related_column_where_there_are_too_few_unrelated_ones():
    """The reference subtracts from related columns and picks them all the same: its k_all has terms of them."""
    data, value, gradient = ngame_of("k_all", reduction="none")
    related = data["target"] > 0
    theirs = data["k_all__grad"]
    assert (theirs[related & ~torch.eye(6, dtype=torch.bool)] != 0).any()
    assert (gradient[related & ~torch.eye(6, dtype=torch.bool)] == 0).all()
    assert (value <= data["k_all__loss"].sum(1) + 1e-12).all()
    gap = (data["scores"] - data["scores"].diagonal()[:, None] + 0.3).relu()
    close(value, (gap * (1 - data["target"])).sum(1))


@pytest.mark.parametrize("tau", [1, 2])
@pytest.mark.parametrize("sparse", [False, True])
def test_block_contrast(tau, sparse):
    data = load("retrieval/pamc")
    z = data["z"].clone().requires_grad_()
    adjacency = data["adj"].to_sparse() if sparse else data["adj"]
    value = losses.block_contrast(z, data["q"], adjacency, scale=tau)
    value.backward()
    close(value, data[f"normal_tau{tau}__loss_{'sparse' if sparse else 'dense'}"])
    close(z.grad, data[f"normal_tau{tau}__grad_z"])


def score_case(kernel):
    data = load("sets/score_submodular")
    features = data["features"].clone().requires_grad_()
    x = torch.cat(torch.unbind(features, dim=1))  # views one after the other
    labels = data["labels"].repeat(2)
    if kernel == "dot":
        scores = x @ x.T
    elif kernel == "rbf":
        scores = (-(x[:, None] - x).square().sum(-1) / x.shape[1]).exp()
    else:
        unit = torch.nn.functional.normalize(x, dim=-1)
        scores = unit @ unit.T
    return data, features, scores, (labels[:, None] == labels).double(), 1 - torch.eye(12, dtype=torch.float64)


def check(data, name, value, features):
    close(value, data[name])
    close(torch.autograd.grad(value, features)[0], data[f"{name}_dx"])


@pytest.mark.parametrize("kernel", ["cos", "rbf"])
def test_facility_location_but_for_masked_zeros_and_a_constant(kernel):
    """The reference multiplies pairs of one class, and a row and itself, by 0 and leaves the zeros in its log-sum."""
    data, features, scores, relation, weight = score_case(kernel)
    each = losses.facility_location(scores, relation, weight, reduction="none")
    theirs = torch.logaddexp(each, relation.sum(1).log())
    check(data, f"fl_{kernel}", 0.7 / 0.07 * 0.5 * theirs.mean(), features)
    exact = losses.facility_location(scores, relation, weight)
    assert 5 * exact < data[f"fl_{kernel}"] - 0.1


def test_graph_cut_but_for_a_constant():
    data, features, scores, relation, weight = score_case("cos")
    value = losses.graph_cut(scores, relation, weight, form="correlation")
    check(data, "gc_cf_cos", 10 * value, features)
    data, features, scores, relation, weight = score_case("rbf")
    check(data, "gc_rbf", 10 * losses.graph_cut(scores, relation, weight, form="ratio"), features)


def test_log_det():
    data, features, scores, relation, weight = score_case("dot")
    check(data, "logdet_cf", losses.log_det(scores, relation, weight, reduction="sum"), features)


def test_log_det_of_the_classes_alone_has_the_other_sign_and_a_constant():
    """The reference makes the volume of the classes large in this form (factor -10 over the number of classes)."""
    data, features, scores, relation, weight = score_case("dot")
    value = losses.log_det(scores, relation, weight, form="information", reduction="sum")
    check(data, "logdet_ti", -10 / 3 * value, features)
