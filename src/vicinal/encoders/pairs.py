"""Two columns read by one encoder, and how they differ: two sentences, a question and its answer, two photos."""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import pandas as pd
import torch
from pydantic import JsonValue
from torch import Tensor

from vicinal.core import register, short
from vicinal.encoders.base import ColumnEncoder, Features, SavedEncoder, embed
from vicinal.encoders.inputs import Inputs, JoinedInputs
from vicinal.encoders.names import PAIR, check_encoder, encoder_from_config, make_encoder
from vicinal.encoders.pretrained import PretrainedEncoder, as_published


class SavedPair(SavedEncoder):
    """See :meth:`PairEncoder.config`."""

    kind: Literal["text", "image", "audio"]
    tune: str
    one: dict[str, JsonValue]


@register("encoder", "pair", "text", "image", "audio", "pretrained", family="pairs", paper="arXiv:1705.02364")
class PairEncoder(ColumnEncoder):
    r"""Two columns of a kind by one pretrained encoder: $[u, v, |u - v|, u \odot v]$, ``[b, 4 d]``.

    A label such as "how alike are both" or "does this answer that" hangs on how the two differ, which a distance of
    rows with u and v side by side does not see. What is trained of the encoder is trained by both columns.

    Args:
        columns: two.
        encoder: "pair:" and the name of a pretrained encoder.
        kind: of both columns: "text", "image" or "audio".
        tune: of the encoder: "none", "all", "last-N" or "lora".

    Paper: Conneau et al. 2017, arXiv:1705.02364.

    Raises:
        ValueError: for one column or more than two, or an encoder that is not pretrained.
    """

    several = True
    saved = SavedPair

    def __init__(
        self,
        columns: str | Sequence[str],
        encoder: str,
        kind: Literal["text", "image", "audio"] = "text",
        tune: str = "none",
        *,
        one: PretrainedEncoder | None = None,
    ) -> None:
        self.name, self.tune = check_encoder(encoder, kind), tune
        super().__init__(columns)
        self.kind = kind  # type: ignore[misc]  # of each pair its own
        if len(self.columns) != 2:
            raise ValueError(
                f"columns: expected two for the encoder {self.name!r}, got {short(self.columns)}; name it for both "
                "columns of a pair"
            )
        reader = one or make_encoder(self.name.removeprefix(PAIR), self.columns[0], kind, tune=tune)
        if not isinstance(reader, PretrainedEncoder):
            raise ValueError(f"encoder: expected a pretrained one after {PAIR!r}, got {self.name!r}")
        self.one = reader

    @property
    def dim(self) -> int:
        """Four times that of the encoder."""
        return 4 * self.one.dim

    def prepare(self, frame: pd.DataFrame, root: Path | None = None) -> JoinedInputs:
        """Prepare both columns."""
        self.check_frame(frame)
        return JoinedInputs(tuple(reader.prepare(frame, root) for reader in self.readers()))

    def readers(self) -> list[PretrainedEncoder]:
        """The encoder for each column, with the same network."""
        readers = []
        for column in self.columns:
            reader = copy.copy(self.one)
            reader.columns = [column]
            readers.append(reader)
        return readers

    def forward(self, batch: Mapping[str, Any]) -> Tensor:
        """``[b, 4 d]``."""
        sides = batch["0"], batch["1"]
        have_states = [isinstance(side, Mapping) and "states" in side for side in sides]
        each = zip(sides, have_states, strict=True)
        return self.compared(*(self.one.onward(side) if onward else self.one(side) for side, onward in each))

    @staticmethod
    def compared(first: Tensor, second: Tensor) -> Tensor:
        """``[b, 4 d]`` of the vectors ``[b, d]`` of both columns."""
        return torch.cat([first, second, (first - second).abs(), first * second], dim=1)

    def keep_states(self, inputs: Inputs) -> Inputs:
        """See :meth:`PretrainedEncoder.keep_states`."""
        if not isinstance(inputs, JoinedInputs):
            return inputs
        return JoinedInputs(tuple(map(self.one.keep_states, inputs.parts)))

    def features(self, frame: pd.DataFrame, inputs: Inputs) -> Features:
        """Those of the published weights, before any training."""
        return embed(as_published(self, inputs), inputs).double().numpy()

    def config(self) -> dict[str, Any]:
        """Settings of the pair, and of the encoder of both columns."""
        one = {name: value for name, value in self.one.config().items() if name not in ("columns", "tune")}
        return {"encoder": self.name, "columns": self.columns, "kind": self.kind, "tune": self.tune, "one": one}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """See :class:`ColumnEncoder`; the name says which encoder reads the columns."""
        name = check_encoder(config["encoder"], config["kind"])
        known = {"encoder": name.removeprefix(PAIR), "columns": config["columns"][:1], "tune": config["tune"]}
        if name.removeprefix(PAIR).partition(":")[1]:
            known["kind"] = config["kind"]
        one: Any = encoder_from_config({**config["one"], **known})
        return cls(config["columns"], name, config["kind"], config["tune"], one=one)

    def hold(self) -> Self:
        """See :class:`ColumnEncoder`."""
        self.one.hold()
        return super().hold()

    def remade_keys(self) -> set[str]:
        """Those of the published weights that were left as they are."""
        return {f"one.{key}" for key in self.one.remade_keys()}
