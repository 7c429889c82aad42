"""Convolutions of the images of a set, each shifted by what attention to the others says."""

import math

from torch import Tensor, nn

from vicinal.core import register
from vicinal.core.checks import check_integer, check_tensor
from vicinal.encoders.sets.contract import SetEncoder, masked_sum
from vicinal.encoders.sets.set_transformer import attend


class SetConvolution2d(nn.Module):
    r"""A convolution of each image, with a bias that attention between the images of the set gives.

    $Y = \mathrm{conv}(X)$, $g$ the mean of Y over the pixels, $s = \mathrm{MHA}(g, g)$ over the set, and the result
    $\mathrm{relu}(Y + s)$. Heads are one for each 64 filters, and their width min(filters, 64).

    Args:
        channels: of the images.
        filters: channels of the result.
        kernel_size: odd; images are padded by zeros so that they keep their size.
        stride: of the convolution.

    Paper: arXiv:2509.22889.

    >>> import torch
    >>> SetConvolution2d(3, 8)(torch.zeros(2, 4, 3, 5, 5)).shape
    torch.Size([2, 4, 8, 5, 5])
    """

    def __init__(self, channels: int, filters: int, *, kernel_size: int = 3, stride: int = 1) -> None:
        super().__init__()
        check_integer("filters", filters)
        if check_integer("kernel_size", kernel_size) % 2 == 0:
            raise ValueError(f"kernel_size: expected an odd number, got {kernel_size}")
        self.heads = max(1, filters // 64)
        self.head_width = min(filters, 64)
        self.convolution = nn.Conv2d(channels, filters, kernel_size, stride, kernel_size // 2)
        inner = self.heads * self.head_width
        self.query, self.key, self.value = (nn.Linear(filters, inner) for _ in range(3))
        self.out = nn.Linear(inner, filters)

    def forward(self, images: Tensor, valid: Tensor | None = None) -> Tensor:
        """``[b, n, filters, H', W']`` of ``[b, n, channels, H, W]``, with one valid image at least in each set."""
        if check_tensor("images", images).ndim != 5:
            raise ValueError(f"images: expected [b, n, channels, H, W], got {tuple(images.shape)}")
        maps = self.convolution(images.flatten(0, 1)).unflatten(0, images.shape[:2])
        g = maps.mean(dim=(-2, -1))  # [b, n, filters]
        factor = self.head_width**-0.5
        shift = self.out(attend(self.query(g), self.key(g), self.value(g), valid, self.heads, factor))
        return (maps + shift[..., None, None]).relu()


@register(
    "set_encoder",
    "set_convolution",
    family="set convolution",
    paper="arXiv:2509.22889",
    verified="the authors' code (chinefed/convolutional-set-transformer), to 1e-6",
)
class SetConvolution(SetEncoder):
    r"""Set convolutions of images that are laid out as vectors, and the mean over pixels and set.

    $W\, \mathrm{mean}_{i, pixels}\, c_L(\dots c_1(X)) + c$ with :class:`SetConvolution2d`, each after the first with
    stride 2.

    Args:
        width: d, the product of ``image_shape``.
        dim: e, of the vectors.
        image_shape: channels, height and width of an element; None: d channels of one pixel.
        filters: of each layer.

    >>> import torch
    >>> SetConvolution(48, 3, image_shape=(3, 4, 4))(torch.zeros(2, 5, 48)).shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        width: int,
        dim: int,
        *,
        image_shape: tuple[int, int, int] | None = None,
        filters: tuple[int, ...] = (32, 64),
    ) -> None:
        super().__init__(width, dim)
        self.image_shape = (width, 1, 1) if image_shape is None else image_shape
        if len(self.image_shape) != 3 or math.prod(self.image_shape) != width:
            raise ValueError(f"image_shape: expected three numbers of product {width}, got {self.image_shape}")
        if not filters:
            raise ValueError("filters: expected a layer at least, got none")
        widths = zip((self.image_shape[0], *filters), filters, strict=False)
        self.layers = nn.ModuleList(
            SetConvolution2d(channels, count, stride=2 if depth else 1)
            for depth, (channels, count) in enumerate(widths)
        )
        self.out = nn.Linear(filters[-1], dim)

    def encode(self, elements: Tensor, valid: Tensor) -> Tensor:
        """See :meth:`SetEncoder.encode`."""
        images = elements.reshape(*elements.shape[:2], *self.image_shape)
        for layer in self.layers:
            images = layer(images, valid)
        mean = masked_sum(images.mean(dim=(-2, -1)), valid) / valid.sum(dim=1, keepdim=True).to(images.dtype)
        return self.out(mean)
