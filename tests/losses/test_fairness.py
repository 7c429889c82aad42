"""Distance covariance beside dcor, rates beside fairret, and what both promise."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from references import regularizers as reference
from vicinal.losses import distance_covariance, equal_rates, group_rates, joint_distance_covariance

GOLDEN = Path(__file__).parents[1] / "golden/sets"
RATES = {"pr": "positive", "tpr": "true_positive", "fpr": "false_positive", "ppv": "positive_value", "acc": "accuracy"}


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_distance_covariance_of_dcor():
    with np.load(GOLDEN / "distance_covariance.npz") as data:
        x, y, z, const = (torch.from_numpy(data[key]) for key in ("x", "y", "z", "const"))
        for key, (one, other), settings in [
            ("dcov2", (x, y), {}),
            ("dcov2_u", (x, y), {"unbiased": True}),
            ("dcov2_xz", (x, z), {}),
            ("dcov2_self", (x, x), {}),
            ("dcov2_const", (x, const), {}),
        ]:
            got = distance_covariance(one, other, **settings)
            np.testing.assert_allclose(got, data[key], rtol=1e-9, atol=1e-14, err_msg=key)
        both = distance_covariance(x, torch.cat([y, z], dim=1))
        np.testing.assert_allclose(both, data["dcov2_concat"], rtol=1e-9)
        ratio = distance_covariance(x, y) / (distance_covariance(x, x) * distance_covariance(y, y)).sqrt()
        np.testing.assert_allclose(ratio, data["dcor2"], rtol=1e-9)


@pytest.mark.parametrize("unbiased", [False, True])
@pytest.mark.parametrize("scale_free", [False, True])
def test_joint_distance_covariance_equals_numpy(unbiased, scale_free):
    x, y, z = normal(8), normal(8, 2, seed=1), normal(8, 1, seed=2)
    for offset in (0.0, 0.5, 2.0):
        settings = {"offset": offset, "unbiased": unbiased, "scale_free": scale_free}
        want = reference.joint_distance_covariance([x.numpy(), y.numpy(), z.numpy()], **settings)
        np.testing.assert_allclose(joint_distance_covariance(x, [y, z], **settings), want, rtol=1e-9, atol=1e-12)
    if not scale_free:
        of_two = joint_distance_covariance(x, [y], offset=3.0, unbiased=unbiased)
        torch.testing.assert_close(of_two, distance_covariance(x, y, unbiased=unbiased))


def test_distance_covariance_promises():
    x, y = normal(9).requires_grad_(), normal(9, 2, seed=1)
    value = distance_covariance(x, y)
    assert value > 0
    assert torch.autograd.gradcheck(lambda a: distance_covariance(a, y), (x,))
    assert torch.autograd.gradcheck(lambda a: joint_distance_covariance(a, [y, y[:, 0]]), (x,))
    turn = torch.linalg.qr(normal(2, 2, seed=2)).Q
    torch.testing.assert_close(distance_covariance(x - 4, y @ turn + 1), value)
    torch.testing.assert_close(distance_covariance(3 * x, 2 * y), 6 * value)
    assert distance_covariance(x, torch.ones(9, 1).double()).item() == pytest.approx(0, abs=1e-12)
    torch.testing.assert_close(joint_distance_covariance(x, [torch.ones(9).double()]), torch.zeros(()).double())
    tied = torch.zeros(6, requires_grad=True)
    distance_covariance(tied, y[:6].float()).backward()
    assert tied.grad.isfinite().all()
    g = torch.Generator().manual_seed(0)
    far = torch.rand(400, generator=g), torch.rand(400, generator=g)
    assert distance_covariance(*far) < 0.01 < distance_covariance(far[0], (far[0] - 0.5).square() * 4)
    half = distance_covariance(x.bfloat16(), y.bfloat16())
    torch.testing.assert_close(half, value.float(), rtol=0.05, atol=0)
    for call, sentence in [
        (lambda: distance_covariance(x[:3], y[:3], unbiased=True), "^values: expected numbers .* of at least 4 rows"),
        (lambda: distance_covariance(x, y[:4]), "^attributes: expected as many rows"),
        (lambda: joint_distance_covariance(x, []), "^attributes: expected at least one"),
        (lambda: joint_distance_covariance(x, [y], offset=-1.0), "^offset: expected"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            call()


@pytest.mark.parametrize("key", RATES)
def test_rates_of_fairret(key):
    with np.load(GOLDEN / "fairret_violation.npz") as data:
        logit = torch.from_numpy(data["logit"])[:, 0].requires_grad_()
        labels = torch.from_numpy(data["label"])[:, 0]
        for form, groups in (("", "sens"), ("_mixed", "sens_mixed")):
            each, overall = group_rates(logit.sigmoid(), torch.from_numpy(data[groups]), labels, rate=RATES[key])
            np.testing.assert_allclose(each.detach(), data[f"{key}_stat{form}"], rtol=1e-9)
            np.testing.assert_allclose(overall.detach(), np.squeeze(data[f"{key}_overall"]), rtol=1e-9)
        groups = torch.from_numpy(data["sens"])
        for name, settings in (("norm1", {}), ("norm2", {"power": 2.0}), ("lse", {"form": "softmax"})):
            value = equal_rates(logit.sigmoid(), groups, labels, rate=RATES[key], **settings)
            np.testing.assert_allclose(value.detach(), data[f"{key}_{name}"], rtol=1e-9)
            (grad,) = torch.autograd.grad(value, logit)
            np.testing.assert_allclose(grad[:, None], data[f"{key}_{name}_dlogit"], rtol=1e-8, atol=1e-11)
        same = torch.from_numpy(data["same_logit"])[:, 0].sigmoid()
        assert equal_rates(same, groups).item() == pytest.approx(0, abs=1e-12)


def test_equal_rates_promises():
    g = torch.Generator().manual_seed(0)
    p = torch.rand(12, generator=g, dtype=torch.float64).requires_grad_()
    groups, labels = torch.arange(12) % 3, (torch.rand(12, generator=g) > 0.5).long()
    for rate in (*RATES.values(), "false_omission"):
        settings = {"rate": rate}
        value = equal_rates(p, groups, labels, **settings)
        assert value > 0
        order = torch.randperm(12, generator=g)
        torch.testing.assert_close(equal_rates(p[order], groups[order], labels[order], **settings), value)
        torch.testing.assert_close(equal_rates(p, (groups + 1) % 3, labels, **settings), value)
        twice = (torch.cat([each, each]) for each in (p, groups, labels))
        torch.testing.assert_close(equal_rates(*twice, **settings), value)
        assert torch.autograd.gradcheck(lambda a: equal_rates(a, groups, labels, **settings), (p,))  # noqa: B023
        worst = equal_rates(p, groups, labels, power=math.inf, **settings)
        soft = equal_rates(p, groups, labels, form="softmax", **settings)
        assert worst - math.log(3) <= soft <= worst
    codes = torch.nn.functional.one_hot(groups)
    torch.testing.assert_close(equal_rates(p, codes), equal_rates(p, groups))
    missed, _ = group_rates(p.detach(), groups, labels, rate="false_omission")
    for k in range(3):
        mine = groups == k
        want = (labels * (1 - p))[mine].sum() / (1 - p)[mine].sum()
        torch.testing.assert_close(missed[k], want.detach())
    none = group_rates(p, groups, torch.zeros(12), rate="true_positive")
    assert (none[0] == 0).all()
    for call, sentence in [
        (lambda: equal_rates(p, groups, rate="true_positive"), "^labels: expected 0 and 1"),
        (lambda: equal_rates(p, groups, labels * 2, rate="accuracy"), "^labels: expected 0 and 1, got others"),
        (lambda: equal_rates(p, groups, torch.zeros(12), rate="true_positive"), "^predictions: expected a rate"),
        (lambda: equal_rates(p, torch.cat([codes, 0 * codes[:, :1]], 1)), "^groups: expected"),
        (lambda: equal_rates(p, groups[:4]), "^groups: expected"),
        (lambda: equal_rates(p * 3, groups), "^predictions: expected probabilities from 0 to 1"),
        (lambda: equal_rates(p, groups, power=0.5), "^power: expected"),
        (lambda: equal_rates(p, groups, form="max"), "^form: expected"),
        (lambda: equal_rates(p, groups, rate="luck"), "^rate: expected"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            call()
