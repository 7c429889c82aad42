"""The GE2E speaker encoder of Resemblyzer: speech to 256 values."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor, nn

from vicinal.core import register
from vicinal.encoders.inputs import RaggedInputs, ragged
from vicinal.encoders.pretrained import PretrainedEncoder, Wheel, load_tensors
from vicinal.encoders.sounds import HOP, mel_filters, mel_power, read_sounds

GE2E = Wheel(
    "ge2e",
    "resemblyzer",
    "Resemblyzer==0.1.4",
    "audio",
    {"pretrained.pt": "39373b86598fa3da9fcddee6142382efe09777e8d37dc9c0561f41f0070f134e"},
)

WINDOW = 160
"""Frames that the network was trained on: 1.6 seconds."""

LOUDNESS = 10 ** (-30 / 20)
"""Root mean square that each sound is scaled to: -30 decibels of full scale."""


class SpeakerNet(nn.Module):
    """Three recurrent layers, a linear one, and length 1."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.ModuleList([nn.LSTM(width, 256, batch_first=True) for width in (40, 256, 256)])
        self.linear = nn.Linear(256, 256)

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        """``[b, 256]`` of ``frames [b, t, 40]``; what is behind ``lengths [b]`` changes nothing."""
        hidden = frames
        for layer in self.lstm:
            hidden = layer(hidden)[0]
        last = hidden[torch.arange(len(hidden), device=hidden.device), lengths - 1]  # [b, 256]
        return nn.functional.normalize(self.linear(last).relu(), dim=1)


@register("encoder", "ge2e", "audio", "pretrained", paper="arXiv:1710.10467")
class SpeakerEncoder(PretrainedEncoder):
    """Speech by the GE2E speaker encoder: 256 values of length 1; weights from a wheel.

    A sound longer than 1.6 seconds is read in overlapping windows, whose vectors are averaged; a shorter one as it
    is, without padding. Its layers are three recurrent ones.

    Args:
        columns: the column; a cell is a path or the bytes of a file.
        tune: "none", "all" or "last-N" (N up to 3): what is trained.
    """

    kind = "audio"
    name = "ge2e"
    dim = 256
    stack = "lstm"
    behind = ("linear",)

    def __init__(self, columns: str | Sequence[str], tune: str = "none") -> None:
        super().__init__(columns, load_speaker_net(), tune)

    def prepare(self, frame: pd.DataFrame, root: Path | None = None) -> RaggedInputs:
        """Mel spectrograms ``[frames, 40]`` of sounds of one loudness."""
        filters = mel_filters(400, 40)

        def make(wave: Tensor) -> Tensor:
            loudness = wave.square().mean().sqrt().clamp(min=1e-8)
            return mel_power(wave * (LOUDNESS / loudness), filters, HOP)

        return ragged(read_sounds(self.cells(frame), self.columns[0], root, make), torch.zeros(0, 40))

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """``[b, 256]``."""
        values = batch["values"].to(next(self.net.parameters()).dtype)
        row, start, lengths = windows(batch["lengths"])
        longest = int(lengths.max()) if len(lengths) else 0
        places = start[:, None] + torch.arange(longest, device=start.device)  # [w, longest]
        frames = values[row[:, None], places.clamp(max=values.shape[1] - 1)]  # [w, longest, 40]
        vectors = self.net(frames, lengths)  # [w, 256]
        total = vectors.new_zeros(len(values), 256).index_add(0, row, vectors)
        return nn.functional.normalize(total, dim=1)


def windows(lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """``(row, start, length)`` of windows that cover sounds of ``lengths [b]`` frames, overlapping by half or more.

    >>> windows(torch.tensor([50, 400]))
    (tensor([0, 1, 1, 1, 1]), tensor([  0,   0,  80, 160, 240]), tensor([ 50, 160, 160, 160, 160]))
    """
    beyond = (lengths - WINDOW).clamp(min=0)  # [b]
    steps = (beyond + WINDOW // 2 - 1) // (WINDOW // 2)  # [b]
    row = torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), steps + 1)  # [w]
    first = torch.nn.functional.pad((steps + 1).cumsum(0), (1, 0))[row]
    number = torch.arange(len(row), device=row.device) - first
    start = number * beyond[row] // steps.clamp(min=1)[row]
    return row, start, lengths[row].clamp(max=WINDOW)


def load_speaker_net() -> SpeakerNet:
    """The network with the weights out of the wheel, checked."""
    (name,) = GE2E.files
    state: dict[str, Tensor] = load_tensors(GE2E.folder() / name)["model_state"]
    renamed = {}
    for key, value in state.items():
        if key.startswith("lstm."):
            stem, number = key.removeprefix("lstm.").rsplit("_l", 1)
            renamed[f"lstm.{number}.{stem}_l0"] = value
        elif key.startswith("linear."):
            renamed[key] = value
    with torch.device("meta"):
        net = SpeakerNet()
    net.load_state_dict(renamed, assign=True)
    return net
