"""Weights from losses: the public code's values, and what each shape promises."""

from pathlib import Path

import numpy as np
import pytest
import torch

from vicinal.losses import loss_weights

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "losses" / "dynamic_reweighting.npz"
NAMES = {"linupper": "linupper", "quadratic": "mid", "extremes": "extremes", "upper": "upper"}


@pytest.mark.parametrize("shape", NAMES)
@pytest.mark.parametrize("temperature", ["0.4", "1"])
@pytest.mark.parametrize("case", ["A", "B"])
def test_weights_are_those_of_the_public_code(shape: str, temperature: str, case: str) -> None:
    golden = np.load(GOLDEN, allow_pickle=False)
    losses = torch.from_numpy(golden[f"{case}_losses"])
    weights = loss_weights(losses, shape=shape, temperature=float(temperature))
    assert weights.numpy() == pytest.approx(golden[f"{case}_w_{NAMES[shape]}_r{temperature}"], abs=1e-12)


@pytest.mark.parametrize("shape", NAMES)
def test_weights_sum_to_one_know_no_units_and_pass_no_gradient(shape: str, generator: torch.Generator) -> None:
    losses = torch.rand(50, generator=generator, dtype=torch.float64).requires_grad_()
    weights = loss_weights(losses, shape=shape)
    assert weights.sum().item() == pytest.approx(1)
    assert (weights >= 0).all()
    assert not weights.requires_grad
    torch.testing.assert_close(loss_weights(3 * losses + 7, shape=shape), weights)
    torch.testing.assert_close(loss_weights(losses, shape=shape, temperature=1e9), torch.full_like(weights, 1 / 50))
    order = torch.randperm(50, generator=generator)
    torch.testing.assert_close(loss_weights(losses[order], shape=shape), weights[order])


def test_linupper_lets_only_the_easy_lose() -> None:
    weights = loss_weights(torch.tensor([0.0, 0.4, 0.5, 0.9, 1.0]))
    assert weights[0] == weights.min()
    assert weights[2] == weights[3] == weights[4]


@pytest.mark.parametrize("size", [1, 2])
def test_few_or_equal_losses_are_uniform(size: int) -> None:
    assert loss_weights(torch.full((size,), 3.0)).tolist() == [1 / size] * size


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="shape: expected one of"):
        loss_weights(torch.ones(3), shape="linuper")
    with pytest.raises(ValueError, match="temperature: expected a number above 0"):
        loss_weights(torch.ones(3), temperature=0.0)
    with pytest.raises(ValueError, match="losses: expected finite numbers"):
        loss_weights(torch.tensor([1.0, float("nan")]))
