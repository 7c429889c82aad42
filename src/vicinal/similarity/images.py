"""The structural similarity of images, at one scale and at several."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, conv2d

from vicinal.core.checks import check_between, check_integer
from vicinal.similarity.base import Similarity

SCALE_WEIGHTS = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)
"""Of the five scales of MS-SSIM, the finest first."""

_LEAST = 1e-6
"""A fractional power has an infinite slope at 0."""


def _check(images: Tensor, others: Tensor, window: int, data_range: float, scales: int) -> Tensor:
    """Check them; the window, a vector that sums to 1."""
    if images.ndim != 4 or not images.is_floating_point() or images.shape != others.shape:
        raise ValueError(
            f"others: expected floating images [n, C, H, W] of one shape, got {tuple(images.shape)} and "
            f"{tuple(others.shape)}"
        )
    check_between("data_range", data_range, 0, math.inf)
    if check_integer("window", window) % 2 == 0:
        raise ValueError(f"window: expected an odd number, got {window}")
    side = min(images.shape[2:])
    least = window if scales == 1 else (window - 1) * 2 ** (scales - 1) + 1
    if side < least:
        raise ValueError(f"images: expected sides of at least {least} for {scales} scales, got {side}")
    return torch.arange(window, device=images.device) - window // 2


def _similar(x: Tensor, y: Tensor, bell: Tensor, data_range: float) -> tuple[Tensor, Tensor]:
    """SSIM and its factor of contrast and structure, ``[n, C]``."""

    def smooth(images: Tensor) -> Tensor:
        channels = images.shape[1]
        rows = conv2d(images, bell.view(1, 1, -1, 1).expand(channels, 1, -1, 1), groups=channels)
        return conv2d(rows, bell.view(1, 1, 1, -1).expand(channels, 1, 1, -1), groups=channels)

    of_means, of_variances = (0.01 * data_range) ** 2, (0.03 * data_range) ** 2
    mean_x, mean_y = smooth(x), smooth(y)
    spread = smooth(x * x) - mean_x**2 + smooth(y * y) - mean_y**2
    structure = (2 * (smooth(x * y) - mean_x * mean_y) + of_variances) / (spread + of_variances)
    brightness = (2 * mean_x * mean_y + of_means) / (mean_x**2 + mean_y**2 + of_means)
    return (brightness * structure).mean((2, 3)), structure.mean((2, 3))


def ms_ssim(
    images: Tensor,
    others: Tensor,
    *,
    weights: Sequence[float] = SCALE_WEIGHTS,
    data_range: float = 1.0,
    window: int = 11,
    sigma: float = 1.5,
) -> Tensor:
    r"""How alike images are in structure, at several scales.

    $\prod_m [\overline{cs_m}]_+^{w_m}\, [\overline{\mathrm{SSIM}}]_+^{w_M}$, the last factor at the coarsest scale.

    $cs = \frac{2 \sigma_{xy} + C_2}{\sigma_x^2 + \sigma_y^2 + C_2}$ by a Gaussian window without padding and
    $\mathrm{SSIM} = cs\, \frac{2 \mu_x \mu_y + C_1}{\mu_x^2 + \mu_y^2 + C_1}$, $C_1 = (0.01 R)^2$, $C_2 = (0.03 R)^2$.
    Each scale has half the sides of the one before. Wang et al., Asilomar 2003.

    Args:
        images: ``[n, C, H, W]``, floating.
        others: likewise.
        weights: w, one for each scale, the finest first.
        data_range: R > 0, the highest minus the lowest possible value.
        window: odd, its width.
        sigma: > 0, its standard deviation in pixels.

    Returns:
        ``[n]``, at most 1, a mean over channels; factors are at least 1e-6, so that gradients stay finite.

    Raises:
        ValueError: for shapes that differ, or sides too short for so many scales (161 pixels for five).

    >>> ms_ssim(torch.zeros(1, 1, 161, 161), torch.zeros(1, 1, 161, 161))
    tensor([1.])
    """
    bell = _bell(_check(images, others, window, data_range, len(weights)), sigma)
    dtype = torch.promote_types(torch.promote_types(images.dtype, others.dtype), torch.float32)
    with torch.autocast(images.device.type, enabled=False):
        x, y = images.to(dtype), others.to(dtype)
        value = x.new_ones(x.shape[:2])
        for scale, weight in enumerate(weights):
            whole, structure = _similar(x, y, bell.to(dtype), data_range)
            last = scale == len(weights) - 1
            value = value * (whole if last else structure).clamp(min=_LEAST) ** weight
            if not last:
                padding = [side % 2 for side in x.shape[2:]]
                x, y = (avg_pool2d(each, 2, padding=padding) for each in (x, y))
        return value.mean(1)


def _bell(place: Tensor, sigma: float) -> Tensor:
    """The window in float32, as in pytorch-msssim, whose values it then has to the last digit."""
    bell = (-(place.float() ** 2) / (2 * check_between("sigma", sigma, 0, math.inf) ** 2)).exp()
    return bell / bell.sum()


def ssim(images: Tensor, others: Tensor, *, data_range: float = 1.0, window: int = 11, sigma: float = 1.5) -> Tensor:
    r"""How alike images are in structure, $\overline{\mathrm{SSIM}}$ as in :func:`ms_ssim`; below 0 for opposite ones.

    Wang et al., IEEE TIP 2004.

    Args:
        images: ``[n, C, H, W]``, floating.
        others: likewise.
        data_range: as in :func:`ms_ssim`.
        window: likewise.
        sigma: likewise.

    Returns:
        ``[n]``, at most 1.

    Raises:
        ValueError: for shapes that differ, or sides shorter than the window.

    >>> ssim(torch.ones(1, 1, 11, 11), torch.zeros(1, 1, 11, 11)).round(decimals=6)
    tensor([1.0000e-04])
    """
    bell = _bell(_check(images, others, window, data_range, 1), sigma)
    dtype = torch.promote_types(torch.promote_types(images.dtype, others.dtype), torch.float32)
    with torch.autocast(images.device.type, enabled=False):
        return _similar(images.to(dtype), others.to(dtype), bell.to(dtype), data_range)[0].mean(1)


class ImageSimilarity(Similarity):
    """SSIM of every query with every row of the bank; the rows are images, flattened.

    Args:
        height: of the images.
        width: of the images.
        channels: of the images.
        multiscale: :func:`ms_ssim` in place of :func:`ssim`.
        data_range: as in :func:`ms_ssim`.

    >>> images = torch.rand(3, 144, generator=torch.Generator().manual_seed(0))
    >>> ImageSimilarity(12, 12)(images, images).argmax(1)
    tensor([0, 1, 2])
    """

    best = 1.0

    def __init__(
        self, height: int, width: int, channels: int = 1, *, multiscale: bool = False, data_range: float = 1.0
    ) -> None:
        super().__init__()
        for name, size in (("height", height), ("width", width), ("channels", channels)):
            check_integer(name, size)
        self.shape, self.multiscale, self.data_range = (channels, height, width), multiscale, data_range

    def score(self, queries: Tensor, bank: Tensor) -> Tensor:
        """See :meth:`Similarity.forward`; one query against the bank at a time."""
        if queries.shape[1] != math.prod(self.shape):
            raise ValueError(f"queries: expected rows of {self.shape} numbers, got {queries.shape[1]}")
        rows, compare = bank.view(-1, *self.shape), ms_ssim if self.multiscale else ssim
        scores = [
            compare(query.view(1, *self.shape).expand_as(rows), rows, data_range=self.data_range) for query in queries
        ]
        return torch.stack(scores) if scores else queries.new_zeros(0, len(bank))
