"""Reduction over losses that count."""

import pytest
import torch

from vicinal.losses.contract import check_reduction, reduce

VALUES = [1.0, 5.0, 0.0, 3.0]
ACTIVE = [True, False, True, True]


@pytest.mark.parametrize(
    ("reduction", "active", "want"),
    [
        ("mean", None, 9 / 4),
        ("mean", ACTIVE, 4 / 3),
        ("sum", None, 9.0),
        ("sum", ACTIVE, 4.0),
        ("none", None, VALUES),
        ("none", ACTIVE, [1.0, 0.0, 0.0, 3.0]),
        ("mean_nonzero", None, 9 / 3),
        ("mean_nonzero", ACTIVE, 4 / 2),
    ],
)
def test_equals_arithmetic(reduction, active, want):
    got = reduce(torch.tensor(VALUES), None, None if active is None else torch.tensor(active), reduction)
    torch.testing.assert_close(got, torch.tensor(want))


@pytest.mark.parametrize("reduction", ["mean", "sum", "mean_nonzero"])
@pytest.mark.parametrize("values", [torch.zeros(0), torch.tensor([7.0, 8.0])])
def test_no_rows_give_zero_and_a_gradient_of_zero(reduction, values):
    values = values.clone().requires_grad_()
    got = reduce(values, None, torch.zeros(len(values), dtype=torch.bool), reduction)
    got.backward()
    assert got.item() == 0.0
    assert (values.grad == 0).all()


@pytest.mark.parametrize("reduction", ["mean", "sum", "none", "mean_nonzero"])
def test_a_nan_in_a_row_that_does_not_count_reaches_neither_value_nor_gradient(reduction):
    values = torch.tensor([2.0, torch.nan], requires_grad=True)
    got = reduce(values, None, torch.tensor([True, False]), reduction).sum()
    got.backward()
    assert got.item() == 2.0
    assert values.grad.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("active", [None, True])
def test_mean_of_many_rows_divides_by_a_count_that_half_precision_cannot_hold(dtype, active):
    """70001 is above the largest float16 and no bfloat16."""
    values = torch.zeros(70_001, dtype=dtype)
    values[0] = 7000.0
    rows = None if active is None else torch.ones(len(values), dtype=torch.bool)
    torch.testing.assert_close(
        reduce(values, None, rows, "mean"), torch.tensor(7000 / 70_001, dtype=dtype), rtol=0.005, atol=0
    )


def test_unknown_reduction_gets_a_hint():
    with pytest.raises(ValueError, match=r"^reduction: expected one of 'mean', .*; did you mean 'mean'\?$"):
        check_reduction("means")
