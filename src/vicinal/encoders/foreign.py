"""Images and sounds by Hugging Face models, and any of these models by name: ``hub:NAME``, ``folder:PATH``."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch
from torch import Tensor, nn

from vicinal.core import check_choice, register
from vicinal.encoders.images import prepare_images
from vicinal.encoders.inputs import Inputs, RaggedInputs, ragged
from vicinal.encoders.sentences import TextTransformer
from vicinal.encoders.sounds import read_sounds
from vicinal.encoders.transformer import TransformerEncoder

if TYPE_CHECKING:
    from PIL.Image import Image

SHORTEST = 400
"""Samples that a shorter sound is filled to with silence: what the first layers of speech models need."""


class ImageTransformer(TransformerEncoder):
    """Images by any Hugging Face model with an image processor. Its arguments are those of ``TransformerEncoder``."""

    kind = "image"
    tower = "vision_model"

    @classmethod
    def read_processor(cls, transformers: Any, where: str, options: dict[str, Any]) -> Any:
        """The image processor that works on PIL images, which needs no torchvision."""
        newer = int(transformers.__version__.split(".", 1)[0]) >= 5
        chosen: dict[str, Any] = {"backend": "pil"} if newer else {"use_fast": False}
        return transformers.AutoImageProcessor.from_pretrained(where, **chosen, **options)

    def prepare(self, frame: pd.DataFrame, root: Path | None = None) -> Inputs:
        """Decode, and do what the model's processor does; float32 ``[n, 3, h, w]``."""

        def make(image: "Image") -> Tensor:
            return torch.as_tensor(self.processor(images=image, return_tensors="np")["pixel_values"][0])

        return prepare_images(self.cells(frame), self.columns[0], root, make, self.processor.to_json_string())

    def forward(self, batch: Tensor) -> Tensor:
        """``[b, dim]``."""
        dtype = next(self.net.parameters()).dtype
        return self.pool(self.net(pixel_values=batch.to(dtype)).last_hidden_state)


class AudioTransformer(TransformerEncoder):
    """Sounds by any Hugging Face model with a feature extractor. Its arguments are those of ``TransformerEncoder``.

    Sounds of different lengths are run apart, so that none is padded: many of these models have layers that would
    mix the padding in.
    """

    kind = "audio"
    tower = "audio_model"

    @classmethod
    def read_processor(cls, transformers: Any, where: str, options: dict[str, Any]) -> Any:
        """The feature extractor."""
        return transformers.AutoFeatureExtractor.from_pretrained(where, **options)

    def prepare(self, frame: pd.DataFrame, root: Path | None = None) -> RaggedInputs:
        """Decode, and do what the model's extractor does."""
        rate = int(self.processor.sampling_rate)

        def make(wave: Tensor) -> Tensor:
            wave = nn.functional.pad(wave, (0, max(0, SHORTEST - len(wave))))
            features = self.processor(wave.numpy(), sampling_rate=rate, return_tensors="np")
            return torch.as_tensor(features[self._input(features)][0])

        rows = read_sounds(self.cells(frame), self.columns[0], root, make, rate)
        return ragged(rows, rows[0][:0] if rows else torch.zeros(0))

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """``[b, dim]``."""
        values = batch["values"].to(next(self.net.parameters()).dtype)
        lengths: Tensor = batch["lengths"]
        vectors = values.new_zeros(len(values), self.dim)
        for length in sorted(set(lengths.tolist())):
            rows = torch.nonzero(lengths == length)[:, 0]
            hidden = self.net(values[rows, :length]).last_hidden_state
            vectors = vectors.index_copy(0, rows, self.pool(hidden))
        return vectors

    @staticmethod
    def _input(features: Any) -> str:
        return "input_values" if "input_values" in features else "input_features"


TRANSFORMERS: dict[str, type[TransformerEncoder]] = {
    "text": TextTransformer,
    "image": ImageTransformer,
    "audio": AudioTransformer,
}


@register("encoder", "hub", "text", "image", "audio", "pretrained")
def hub_encoder(columns: str | Sequence[str], model: str, kind: str = "text", **settings: Any) -> TransformerEncoder:
    """Any Hugging Face model of text, images or sounds, downloaded from the hub: "hub:NAME".

    Args:
        columns: the column.
        model: its name on the hub.
        kind: "text", "image" or "audio".
        **settings: ``tune``, ``pooling``, ``revision``, as ``TransformerEncoder`` has them.
    """
    return TRANSFORMERS[check_choice("kind", kind, TRANSFORMERS)](columns, f"hub:{model}", **settings)


@register("encoder", "folder", "text", "image", "audio", "pretrained")
def folder_encoder(columns: str | Sequence[str], model: str, kind: str = "text", **settings: Any) -> TransformerEncoder:
    """Any Hugging Face model of text, images or sounds, in a folder: "folder:PATH".

    Args:
        columns: the column.
        model: path of the folder.
        kind: "text", "image" or "audio".
        **settings: ``tune`` and ``pooling``, as ``TransformerEncoder`` has them.
    """
    return TRANSFORMERS[check_choice("kind", kind, TRANSFORMERS)](columns, f"folder:{model}", **settings)
