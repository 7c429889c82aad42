"""A small residual network for images and spectrograms, whose rows may end at different heights."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class RealNorm(nn.BatchNorm2d):
    """Batch norm over the places that are real: padding enters no statistic, and stays zero."""

    def forward(self, input: Tensor, real: Tensor | None = None) -> Tensor:
        """``[b, c, h, w]``; ``real [b, h]`` is False behind the end of a row. None: all is real."""
        if real is None:
            return super().forward(input)
        lines = input.transpose(1, 2)  # [b, h, c, w]
        normed = torch.zeros_like(lines)
        normed[real] = super().forward(lines[real][:, :, None])[:, :, 0].to(normed.dtype)  # [lines, c, w]
        return normed.transpose(1, 2)


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with a way around them; halves height and width.

    Args:
        width_in: channels of its input.
        width: channels of its output.
    """

    def __init__(self, width_in: int, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width_in, width, 3, stride=2, padding=1, bias=False)
        self.first_norm = RealNorm(width)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.second_norm = RealNorm(width)
        self.around = nn.Conv2d(width_in, width, 1, stride=2, bias=False)

    def forward(self, image: Tensor, real: Tensor | None) -> Tensor:
        """``[b, width, h / 2, w / 2]``; ``real [b, h / 2]``: where the result is not padding."""
        hidden: Tensor = self.first_norm(self.first(image), real).relu()
        hidden = self.second_norm(self.second(hidden), real) + self.around(image)
        return hidden.relu()


class ResidualNet(nn.Module):
    """A 5x5 convolution, residual blocks, and the mean over all places.

    With ``lengths`` rows of a batch may end at different heights: what is behind the end changes nothing.

    Args:
        channels: of the input.
        widths: channels after the first convolution and after each block.
    """

    def __init__(self, channels: int, widths: Sequence[int]) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, widths[0], 5, stride=2, padding=2, bias=False)
        self.stem_norm = RealNorm(widths[0])
        self.blocks = nn.ModuleList(map(ResidualBlock, widths[:-1], widths[1:]))

    def forward(self, image: Tensor, lengths: Tensor | None = None) -> Tensor:
        """``[b, widths[-1]]`` of ``[b, channels, h, w]``; ``lengths [b]``, from 1 to h."""
        real = None
        if lengths is not None:
            real = torch.arange(image.shape[2], device=image.device) < lengths[:, None]  # [b, h]
            image = image * real[:, None, :, None]
            real = real[:, ::2]
        hidden: Tensor = self.stem_norm(self.stem(image), real).relu()
        for block in self.blocks:
            real = None if real is None else real[:, ::2]
            hidden = block(hidden, real)
        if real is None:
            return hidden.mean(dim=(2, 3))
        return hidden.mean(dim=3).sum(dim=2) / real.sum(dim=1)[:, None]  # padding is zero
