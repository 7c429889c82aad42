"""The logarithm of a mask."""

import pytest
import torch

from vicinal.core import log_mask


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_log_mask_is_the_log_and_has_finite_gradients(dtype):
    mask = torch.tensor([[0.0, 0.25, 1.0]], dtype=dtype, requires_grad=True)
    got = log_mask(mask)
    assert got.dtype == dtype
    torch.testing.assert_close(got.exp(), mask)
    assert got[0, 0] == -torch.inf
    got.softmax(dim=-1)[0, 1].backward()
    assert mask.grad.isfinite().all()
    assert mask.grad[0, 0] == 0
    assert mask.grad[0, 1] > 0


def test_log_mask_passes_gradcheck_beside_a_zero(generator):
    mask = torch.rand(3, 4, generator=generator, dtype=torch.float64)
    open_to = torch.rand(3, 4, generator=generator) < 0.6
    open_to[2] = False

    def masked(values):
        return log_mask(torch.where(open_to, values, 0.0)).exp()

    assert torch.autograd.gradcheck(masked, mask.requires_grad_())
