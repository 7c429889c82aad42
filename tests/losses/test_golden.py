"""Values and gradients against a definition computed elsewhere with 40 digits."""

import json
from pathlib import Path

import pytest
import torch

from vicinal import links, losses

ROWS = json.loads((Path(__file__).parents[1] / "golden/matching/matching.json").read_text())
NAMES = {
    "asinh": links.Arcsinh,
    "smelu_grad_c1": lambda **k: links.SmeLUGrad(1.0, **k),
    "huber_grad_1": lambda **k: links.HuberGrad(1.0, **k),
    "relu_primitive_step": links.Step,
    "logit01": links.Logit,
}


def curve(name, **settings):
    if name in NAMES:
        return NAMES[name](**settings)
    if name.startswith("power_"):
        return links.SignedPower(float(name.removeprefix("power_")), **settings)
    from vicinal.core import entry

    if name == "constant":  # it has no scale
        return links.Constant(settings["amplitude"], settings["shift"])
    kind = "curve" if name == "cosh" else "link"
    return entry(kind, name).factory(**settings)


def check(loss, row):
    prediction = torch.tensor(row["prediction"], dtype=torch.float64, requires_grad=True)
    target = torch.tensor(row["target"], dtype=torch.float64)
    value = loss(prediction, target)
    value.backward()
    wanted = row.get("gradient", row.get("gradients"))
    torch.testing.assert_close(value.item(), row["loss"], rtol=1e-10, atol=1e-14)
    torch.testing.assert_close(prediction.grad, torch.tensor(wanted, dtype=torch.float64), rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("row", ROWS["scalar"], ids=lambda r: r["link"])
def test_scalar(row):
    check(losses.MatchingLoss(curve(row["link"], scale=row["scale"], shift=row["shift"])), row)


@pytest.mark.parametrize("row", ROWS["composite_sigmoid"], ids=lambda r: r["scaling"])
def test_composite_sigmoid(row):
    scaling = curve(row["scaling"], scale=row["scale"], shift=row["shift"], amplitude=row["scale"])
    check(losses.CompositeSigmoidMatchingLoss(scaling, row["gamma"]), row)


@pytest.mark.parametrize("row", ROWS["composite_softmax"], ids=lambda r: r["scaling"])
def test_composite_softmax(row):
    scaling = curve(row["scaling"], scale=row["scale"], shift=row["shift"], amplitude=row["scale"])
    check(losses.CompositeSoftmaxMatchingLoss(scaling, row["gamma"]), row)
