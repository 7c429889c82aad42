"""One test per promise of a loss of class scores, each over every registered one; and each beside stored values."""

import inspect
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from references import class_losses as reference
from vicinal import losses
from vicinal.core import entries, entry
from vicinal.losses import ALDRKL, ClassLoss, label_phi, worst_inputs
from vicinal.losses.contract import own_settings

GOLDEN = Path(__file__).parents[1] / "golden/losses"
ENTRIES = entries("class_loss")
each = pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.name)
K = 5
MANY = {
    "comp_sum": [{"tau": t} for t in (0.0, 0.5, 1.0, 1.7, 2.0)] + [{"rho": 2.0}],
    "smooth_adversarial": [{"tau": 2.0, "nu": 3.0}],
    "z_loss": [{"sharpness": 0.7, "location": 1.0}],
    "tempered": [{"t1": 0.0, "t2": 2.0}, {"t1": 1.0, "t2": 1.0}],
    "bi_tempered": [{"t1": 0.0, "t2": 3.0}, {"t1": 1.0, "t2": 1.0}],
    "ldr_kl": [{"temperature": t, "margin": 0.1} for t in (0.0, 0.1)] + [{"normalize": True}],
    "ldr_k": [{"k": k} for k in (1, 3, 9)],
    "aldr_kl": [{"alpha": 3.0, "normalize": False}],
    "normalized_ce": [{"passive": p, "a": 6.0} for p in ("none", "aul", "rce")],
    "margin_surrogate": [
        {"form": form}
        for form in (
            "hinge",
            "exp",
            "exp_hinge",
            "log_hinge",
            "inverse_hinge",
            "inverse_log_hinge",
            "sqrt_hinge",
            "focal",
        )
    ],
    "label_correlation": [{"factor": 2.0}],
}


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


PHI = label_phi((normal(40, K, seed=8) > 0.3).double())


def extra(entry, b):
    """Settings that cannot be left out, or that a test of rows must fix."""
    if entry.name == "smooth_adversarial":
        return {"perturbed": normal(b, K, seed=5)}
    if entry.name == "ensloss":
        return {"shape": 0.5, "draws": normal(b, K, seed=6)}
    return {"correlation": PHI} if entry.name == "label_correlation" else {}


def batch(entry, b=6, seed=0):
    scores = 2 * normal(b, K, seed=seed)
    if "several-labels" in entry.facts:
        return scores, (normal(b, K, seed=seed + 50) > 0).long()
    return scores, torch.arange(b) % K


def run(entry, scores, target, *args, **settings):
    return entry.factory(scores, target, *args, **{**extra(entry, len(scores)), **settings})


def numbers(settings, row):
    """Settings of one row, in numpy."""
    arrays = {k: v.numpy() if isinstance(v, torch.Tensor) else v for k, v in settings.items()}
    return {k: v[row] if k == "perturbed" else v for k, v in arrays.items()}


@each
def test_equals_numpy_reference(entry):
    if entry.name == "ensloss":
        pytest.skip("its slopes are drawn: see test_ensloss_of_stored_draws")
    scores, target = batch(entry)
    for settings in [{}, *MANY.get(entry.name, [])]:
        settings = {**extra(entry, len(scores)), **settings}
        got = entry.factory(scores, target, reduction="none", **settings)
        rows = zip(scores.numpy(), target.numpy(), strict=True)
        want = [getattr(reference, entry.name)(s, y, **numbers(settings, i)) for i, (s, y) in enumerate(rows)]
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12, err_msg=str(settings))


@each
def test_gradcheck(entry):
    scores, target = batch(entry, seed=1)
    valid = torch.ones(6, K, dtype=torch.bool)
    valid[0, 3], valid[2, 4] = False, False
    valid[5] = False
    mixed = target if target.ndim == 2 else (functional.one_hot(target, K) + 0.4 * (normal(6, K) > 0.8)).clamp(max=1)
    scores.requires_grad_()
    for settings in [{}, *MANY.get(entry.name, [])]:
        stopped = entry.name in ("aldr_kl", "ensloss")
        if stopped and entry.name == "aldr_kl":
            settings = {**settings, "alpha": 1e9}  # else a factor passes no gradient, which numbers would see
        if entry.name == "ensloss":
            break
        for labels in (target, mixed):
            made = lambda s: run(entry, s, labels, None, valid, **settings)  # noqa: B023
            assert torch.autograd.gradcheck(made, (scores,), fast_mode=True), settings


@each
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_extreme_and_flat_rows_are_finite_and_half_is_computed_in_float32(entry, dtype):
    """Scores of 1e4, a tie at the top, a flat row, all zeros: value and gradient."""
    scores = torch.zeros(6, K, dtype=dtype)
    scores[0, :2], scores[1, 1], scores[2, 3], scores[3], scores[4] = 1e4, -1e4, 1e4, 3.0, -1e4
    _, target = batch(entry)
    for settings in [{}, *MANY.get(entry.name, [])]:
        if dtype == torch.float16 and (settings.get("tau", 1.0) < 1 or settings.get("form") == "exp"):
            continue  # slopes of e^60 are beyond what float16 holds
        x = scores.clone().requires_grad_()
        value = run(entry, x, target, **settings)
        assert value.dtype == torch.float32
        assert value.isfinite(), settings
        value.backward()
        assert x.grad.isfinite().all(), settings
    narrow, _ = batch(entry)
    narrow = narrow.to(dtype)
    torch.testing.assert_close(run(entry, narrow, target), run(entry, narrow.float(), target))


@each
def test_one_row_no_rows_and_one_class(entry):
    scores, target = batch(entry)
    rows = run(entry, scores, target, reduction="none")
    alone = {k: v[:1] if k in ("perturbed", "draws") else v for k, v in extra(entry, 6).items()}
    one = entry.factory(scores[:1], target[:1], **alone)
    if entry.name != "ensloss":  # its slopes go by rank in the batch
        torch.testing.assert_close(one, rows[0])
    none = {k: v[:0] if k in ("perturbed", "draws") else v for k, v in extra(entry, 6).items()}
    empty = scores[:0].clone().requires_grad_()
    value = entry.factory(empty, target[:0], **none)
    assert value == 0
    value.backward()
    single = normal(3, 1).requires_grad_()
    settings = {k: v[: 1 if k == "correlation" else 3, :1] for k, v in extra(entry, 6).items() if k != "shape"}
    labels = torch.ones(3, 1) if target.ndim == 2 else torch.zeros(3, dtype=torch.long)
    value = entry.factory(single, labels, **settings)
    assert value.isfinite()
    value.backward()
    assert single.grad.isfinite().all()


@each
def test_a_class_that_is_masked_is_as_good_as_gone_whatever_its_score(entry):
    if entry.name == "ensloss":
        pytest.skip("its slopes go by rank in the batch")
    scores, target = batch(entry)
    target = torch.tensor([0, 1, 3, 4, 0, 1]) if target.ndim == 1 else target
    keep = [0, 1, 3, 4]
    valid = torch.ones(6, K, dtype=torch.bool)
    valid[:, 2] = False
    less = {k: v[:, keep] for k, v in extra(entry, 6).items()}
    if "correlation" in less:
        less["correlation"] = less["correlation"][keep]
    small = torch.tensor([keep.index(y) for y in target.tolist()]) if target.ndim == 1 else target[:, keep]
    want = entry.factory(scores[:, keep], small, **less)
    for filler in (torch.inf, -torch.inf, torch.nan, 7.0):
        spoiled = scores.clone()
        spoiled[:, 2] = filler
        spoiled.requires_grad_()
        value = run(entry, spoiled, target, None, valid)
        torch.testing.assert_close(value, want)
        value.backward()
        assert spoiled.grad.isfinite().all()
        assert (spoiled.grad[:, 2] == 0).all()
    none = valid.clone()
    none[1] = False
    rows = run(entry, scores, target, None, none, reduction="none")
    assert rows[1] == 0
    torch.testing.assert_close(run(entry, scores, target, None, none), rows.sum() / 5)


@each
def test_weights_and_reductions(entry):
    scores, target = batch(entry)
    rows = run(entry, scores, target, reduction="none")
    weight = torch.tensor([1.0, 0.0, 2.0, 0.5, 1.0, 0.0], dtype=torch.float64)
    torch.testing.assert_close(run(entry, scores, target), rows.mean())
    torch.testing.assert_close(run(entry, scores, target, reduction="sum"), rows.sum())
    torch.testing.assert_close(run(entry, scores, target, weight), (rows * weight).sum() / weight.sum())
    assert run(entry, scores, target, 0 * weight) == 0
    module = ClassLoss(entry.name, reduction="sum", **extra(entry, 6))
    torch.testing.assert_close(module(scores, target, weight), (rows * weight).sum())
    assert entry.name in repr(module)


@each
def test_labels_as_classes_and_as_columns_are_the_same_and_shares_are_weighted_means(entry):
    scores, _ = batch(entry)
    classes = torch.arange(6) % K
    columns = functional.one_hot(classes, K)
    want = run(entry, scores, classes, reduction="none")
    for form in (columns, columns.bool(), columns.bfloat16()):
        torch.testing.assert_close(run(entry, scores, form, reduction="none"), want)
    if "several-labels" in entry.facts:
        return
    shares = torch.zeros(6, K)
    shares[:, 1], shares[:, 3] = 0.25, 0.5
    shares[4] = 0
    each_class = [run(entry, scores, torch.full((6,), k), reduction="none") for k in (1, 3)]
    got = run(entry, scores, shares, reduction="none")
    active = torch.tensor([1, 1, 1, 1, 0, 1], dtype=torch.bool)
    torch.testing.assert_close(got[active], (each_class[0] / 3 + 2 * each_class[1] / 3)[active])
    assert got[4] == 0
    torch.testing.assert_close(run(entry, scores, shares), got[active].mean())


@each
def test_the_order_of_rows_and_of_classes_changes_nothing(entry):
    scores, target = batch(entry)
    order, classes = torch.tensor([3, 0, 5, 1, 4, 2]), torch.tensor([2, 4, 0, 3, 1])
    settings = extra(entry, 6)
    if entry.name == "ensloss":  # the draws are sorted, so that theirs does not matter either
        shuffled = settings
    else:
        shuffled = {
            k: v[order][:, classes] if k == "perturbed" else v[classes][:, classes] for k, v in settings.items()
        }
    moved = classes.argsort()[target[order]] if target.ndim == 1 else target[order][:, classes]
    got = entry.factory(scores[order][:, classes], moved, reduction="none", **shuffled)
    torch.testing.assert_close(got, run(entry, scores, target, reduction="none")[order])


@each
def test_declared_invariances(entry):
    scores, target = batch(entry)
    want = run(entry, scores, target, reduction="none")
    settings = {k: v + 0.7 if k == "perturbed" else v for k, v in extra(entry, 6).items()}
    shifted = entry.factory(scores + 0.7, target, reduction="none", **settings)
    assert torch.allclose(shifted, want) == ("score-shift-invariant" in entry.facts or entry.name == "ldr_kl")
    scaled = run(entry, 3 * scores, target, reduction="none")
    assert torch.allclose(scaled, want) == ("score-scale-invariant" in entry.facts)


@each
def test_errors_name_the_argument(entry):
    scores, target = batch(entry)
    for call, sentence in [
        (lambda: run(entry, scores[0], target), r"^scores: expected floating numbers \[b, K\]"),
        (lambda: run(entry, scores, torch.zeros(4, dtype=torch.long)), r"^target: expected whole numbers \[6\]"),
        (lambda: run(entry, scores, torch.full((6,), 9)), "^target: expected classes 0 to 4, got 9 to 9"),
        (lambda: run(entry, scores, torch.full((6, K), 2.0)), "^target: expected numbers from 0 to 1"),
        (lambda: run(entry, scores, target, torch.ones(3)), "^weight: expected"),
        (lambda: run(entry, scores, target, None, torch.ones(6, 2, dtype=torch.bool)), "^valid: expected"),
        (lambda: run(entry, scores, target, reduction="men"), "^reduction: expected"),
        (lambda: ClassLoss(entry.name, temprature=1), "^setting: expected"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            call()


@each
def test_it_tells_its_formula_paper_and_settings(entry):
    assert "$" not in entry.summary
    assert "$" in entry.formula
    assert entry.paper
    assert entry.verified
    doc = inspect.getdoc(entry.factory)
    assert all(f"\n    {name}: " in doc for name in own_settings(entry.factory))
    assert ("econstructed" in doc) == ("reconstructed" in entry.verified)


# Stored values.

LDR = {
    "gce_q0.7": ("comp_sum", {"tau": 1.7}),
    "gce_trunc_q0.7_k0.3": ("truncated_gce", {"q": 0.7, "cutoff": 0.3}),
    "js_loss": ("js_loss", {}),
    "sce_ldr": ("symmetric_ce", {}),
    "nce_agce": ("normalized_ce", {"passive": "agce", "a": 3.0}),
    "nce_aul": ("normalized_ce", {"passive": "aul", "a": 6.0}),
    "nce_rce": ("normalized_ce", {"passive": "rce"}),
    "weston_watkins": ("weston_watkins", {}),
    "crammer_singer": ("ldr_kl", {"temperature": 0.0, "margin": 1.0}),
    "ce_logmeanexp": ("ldr_kl", {"margin": 0.0}),
    "ldr_kl_lambda0.1": ("ldr_kl", {"temperature": 0.1, "margin": 0.1, "normalize": True}),
    "ldr_kl_normalised": ("ldr_kl", {"normalize": True}),
}


def same(value, x, want, grad):
    value.backward()
    torch.testing.assert_close(value.detach(), torch.from_numpy(np.asarray(want)), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(x.grad, torch.from_numpy(grad), rtol=1e-9, atol=1e-9 * max(1.0, np.abs(grad).max()))


@pytest.mark.parametrize("case", "AB")
@pytest.mark.parametrize("name", LDR)
def test_values_of_the_ldr_code(name, case):
    method, settings = LDR[name]
    with np.load(GOLDEN / f"{name}.npz") as data:
        x = torch.from_numpy(data[f"{case}_logits"]).requires_grad_()
        value = entry("class_loss", method).factory(x, torch.from_numpy(data[f"{case}_y"]), **settings)
        same(value, x, data[f"{case}_loss"], data[f"{case}_grad"])


@pytest.mark.parametrize("case", "AB")
def test_temperatures_of_rows_that_come_again(case):
    with np.load(GOLDEN / "aldr_kl.npz") as data:
        x, y = (torch.from_numpy(data[f"{case}_{key}"]) for key in ("logits", "y"))
        loss, ids = ALDRKL(9).double(), torch.arange(len(x)) + 2
        for step in (1, 2):
            x = x.detach().requires_grad_()
            torch.testing.assert_close(
                losses.aldr_kl(x, y, temperatures=loss.temperatures[ids]), loss.eval()(x, y, ids)
            )
            same(loss.train()(x, y, ids), x, data[f"{case}_loss_step{step}"], data[f"{case}_grad_step{step}"])
            want = torch.from_numpy(data[f"{case}_lambda_step{step}"])[:, 0]
            torch.testing.assert_close(loss.temperatures[ids], want, rtol=1e-9, atol=1e-12)
    assert (loss.temperatures[:2] == 1).all()
    before = loss.temperatures.clone()
    loss.eval()(x, y, ids)
    assert torch.equal(loss.temperatures, before)
    copy = ALDRKL(9).double()
    copy.load_state_dict(loss.state_dict())
    assert torch.equal(copy.temperatures, before)
    for wrong, sentence in [(ids.float(), "whole numbers"), (ids + 9, "0 to 8"), (ids * 0, "twice")]:
        with pytest.raises(ValueError, match=f"^ids: expected .*{sentence}"):
            loss(x, y, wrong)


FORMS = {
    "margin_bin_focal": "focal",
    "margin_exp": "exp",
    "margin_exp_hinge": "exp_hinge",
    "margin_hinge": "hinge",
    "margin_inv_hinge": "inverse_hinge",
    "margin_inv_log_hinge": "inverse_log_hinge",
    "margin_log_hinge": "log_hinge",
}


@pytest.mark.parametrize("case", "AB")
@pytest.mark.parametrize("name", FORMS)
def test_margins_of_the_ensloss_code(name, case):
    """Two of its forms give NaN in case B, by a product with a mask; ours are finite there."""
    with np.load(GOLDEN / f"{name}.npz") as data:
        x = torch.from_numpy(data[f"{case}_output"]).requires_grad_()
        target = torch.from_numpy(data[f"{case}_target"]).reshape(-1, 1)
        value = losses.margin_surrogate(x, target, form=FORMS[name])
        if f"{case}_loss" in data:
            same(value, x, data[f"{case}_loss"], data[f"{case}_grad"])
        else:
            value.backward()
            assert value.isfinite()
            assert x.grad.isfinite().all()


@pytest.mark.parametrize("case", "AB")
@pytest.mark.parametrize("shape", [-0.5, 0, 0.7])
def test_ensloss_of_stored_draws(case, shape):
    with np.load(GOLDEN / "ensloss.npz") as data:
        x = torch.from_numpy(data[f"{case}_output"]).requires_grad_()
        target = torch.from_numpy(data[f"{case}_target"]).reshape(-1, 1)
        key = f"{case}_lam{shape}"
        draws = torch.from_numpy(data[f"{key}_normal_draws"])
        value = losses.ensloss(x, target, shape=shape, draws=draws)
        same(value, x, data[f"{key}_loss"], data[f"{key}_grad"])


# Properties.


def test_comp_sum_from_cross_entropy_to_absolute_error():
    scores, y = normal(8, K, seed=2), torch.arange(8) % K
    p = scores.softmax(-1).gather(1, y[:, None])[:, 0]
    rows = lambda tau: losses.comp_sum(scores, y, tau=tau, reduction="none")
    torch.testing.assert_close(rows(1.0), functional.cross_entropy(scores, y, reduction="none"))
    torch.testing.assert_close(rows(1 + 1e-8), rows(1.0), rtol=1e-6, atol=0)
    torch.testing.assert_close(rows(2.0), 1 - p)
    for tau in (0.0, 0.5, 1.5, 3.0):
        assert torch.equal(rows(tau).argsort(), p.argsort(descending=True))
    assert (rows(3.0) < 1 / 2).all()
    for tau in (0.5, 1.0, 1.7):
        x = scores.clone().requires_grad_()
        losses.comp_sum(x, y, tau=tau, reduction="sum").backward()
        want = p[:, None] ** (tau - 1) * (scores.softmax(-1) - functional.one_hot(y, K))
        torch.testing.assert_close(x.grad, want)
    far = torch.tensor([[0.0, 100.0], [0.0, 101.0]], dtype=torch.float64)  # a straight line beyond e^60
    one, two = losses.comp_sum(far, torch.tensor([0, 0]), tau=0.0, reduction="none").tolist()
    assert two - one == pytest.approx(math.exp(60))


def test_the_adversarial_term_and_its_search():
    scores, y = normal(4, K), torch.arange(4)
    plain = losses.comp_sum(scores, y, tau=1.5, rho=2.0)
    torch.testing.assert_close(losses.smooth_adversarial(scores, y, perturbed=scores, tau=1.5, rho=2.0), plain)
    torch.testing.assert_close(losses.smooth_adversarial(scores, y, perturbed=-scores, tau=1.5, rho=2.0, nu=0.0), plain)
    weights = normal(3, K, seed=3)
    inputs = normal(4, 3, seed=4)
    moved = worst_inputs(lambda x: x @ weights, inputs, y, radius=0.3, generator=torch.Generator().manual_seed(0))
    assert ((moved - inputs).abs() <= 0.3 + 1e-12).all()
    gap = lambda x: ((x @ weights) - (x @ weights).gather(1, y[:, None])).square().sum(-1)
    corners = torch.cartesian_prod(*[torch.tensor([-0.3, 0.3], dtype=torch.float64)] * 3)
    best = torch.stack([gap(corner.expand(4, 3)) for corner in corners]).amax(0)  # of a linear network: at a corner
    torch.testing.assert_close(gap(moved - inputs), best, rtol=0.2, atol=0)
    assert torch.equal(worst_inputs(lambda x: x @ weights, inputs, y, radius=0.0), inputs)
    for setting in ({"tau": -1.0}, {"rho": 0.0}, {"nu": -1.0}):
        with pytest.raises(ValueError, match=f"^{next(iter(setting))}: expected"):
            losses.smooth_adversarial(scores, y, perturbed=scores, **setting)
    with pytest.raises(ValueError, match=r"^radius: expected"):
        worst_inputs(lambda x: x, inputs, y, radius=-1.0)


def test_z_loss_neither_shifts_nor_scales_and_its_gradient_is_orthogonal_to_both():
    scores, y = normal(6, K, seed=2).requires_grad_(), torch.arange(6) % K
    value = losses.z_loss(scores, y, sharpness=2.0, location=0.5, reduction="none")
    torch.testing.assert_close(
        losses.z_loss(3e3 * scores - 1e5, y, sharpness=2.0, location=0.5, reduction="none"), value
    )
    value.sum().backward()
    centered = scores.detach() - scores.detach().mean(-1, keepdim=True)
    np.testing.assert_allclose(scores.grad.sum(-1), 0, atol=1e-12)
    np.testing.assert_allclose((scores.grad * centered).sum(-1), 0, atol=1e-12)
    assert (value >= functional.softplus(torch.tensor(2.0 * (0.5 - 2))) / 2).all()
    sharp = losses.z_loss(scores, y, sharpness=1e4, location=0.5, reduction="none")
    z = (centered / centered.square().mean(-1, keepdim=True).sqrt()).gather(1, y[:, None])[:, 0]
    torch.testing.assert_close(sharp.detach(), (0.5 - z).relu(), atol=1e-3, rtol=0)


def test_limits_of_ldr():
    scores, y = normal(8, K, seed=3), torch.arange(8) % K
    rows = lambda **s: losses.ldr_kl(scores, y, reduction="none", **s)
    torch.testing.assert_close(rows(temperature=1e-4, margin=1.0), rows(temperature=0.0, margin=1.0), atol=1e-3, rtol=0)
    torch.testing.assert_close(rows(temperature=1e6), rows(temperature=math.inf), atol=1e-4, rtol=0)
    torch.testing.assert_close(rows(margin=0.0), losses.comp_sum(scores, y, reduction="none") - math.log(K))
    assert (rows(temperature=0.3, margin=0.0) >= 0.3 * math.log(1 / K)).all()
    one, every = (losses.ldr_k(scores, y, k=k, reduction="none") for k in (1, K))
    torch.testing.assert_close(one, rows(temperature=0.0, margin=1.0))
    torch.testing.assert_close(every, rows(temperature=math.inf, margin=1.0))
    x = scores.clone().requires_grad_()
    losses.ldr_kl(x, y, temperature=0.1, reduction="sum").backward()
    assert (x.grad.abs() <= 1 + 1e-12).all()
    torch.testing.assert_close(
        losses.aldr_kl(scores, y, alpha=1e9, normalize=False, reduction="none"), rows(), atol=1e-6, rtol=0
    )
    flat = torch.zeros(1, K)
    torch.testing.assert_close(losses.aldr_kl(flat, y[:1], normalize=False), losses.ldr_kl(flat, y[:1]))


def test_ensloss_of_many_margins_is_that_of_all_ranks_at_once():
    margins, draws = 3 * normal(700, 3, seed=6), normal(2100, seed=7)
    margins[:9] = 1e4
    x, valid = margins.clone().requires_grad_(), normal(700, 3, seed=8) < 0.5
    valid[:, 0] = True
    for counted in (torch.ones_like(valid), valid):
        m, n = margins[counted].numpy(), draws[: counted.sum()].numpy()
        slopes = np.empty(len(m))
        slopes[m.argsort(kind="stable")] = np.sort(np.maximum(-np.exp(n), -1))
        want = np.zeros((700, 3))
        want[counted.numpy()] = slopes / np.maximum(m, 1) - 1e-6
        hot = torch.ones(700, 3)
        value = losses.ensloss(x, hot, valid=counted, shape=0.0, draws=torch.from_numpy(n), reduction="none")
        (got,) = torch.autograd.grad(value.sum(), x)
        count = counted.sum(1, keepdim=True).numpy()
        same = margins < 1e4  # equal margins share their slopes in any order
        np.testing.assert_allclose((got.numpy() * count)[same], want[same], rtol=1e-12)


def test_slopes_of_ensloss_are_calibrated():
    margins, target = normal(40, 3, seed=4).requires_grad_(), (normal(40, 3, seed=5) > 0).long()
    loss = losses.ensloss(margins, target, generator=torch.Generator().manual_seed(0))
    loss.backward()
    signs = 2 * target - 1
    slope, at = ((margins.grad * signs) * margins.numel()).flatten(), (margins * signs).detach().flatten()
    assert ((slope < 0) & (slope >= -1 - 1.1e-6)).all()
    inner = at <= 1
    ordered = slope[inner][at[inner].argsort()]
    assert (ordered.diff() >= -1e-12).all()
    again = losses.ensloss(margins, target, generator=torch.Generator().manual_seed(0))
    assert torch.equal(loss.detach(), again.detach())
    with pytest.raises(ValueError, match=r"^draws: expected a number for each of 120 margins, got 2"):
        losses.ensloss(margins, target, draws=torch.zeros(2))


def test_label_correlation_without_its_parts_is_binary_cross_entropy():
    scores, target = normal(6, K), (normal(6, K, seed=1) > 0).double()
    want = functional.binary_cross_entropy_with_logits(scores, target)
    torch.testing.assert_close(losses.label_correlation(scores, target, factor=0.0), want)
    torch.testing.assert_close(losses.label_correlation(scores, target, correlation=torch.zeros(K, K)), want)
    own = losses.label_correlation(scores, target)
    torch.testing.assert_close(own, losses.label_correlation(scores, target, correlation=label_phi(target)))
    torch.testing.assert_close(
        losses.label_correlation(scores, target, class_weight=2 * torch.ones(K), factor=0.0), 2 * want
    )
    np.testing.assert_allclose(label_phi(target), np.corrcoef(target.T), rtol=1e-12)
    assert (label_phi(torch.ones(4, 2)) == 0).all()
    for wrong in ({"correlation": torch.zeros(2, 2)}, {"class_weight": torch.ones(2)}):
        with pytest.raises(ValueError, match=f"^{next(iter(wrong))}: expected"):
            losses.label_correlation(scores, target, **wrong)


@each
def test_shares_of_one_class_have_the_slopes_of_slopes_of_that_class(entry):
    """And a derivative that is taken again is the same."""
    scores, target = batch(entry, b=20, seed=3)
    if target.ndim > 1:
        return
    results = []
    for labels in (target, functional.one_hot(target, K)):
        x = scores.clone().requires_grad_()
        (slope,) = torch.autograd.grad(entry.factory(x, labels, **extra(entry, 20)), x, create_graph=True)
        curve = torch.autograd.grad(slope.square().sum(), x)[0] if slope.requires_grad else slope
        results.append((slope.detach(), curve.detach()))
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-13)


def test_a_share_that_is_too_small_for_its_logarithm_keeps_its_digits():
    scores = torch.tensor([[0.0, 200.0], [0.0, 1.0], [80.0, 0.0]], requires_grad=True)
    target = torch.zeros(3, dtype=torch.long)
    value = losses.comp_sum(scores, target, reduction="none")
    torch.testing.assert_close(value.detach(), functional.cross_entropy(scores, target, reduction="none").detach())
    value.sum().backward()
    torch.testing.assert_close(scores.grad, scores.detach().softmax(1) - torch.eye(2)[target])


@pytest.mark.parametrize("t", [1.0, 1.2, 1.7])
def test_with_equal_temperatures_the_bi_tempered_loss_is_the_matching_loss_of_its_softmax(t):
    """Its gradient is p minus the label."""
    scores, target = (2 * normal(4, K)).requires_grad_(), torch.tensor([0, 3, 1, 4])
    p = torch.from_numpy(np.stack([reference.tempered_softmax(s, t) for s in scores.detach().numpy()]))
    value = losses.bi_tempered(scores, target, t1=t, t2=t, reduction="sum")
    torch.testing.assert_close(torch.autograd.grad(value, scores)[0], p - functional.one_hot(target, K))


def test_the_tempered_losses_of_a_hopeless_row_are_bounded():
    scores = torch.tensor([[0.0, 1e4]])
    assert losses.tempered(scores, torch.tensor([0]), t1=0.5) == pytest.approx(2, abs=1e-2)
    assert losses.bi_tempered(scores, torch.tensor([0]), t1=0.5) == pytest.approx(2, abs=1e-2)
    for loss in (losses.tempered, losses.bi_tempered):
        with pytest.raises(ValueError, match=r"^t1: expected"):
            loss(scores, torch.tensor([0]), t1=2.1)
        with pytest.raises(ValueError, match=r"^t2: expected"):
            loss(scores, torch.tensor([0]), t2=0.9)
