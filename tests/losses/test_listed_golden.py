"""Values and gradients of the losses of recent papers against their public code, in float64."""

import math
from pathlib import Path

import mpmath
import numpy as np
import pytest
import torch

from vicinal import losses, masks
from vicinal.losses import EmbeddingLoss, ProxyLoss
from vicinal.miners import within_fences
from vicinal.similarity import NegativeSNR

FOLDER = Path(__file__).parents[1] / "golden"
both = pytest.mark.parametrize("case", ["A", "B"])


def load(name):
    with np.load(FOLDER / f"{name}.npz") as data:
        return dict(data)


def close(got, want, rtol=1e-9):
    want = np.asarray(want)
    np.testing.assert_allclose(got.detach().numpy(), want, rtol=rtol, atol=rtol * max(1e-3, np.abs(want).max()))


@both
@pytest.mark.parametrize("suffix", ["", "_sum"])
def test_tcm_is_reduced_by_its_own_means_whatever_the_reducer(case, suffix):
    data = load("losses/tcm")
    x, labels = torch.from_numpy(data[f"{case}_x"]).requires_grad_(), torch.from_numpy(data[f"{case}_y"])
    value = EmbeddingLoss("tcm")(x, labels)
    value.backward()
    close(value, data[f"{case}_loss{suffix}"])
    close(x.grad, data[f"{case}_grad{suffix}"])


@both
@pytest.mark.parametrize("name", ["contrastive_snr", "contrastive_snr_normalised"])
@pytest.mark.parametrize(("suffix", "reduction"), [("", "mean_nonzero"), ("_sum", "sum")])
def test_contrastive_by_noise_over_signal(name, case, suffix, reduction):
    data = load(f"losses/{name}")
    x, labels = torch.from_numpy(data[f"{case}_x"]).requires_grad_(), torch.from_numpy(data[f"{case}_y"])
    hyper = {"pos_margin": 0, "neg_margin": -1, "reduction": reduction, "normalize": name.endswith("normalised")}
    value = EmbeddingLoss("contrastive", similarity="snr", **hyper)(x, labels)
    value.backward()
    close(value, data[f"{case}_loss{suffix}"])
    close(x.grad, data[f"{case}_grad{suffix}"])


@both
def test_noise_over_signal(case):
    data = load("losses/distances")
    x, other = torch.from_numpy(data[f"{case}_x"]), torch.from_numpy(data[f"{case}_y_ref"])
    close(-NegativeSNR()(x, other), data[f"{case}_snr"])
    unit = [torch.nn.functional.normalize(rows) for rows in (x, other)]
    close(-NegativeSNR()(*unit), data[f"{case}_snr_normalised"])


@both
@pytest.mark.parametrize(
    ("name", "loss"),
    [
        ("dexml_decoupled_softmax", losses.decoupled_softmax),
        ("dexml_softmax", losses.summed_softmax),
        ("dexml_bce", losses.pair_cross_entropy),
        ("dexml_topk", losses.soft_topk),
    ],
)
def test_many_labels(name, loss, case):
    if (name, case) == ("dexml_topk", "B"):
        return  # the next test
    data = load(f"losses/{name}")
    scores, relation = torch.from_numpy(data[f"{case}_scores"]).requires_grad_(), data[f"{case}_relation"]
    hyper = {"k": int(data[f"{case}_k"]), "alpha": float(data["hp_alpha"])} if name == "dexml_topk" else {}
    value = loss(scores, torch.from_numpy(relation).double(), **hyper)
    value.backward()
    close(value, data[f"{case}_loss"])
    close(scores.grad, data[f"{case}_grad"])


def exact_logs(scores, k, alpha):
    """The logarithm of m of a row and 1 - m, with 130 digits."""
    with mpmath.workdps(130):
        s = [mpmath.mpf(float(x)) for x in scores]
        low, high = -max(s) - 60, -min(s) + 60
        for _ in range(420):
            middle = (low + high) / 2
            less = sum(1 / (1 + mpmath.exp(-alpha * (x + middle))) for x in s) < k
            low, high = (middle, high) if less else (low, middle)
        logits = [alpha * (x + low) for x in s]
        return [-mpmath.log1p(mpmath.exp(-z)) for z in logits], [1 / (1 + mpmath.exp(z)) for z in logits]


def exact_slopes(scores, slopes, k, alpha):
    """Gradient of the sum of slopes times log m, with 130 digits."""
    _, rest = exact_logs(scores, k, alpha)
    with mpmath.workdps(130):
        own = [alpha * r * mpmath.mpf(float(g)) for r, g in zip(rest, slopes, strict=True)]
        flow = [r * (1 - r) for r in rest]
        return np.array([float(o - f * sum(own) / sum(flow)) for o, f in zip(own, flow, strict=True)])


def test_soft_topk_loss_where_the_reference_loses_its_digits():
    """WRONG AT THE SOURCE: dexml_topk case B, row 2, whose scores are multiplied by 50.

    Its soft choice is hard to the last digit of float64. There the sum of the values rounds to k for a whole range of
    shifts, of which the reference's bisection takes an end, while the true shift lies inside; log m of a column that is
    not chosen moves with it. Against 130 digits ours is exact and the reference is 3 % off in value.
    """
    data = load("losses/dexml_topk")
    relation, k, alpha = data["B_relation"], int(data["B_k"]), float(data["hp_alpha"])
    scores = torch.from_numpy(data["B_scores"]).requires_grad_()
    rows = losses.soft_topk(scores, torch.from_numpy(relation).double(), k=k, alpha=alpha, reduction="none")
    exact = [
        float(-sum(v * r for v, r in zip(exact_logs(s, k, alpha)[0], p, strict=True)) / p.sum())
        for s, p in zip(data["B_scores"], relation, strict=True)
    ]
    close(rows, exact)
    rows.mean().backward()
    slopes = [exact_slopes(s, -p / p.sum() / 3, k, alpha) for s, p in zip(data["B_scores"], relation, strict=True)]
    close(scores.grad, slopes)
    close(scores.grad[:2], data["B_grad"][:2])
    assert abs(float(data["B_loss"]) - np.mean(exact)) > 0.02 * np.mean(exact)


@both
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("alpha", [1, 4])
def test_soft_topk(case, k, alpha):
    """WRONG AT THE SOURCE: the logarithms of case B in its last row, multiplied by 50, for the reason above."""
    data = load("losses/soft_topk")
    scores, slopes = torch.from_numpy(data[f"{case}_scores"]).requires_grad_(), torch.from_numpy(data[f"{case}_w"])
    start = f"{case}_k{k}_a{alpha}_"
    mask = masks.soft_topk(scores, k, alpha=alpha)
    close(mask, data[start + "mask"])
    close(torch.autograd.grad((slopes * mask).sum(), scores)[0], data[start + "grad"])
    logs = masks.log_soft_topk(scores, k, alpha=alpha)
    slope = torch.autograd.grad((slopes * logs).sum(), scores)[0]
    same = slice(None) if case == "A" else slice(2)
    close(logs[same], data[start + "logmask"][same])
    close(slope[same], data[start + "loggrad"][same])
    if case == "B":
        row = data["B_scores"][2]
        close(logs[2], np.array([float(v) for v in exact_logs(row, k, alpha)[0]]))
        exact = exact_slopes(row, data["B_w"][2], k, alpha)
        close(slope[2], exact)
        assert alpha == 1 or np.abs(data[start + "loggrad"][2] - exact).max() > 0.1


@both
def test_unpg(case):
    data = load("losses/unpg_cosface")
    proxies, labels = torch.from_numpy(data[f"{case}_W"]), torch.from_numpy(data[f"{case}_y"])
    hyper = {"margin": float(data[f"{case}_m"]), "scale": float(data["hp_s"]), "reach": float(data["hp_wisk"])}
    criterion = ProxyLoss("unpg", *proxies.shape, **hyper)
    criterion.proxies = torch.nn.Parameter(proxies)
    x = torch.from_numpy(data[f"{case}_x"]).requires_grad_()
    value = criterion(x, labels)
    value.backward()
    close(value, data[f"{case}_loss"])
    close(x.grad, data[f"{case}_grad"])
    pairs = torch.from_numpy(data[f"{case}_neg_similarities"])
    kept = pairs[within_fences(pairs, torch.ones_like(pairs, dtype=torch.bool), 1.5)]
    close(kept.sort().values, data[f"{case}_kept_sorted"])


@pytest.mark.parametrize("name", ["cosface", "cosface_tight", "arcface", "two_classes"])
def test_unpg_of_several_heads_and_reaches(name):
    data = load("retrieval/unpg")
    proxies, labels = torch.from_numpy(data["weight"]), torch.from_numpy(data[f"{name}__labels"])
    margin = float(data[f"{name}__m"])
    hyper = {"margin": 0.0, "angle": math.degrees(margin)} if name == "arcface" else {"margin": margin}
    criterion = ProxyLoss(
        "unpg", *proxies.shape, scale=float(data[f"{name}__s"]), reach=float(data[f"{name}__wisk"]), **hyper
    )
    criterion.proxies = torch.nn.Parameter(proxies)
    x = torch.from_numpy(data["x"]).requires_grad_()
    value = criterion(x, labels)
    value.backward()
    close(value, data[f"{name}__loss"])
    close(x.grad, data[f"{name}__grad_x"])
    close(criterion.proxies.grad, data[f"{name}__grad_weight"])
