"""Values and gradients of pair losses against the reference library, in float64."""

from pathlib import Path

import numpy as np
import pytest
import torch

from vicinal import losses
from vicinal.relation import same_class
from vicinal.relation.pairs import other_rows
from vicinal.similarity.base import resolve_similarity

FOLDER = Path(__file__).parents[1] / "golden/losses"
EXACT, CLIPPED = 1e-9, 1e-6
BOTH = {"": "mean", "_sum": "sum"}
NONZERO = {"": "mean_nonzero", "_sum": "sum"}
MEAN = {"": "mean"}


def load(name):
    with np.load(FOLDER / f"{name}.npz") as data:
        return dict(data)


def directions(x):
    return torch.nn.functional.normalize(x, dim=-1)


def scores(kind, x):
    if kind.startswith("unit_"):
        return resolve_similarity(kind.removeprefix("unit_"))(directions(x), directions(x))
    return resolve_similarity(kind)(x, x)


PAIRS = [
    # Cosines of equal rows are 1 but for rounding, which the reference counts as errors that are not 0.
    ("contrastive_cosine", losses.contrastive, "unit_dot", {"pos_margin": 1 + 1e-12}, NONZERO, EXACT),
    ("contrastive_euclid", losses.contrastive, "unit_l2", {"pos_margin": 0, "neg_margin": -1}, NONZERO, EXACT),
    ("margin_loss", losses.margin, "unit_l2", {"boundary": -1.2, "margin": 0.2}, NONZERO, EXACT),
    ("intra_pair_variance", losses.intra_pair_variance, "cosine", {}, BOTH, EXACT),
    ("ranked_list", losses.ranked_list, "unit_l2", "ranked_list", BOTH, EXACT),
    ("ntxent", losses.nt_xent, "cosine", {}, BOTH, EXACT),
    ("supcon", losses.supcon, "cosine", {}, NONZERO, EXACT),
    ("nca", losses.nca, "unit_squared_l2", {}, BOTH, EXACT),
    ("npairs", losses.n_pairs, "cosine", {}, BOTH, EXACT),
    ("lifted_structure", losses.lifted_structure, "unit_l2", {}, BOTH, EXACT),
    ("generalized_lifted_structure", losses.generalized_lifted_structure, "unit_l2", {}, BOTH, EXACT),
    ("multi_similarity", losses.multi_similarity, "cosine", {}, BOTH, EXACT),
    ("circle", losses.circle, "cosine", {}, NONZERO, EXACT),
    ("tuplet_margin", losses.tuplet_margin, "cosine", {}, BOTH, CLIPPED),
    ("triplet_all", losses.triplet, "unit_l2", {}, NONZERO, EXACT),
    ("triplet_all_smooth", losses.triplet, "unit_l2", {"smooth": True}, NONZERO, EXACT),
    ("triplet_all_swap", losses.triplet, "unit_l2", {"swap": True}, NONZERO, EXACT),
    ("fast_ap", losses.fast_ap, "cosine", {}, BOTH, EXACT),
    ("histogram", losses.histogram, "cosine", {"bins": 20}, MEAN, EXACT),
    ("smooth_ap", losses.smooth_ap, "cosine", "smooth_ap", MEAN, EXACT),
    ("dynamic_soft_margin", losses.dynamic_soft_margin, "unit_l2", {"detach": False}, MEAN, EXACT),
    ("pnp_ds", losses.pnp, "cosine", {"variant": "Ds", "temperature": 0.01}, MEAN, EXACT),
]
WITH_SELF = ("smooth_ap", "pnp_ds")  # the reference counts a row as one of its own related columns


def settings(name, data, case):
    if name == "ranked_list":  # the reference adds 1e-5 for each column to what it divides by
        rows = len(data[f"{case}_x"])
        return {"margin": 0.4, "threshold": -1.2, "pos_temperature": 2, "neg_temperature": 3, "smoothing": rows * 1e-5}
    return {"temperature": float(data[f"{case}_temperature"])}


def close(got, want, rtol):
    want = np.asarray(want)
    np.testing.assert_allclose(got.detach().numpy(), want, rtol=rtol, atol=rtol * max(1e-3, np.abs(want).max()))


@pytest.mark.parametrize("case", ["A", "B"])
@pytest.mark.parametrize(
    ("name", "loss", "similarity", "hyper", "reductions", "rtol"), PAIRS, ids=[row[0] for row in PAIRS]
)
def test_pair_loss(name, loss, similarity, hyper, reductions, rtol, case):
    data = load(name)
    labels = torch.from_numpy(data[f"{case}_y"])
    relation = same_class(labels, labels)
    ids = torch.arange(len(labels))
    weight = None if name in WITH_SELF else other_rows(ids, ids)
    hyper = hyper if isinstance(hyper, dict) else settings(name, data, case)
    for suffix, reduction in reductions.items():
        if f"{case}_loss{suffix}" not in data:
            continue
        x = torch.from_numpy(data[f"{case}_x"]).requires_grad_()
        value = loss(scores(similarity, x), relation, weight, reduction=reduction, **hyper)
        value.backward()
        close(value, data[f"{case}_loss{suffix}"], rtol)
        close(x.grad, data[f"{case}_grad{suffix}"], rtol)


@pytest.mark.parametrize("case", ["A", "B"])
@pytest.mark.parametrize("kind", ["hard", "semihard", "batchhard"])
def test_triplets_that_are_chosen(kind, case):
    data = load("triplet_mined")
    x, labels = torch.from_numpy(data[f"{case}_x"]).requires_grad_(), torch.from_numpy(data[f"{case}_y"])
    ids = torch.arange(len(labels))
    value = losses.triplet(
        scores("unit_l2", x),
        same_class(labels, labels),
        other_rows(ids, ids),
        margin=0.2,
        triplets={"hard": "hard", "semihard": "semi-hard", "batchhard": "batch-hard"}[kind],
        reduction="mean_nonzero",
    )
    value.backward()
    close(value, data[f"{case}_loss_{kind}"], EXACT)
    close(x.grad, data[f"{case}_grad_{kind}"], EXACT)


PROXIES = [
    ("normalized_softmax", {}, 1, EXACT),
    ("cosface", {}, 1, EXACT),
    ("arcface", {}, 1, CLIPPED),
    ("subcenter_arcface", {}, 2, CLIPPED),
    ("sphereface", {}, 1, CLIPPED),
    ("large_margin_softmax", {}, 1, CLIPPED),
    ("soft_triple", {}, 2, EXACT),
    ("proxy_nca", {"similarity": "squared_l2", "normalize": True}, 1, EXACT),
    ("proxy_anchor", {}, 1, EXACT),
]


@pytest.mark.parametrize("case", ["A", "B"])
@pytest.mark.parametrize(("name", "hyper", "per_class", "rtol"), PROXIES, ids=[row[0] for row in PROXIES])
def test_proxies(name, hyper, per_class, rtol, case):
    data = load(name)
    proxies = torch.from_numpy(data[f"{case}_W"])
    by_rows = name in ("proxy_nca", "proxy_anchor")
    proxies = proxies if by_rows else proxies.T
    criterion = losses.ProxyLoss(name, len(proxies) // per_class, proxies.shape[1], per_class=per_class, **hyper)
    criterion.proxies = torch.nn.Parameter(proxies.contiguous())
    x, labels = torch.from_numpy(data[f"{case}_x"]).requires_grad_(), torch.from_numpy(data[f"{case}_y"])
    value = criterion(x, labels)
    value.backward()
    close(value, data[f"{case}_loss"], rtol)
    close(x.grad, data[f"{case}_grad"], rtol)
    grad = criterion.proxies.grad if by_rows else criterion.proxies.grad.T
    close(grad, data[f"{case}_grad_W"], rtol)


@pytest.mark.parametrize("case", ["A", "B"])
def test_vicreg(case):
    data = load("vicreg")
    x, other = (torch.from_numpy(data[f"{case}_{name}"]).requires_grad_() for name in ("x", "ref"))
    value = losses.vicreg(x, other)
    value.backward()
    close(value, data[f"{case}_loss"], EXACT)
    close(x.grad, data[f"{case}_grad"], EXACT)
    close(other.grad, data[f"{case}_grad_ref"], EXACT)


@pytest.mark.parametrize("case", ["A", "B"])
def test_angular_but_for_unrelated_columns_that_the_reference_forgets_to_scale(case):
    data = load("angular")
    x, labels = torch.from_numpy(data[f"{case}_x"]).requires_grad_(), torch.from_numpy(data[f"{case}_y"])
    ids = torch.arange(len(labels))
    relation, weight = same_class(labels, labels), other_rows(ids, ids)
    unit, slope = directions(x), np.tan(np.radians(40)) ** 2

    def formula(columns):
        terms = []
        for i, p in (relation * weight).nonzero().tolist():
            apart = columns[relation[i] == 0]
            both = 4 * slope * (apart @ (unit[i] + unit[p])) - 2 * (1 + slope) * (unit[i] @ unit[p])
            terms.append(torch.cat([both, both.new_zeros(1)]).logsumexp(0))
        return torch.stack(terms).mean()

    value = formula(x)
    close(value, data[f"{case}_loss"], EXACT)
    close(torch.autograd.grad(value, x, retain_graph=True)[0], data[f"{case}_grad"], EXACT)
    ours, wanted = losses.angular(scores("cosine", x), relation, weight), formula(directions(x))
    close(ours, wanted.detach(), EXACT)
    gradients = [torch.autograd.grad(loss, x, retain_graph=True)[0] for loss in (ours, wanted)]
    close(gradients[0], gradients[1], EXACT)
