"""Images and sounds by a small residual network that is trained from scratch."""

import math
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from vicinal.core import register
from vicinal.core.checks import check_integer
from vicinal.encoders.base import ColumnEncoder, Features, SavedEncoder, Size
from vicinal.encoders.images import prepare_images, to_square
from vicinal.encoders.inputs import Inputs, RaggedInputs
from vicinal.encoders.sounds import prepare_log_mel


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


MOST_SIDE, MOST_BANDS, MOST_SECONDS = 512, 256, 120
"""Limits of what a row is decoded to: the weights do not tell it, so that nothing else would limit it."""


class SavedImagePixels(SavedEncoder):
    """See :meth:`ImagePixels.config`."""

    side: PositiveInt


class SavedImageCNN(SavedImagePixels):
    """See :meth:`ImageCNN.config`."""

    widths: list[Size] = Field(min_length=1, max_length=16)


class SavedAudioCNN(SavedEncoder):
    """See :meth:`AudioCNN.config`."""

    bands: PositiveInt
    seconds: PositiveInt
    widths: list[Size] = Field(min_length=1, max_length=16)


class SquareImages(ColumnEncoder):
    """Images that are resized to one square of ``side`` pixels, from 8 to 512; a cell is a path or a file's bytes."""

    kind = "image"

    def __init__(self, columns: str | Sequence[str], side: int = 32) -> None:
        super().__init__(columns)
        self.side = check_integer("side", side, 8, MOST_SIDE)

    def prepare(self, frame: pd.DataFrame, root: Path | None = None) -> Inputs:
        """Decode and resize; uint8 ``[n, 3, side, side]``."""
        side = self.side
        return prepare_images(self.cells(frame), self.columns[0], root, lambda image: to_square(image, side), f"{side}")

    def features(self, frame: pd.DataFrame, inputs: Inputs) -> Features:
        """The pixels of the image at a sixteenth of 16 x 16 places, from 0 to 1: ``[n, 768]``."""
        parts = [
            nn.functional.adaptive_avg_pool2d(inputs.select(rows).double() / 255, min(16, self.side)).flatten(1)
            for rows in torch.split(torch.arange(len(inputs)), 256)
        ]
        return torch.cat(parts).numpy() if parts else torch.zeros(0, 1, dtype=torch.float64).numpy()


@register("encoder", "cnn", "image", "from-scratch")
class ImageCNN(SquareImages):
    """Images of 64 x 64 pixels by a small residual network that is trained from scratch.

    Args:
        columns: the column; a cell is a path or the bytes of a file.
        side: height and width that images are resized to, from 8 to 512.
        widths: channels after the first convolution and after each residual block.
    """

    name = "cnn"
    saved = SavedImageCNN

    def __init__(self, columns: str | Sequence[str], side: int = 64, widths: Sequence[int] = (32, 48, 96, 160)) -> None:
        super().__init__(columns, side)
        self.widths = [check_integer("widths", width) for width in widths]
        self.net = ResidualNet(3, self.widths)

    @property
    def dim(self) -> int:
        """Channels of the last block."""
        return self.widths[-1]

    def forward(self, batch: Tensor) -> Tensor:
        """``[b, dim]``."""
        return self.net((batch.to(self.net.stem.weight.dtype) / 255 - 0.45) / 0.25)


@register("encoder", "pixels", "image", "parameter-free", family="cnn")
class ImagePixels(SquareImages):
    """The pixels of images of 32 x 32, channel by channel, about standardized: ``[b, 3 * side * side]``.

    For sets of images by ``"set_convolution:pixels"``, which lays them out as images again.

    Args:
        columns: the column; a cell is a path or the bytes of a file.
        side: height and width that images are resized to, from 8 to 512.
    """

    name = "pixels"
    saved = SavedImagePixels

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        return 3, self.side, self.side

    @property
    def dim(self) -> int:
        """Their product."""
        return math.prod(self.image_shape)

    def forward(self, batch: Tensor) -> Tensor:
        """``[b, dim]``."""
        return ((batch.float() / 255 - 0.45) / 0.25).flatten(1)


@register("encoder", "cnn-mel", "audio", "from-scratch")
class AudioCNN(ColumnEncoder):
    """Sounds as log-mel spectrograms by a small residual network that is trained from scratch.

    Args:
        columns: the column; a cell is a path or the bytes of a file.
        bands: frequency bands of the spectrogram, from 8 to 256.
        seconds: longer sounds are cut to their middle; at most 120.
        widths: channels after the first convolution and after each residual block.
    """

    kind = "audio"
    name = "cnn-mel"
    saved = SavedAudioCNN

    def __init__(
        self,
        columns: str | Sequence[str],
        bands: int = 64,
        seconds: int = 10,
        widths: Sequence[int] = (32, 48, 96, 160),
    ) -> None:
        super().__init__(columns)
        self.bands = check_integer("bands", bands, 8, MOST_BANDS)
        self.seconds = check_integer("seconds", seconds, high=MOST_SECONDS)
        self.widths = [check_integer("widths", width) for width in widths]
        self.net = ResidualNet(1, self.widths)

    @property
    def dim(self) -> int:
        """Channels of the last block."""
        return self.widths[-1]

    def prepare(self, frame: pd.DataFrame, root: Path | None = None) -> RaggedInputs:
        """Log-mel spectrograms of different lengths, ``[frames, bands]`` each."""
        return prepare_log_mel(self.cells(frame), self.columns[0], root, bands=self.bands, seconds=self.seconds)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """``[b, dim]``."""
        values = batch["values"].to(self.net.stem.weight.dtype)
        return self.net(values[:, None], batch["lengths"])

    def features(self, frame: pd.DataFrame, inputs: Inputs) -> Features:
        """Mean and deviation over time of each band: ``[n, 2 * bands]``."""
        rows = []
        for row in range(len(inputs)):
            values = inputs.select(torch.tensor([row]))["values"][0].double()  # [frames, bands]
            rows.append(torch.cat([values.mean(dim=0), values.std(dim=0, correction=0)]))
        return torch.stack(rows).numpy() if rows else torch.zeros(0, 2 * self.bands).double().numpy()
