"""SSIM and MS-SSIM beside pytorch-msssim, and what they promise."""

from pathlib import Path

import numpy as np
import pytest
import torch

from vicinal.similarity import ImageSimilarity, ms_ssim, ssim

GOLDEN = Path(__file__).parents[1] / "golden/losses/ms_ssim.npz"


def images(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_values_of_pytorch_msssim():
    with np.load(GOLDEN) as data:
        x, y = (torch.from_numpy(data[f"A_{key}"]).double() for key in "xy")
        x.requires_grad_()
        value = ms_ssim(x, y)
        np.testing.assert_allclose(value.detach(), data["A_msssim"], rtol=1e-9)
        np.testing.assert_allclose(ssim(x, y).detach(), data["A_ssim"], rtol=1e-9)
        value.sum().backward()
        want = data["A_msssim_grad_every16"]
        np.testing.assert_allclose(x.grad[:, :, ::16, ::16], want, rtol=1e-9, atol=1e-9 * np.abs(want).max())
        x, y = (torch.from_numpy(data[f"B_{key}"]).double() for key in "xy")
        np.testing.assert_allclose(ssim(x, y), data["B_ssim"], rtol=1e-9)
        np.testing.assert_allclose(ssim(x, x), data["B_ssim_self"], rtol=1e-9)


def test_promises_of_ssim():
    x, y = images(3, 2, 15, 18), images(3, 2, 15, 18, seed=1)
    one = ssim(x, y)
    torch.testing.assert_close(ssim(y, x), one)
    assert (one < 1).all()
    torch.testing.assert_close(ssim(x, x), torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(ssim(7 * x, 7 * y, data_range=7.0), one)
    flat = torch.full((1, 1, 11, 11), 0.3)
    torch.testing.assert_close(ssim(flat, flat), torch.ones(1))
    by_channel = torch.stack([ssim(x[:, [c]], y[:, [c]]) for c in (0, 1)]).mean(0)
    torch.testing.assert_close(one, by_channel)
    assert (ssim(x, 1 - x) < 0).all()
    alike = (x + y) / 2
    torch.testing.assert_close(ms_ssim(x, alike, weights=[1.0]), ssim(x, alike))
    small = images(1, 1, 8, 8).requires_grad_()
    assert torch.autograd.gradcheck(lambda a: ssim(a, images(1, 1, 8, 8, seed=2), window=5), (small,), fast_mode=True)
    half = ssim(x.bfloat16(), y.bfloat16())
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, one.float(), atol=0.02, rtol=0)


def test_gradients_of_several_scales_are_finite_where_structures_oppose():
    x = images(1, 1, 40, 40).requires_grad_()
    ms_ssim(x, 1 - x.detach(), weights=[0.5, 0.5]).sum().backward()
    assert x.grad.isfinite().all()


def test_images_as_rows_are_scored_pair_by_pair():
    x, y = images(2, 1, 12, 14), images(3, 1, 12, 14, seed=1)
    scores = ImageSimilarity(12, 14)(x.flatten(1), y.flatten(1))
    for i in range(2):
        torch.testing.assert_close(scores[i], ssim(x[[i]].expand(3, -1, -1, -1), y))
    assert ImageSimilarity(12, 14)(x.flatten(1)[:0], y.flatten(1)).shape == (0, 3)
    with pytest.raises(ValueError, match=r"^queries: expected rows of \(1, 12, 14\) numbers, got 5"):
        ImageSimilarity(12, 14)(torch.zeros(1, 5), torch.zeros(2, 5))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: ssim(images(1, 1, 12, 12), images(1, 1, 12, 13)), "^others: expected floating images"),
        (lambda: ssim(images(1, 1, 12, 12), images(1, 1, 12, 12), window=4), "^window: expected an odd number, got 4"),
        (lambda: ssim(images(1, 1, 12, 9), images(1, 1, 12, 9)), "^images: expected sides of at least 11"),
        (lambda: ms_ssim(images(1, 1, 160, 160), images(1, 1, 160, 160)), "^images: expected sides of at least 161"),
        (lambda: ssim(images(1, 1, 12, 12), images(1, 1, 12, 12), data_range=0.0), "^data_range: expected"),
    ],
)
def test_what_does_not_fit_is_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
