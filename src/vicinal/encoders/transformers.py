"""Text, images and sounds by Hugging Face models.

Nothing of a model folder is executed: weights are safetensors only, and code that comes with a model is never run.
"""

import contextlib
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import pandas as pd
import torch
from pydantic import Field
from torch import Tensor, nn

from vicinal.core import check_choice, register, short
from vicinal.core.checks import local_path, optional_import, short_text
from vicinal.encoders.base import SavedEncoder, state_hash
from vicinal.encoders.images import prepare_images
from vicinal.encoders.inputs import Inputs, RaggedInputs, ragged
from vicinal.encoders.pretrained import PretrainedEncoder, SavedPretrained
from vicinal.encoders.sounds import read_sounds
from vicinal.encoders.texts import TextEncoder, mean_of_places

if TYPE_CHECKING:
    from PIL.Image import Image

POOLINGS = ("mean", "cls")

SECONDS = 10.0
"""How long an answer of the hub is waited for."""

LONGEST = 512
"""Tokens of the longest text that a model of the hub reads, where the model does not say less."""

SHORTEST = 400
"""Samples that a shorter sound is filled to with silence: what the first layers of speech models need."""


class SavedTransformer(SavedPretrained):
    """See :meth:`TransformerEncoder.config`; only weights that are known by their checksum are read."""

    kind: Literal["text", "image", "audio"]
    pooling: Literal["mean", "cls"]
    revision: str | None = Field(pattern=r"^[A-Za-z0-9_./-]+$", max_length=100)
    weights: str = Field(pattern=r"^[0-9a-f]{64}$")


@contextlib.contextmanager
def quiet(transformers: Any) -> Iterator[None]:
    """Leave out what transformers prints and warns of while it loads files."""
    logging = transformers.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


class TransformerEncoder(PretrainedEncoder):
    """A Hugging Face model and what prepares its input.

    Args:
        columns: the column.
        model: "hub:NAME" (downloaded when it is not in the cache of the hub) or "folder:PATH".
        tune: "none", "all", "last-N" or "lora": what is trained.
        pooling: "mean" over the places of the last layer, or "cls": the first place.
        revision: of a hub model; None: the newest. The one that was read is kept in the configuration.
        weights: sha256 that the weights must have, or None: any.

    Attributes:
        tower: attribute of models of several kinds of data that holds the part for this kind.
        processed_by: class of transformers that reads the tokenizer, image processor or feature extractor.

    Raises:
        ValueError: when the model cannot be had, or its weights are not ``weights``.
    """

    name = "folder"
    saved: ClassVar[type[SavedEncoder]] = SavedTransformer
    tower: ClassVar[str]
    processed_by: ClassVar[str]

    def __init__(
        self,
        columns: str | Sequence[str],
        model: str,
        tune: str = "none",
        pooling: str = "mean",
        revision: str | None = None,
        weights: str | None = None,
    ) -> None:
        self.name = model
        self.pooling = check_choice("pooling", pooling, POOLINGS)
        where, options = locate(model, revision)
        if "revision" in options:
            options["local_files_only"] = not hub_answers(where, options["revision"], self.kind)
        net, self.processor = self._load(where, options)
        self.revision = self._revision(where, options)
        self.weights = state_hash(net)
        if weights is not None and weights != self.weights:
            raise ValueError(
                f"{model}: expected weights with sha256 {weights[:12]}..., with which this was trained, "
                f"got {self.weights[:12]}...: the model was changed; restore it"
            )
        super().__init__(columns, net, tune)
        self._dim = find_width(net)

    def _load(self, where: str, options: dict[str, Any]) -> tuple[Any, Any]:
        transformers = optional_import(self.kind, "transformers", self.kind)
        try:
            with quiet(transformers):
                processor = self.read_processor(transformers, where, options)
                net = transformers.AutoModel.from_pretrained(where, use_safetensors=True, **options)
        except Exception as error:  # loaders of foreign folders raise nearly every class there is
            reason = str(error).strip().split("\n", 1)[0]
            raise ValueError(
                f"{self.name}: expected a Hugging Face model of {self.kind} with safetensors weights, "
                f"got {type(error).__name__}: {short_text(reason, 200)}"
            ) from error
        net.eval()
        part = getattr(net, self.tower, None)
        net = part if isinstance(part, nn.Module) else net
        if getattr(net.config, "is_encoder_decoder", False):
            net = net.get_encoder()  # type: ignore[operator]  # of a PreTrainedModel
        if hasattr(net.config, "apply_spec_augment"):
            net.config.apply_spec_augment = False  # it hides parts of the sound while training
        return net, processor

    @classmethod
    def read_processor(cls, transformers: Any, where: str, options: dict[str, Any]) -> Any:
        """What is :attr:`processed_by`."""
        return getattr(transformers, cls.processed_by).from_pretrained(where, **options)

    def _revision(self, where: str, options: dict[str, Any]) -> str | None:
        """The commit of a hub model that was read, from its place in the cache of the hub."""
        if "revision" not in options:
            return None
        where_from = {name: options[name] for name in ("revision", "local_files_only")}
        transformers = optional_import(self.kind, "transformers", self.kind)
        file = transformers.utils.cached_file(where, "config.json", **where_from)
        commit = re.search(r"snapshots[\\/]([^\\/]+)", str(file))
        return commit[1] if commit else str(options["revision"])

    @property
    def dim(self) -> int:
        """Width of the last layer."""
        return self._dim

    def layers(self) -> list[nn.Module]:
        """The layers of the model's stack."""
        path = stack_path(self.net)
        return list(self.net.get_submodule(path).children()) if path else []

    def tail(self) -> list[nn.Module]:
        """What is registered behind the stack, at any level."""
        return self._beside(behind=True)

    def _beside(self, *, behind: bool) -> list[nn.Module]:
        """What is registered before or behind the stack, at any level."""
        modules: list[nn.Module] = []
        module = self.net
        for name in stack_path(self.net).split("."):
            children = dict(module.named_children())
            at = list(children).index(name)
            modules += list(children.values())[at + 1 :] if behind else list(children.values())[:at]
            module = children[name]
        return modules

    def unused(self) -> list[nn.Module]:
        """The pooling layer of the model: the last layer is pooled here."""
        pooler = getattr(self.net, "pooler", None)
        return [pooler] if isinstance(pooler, nn.Module) else []

    def pool(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        """``[b, dim]`` of ``hidden [b, places, dim]`` (``mask [b, places]``: 1 where real) or ``[b, dim, h, w]``."""
        if hidden.ndim == 4:
            return hidden.mean(dim=(2, 3))
        if self.pooling == "cls":
            return hidden[:, 0]
        return mean_of_places(hidden, mask)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The encoder with the same published weights, found where they were."""
        settings = {name: value for name, value in config.items() if name != "kind"}
        return super().from_config({**settings, "model": config["encoder"]})


def locate(model: str, revision: str | None) -> tuple[str, dict[str, Any]]:
    """What ``from_pretrained`` is given for "hub:NAME" or "folder:PATH".

    Raises:
        ValueError: for another form, a name that is no name on the hub, a folder without a model.
    """
    where, _, name = model.partition(":")
    check_choice("model", where, ("hub", "folder"))
    if where == "folder":
        folder = local_path("model", name)
        if not _is_file(folder / "config.json"):
            raise ValueError(
                f"{short_text(model, 120)}: expected a folder with config.json and safetensors weights, got none there"
            )
        return str(folder.resolve()), {"local_files_only": True, "trust_remote_code": False}
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", name):
        raise ValueError(
            f"model: expected hub:OWNER/NAME or hub:NAME, got {short(model)}; a folder goes as folder:PATH"
        )
    if Path(name).exists():
        raise ValueError(
            f"model: expected a name on the hub, got {short(model)}, which is also a folder here; "
            f"say folder:{short_text(name)} to use it"
        )
    return name, {"revision": revision or "main", "trust_remote_code": False}


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that is too long, or has a NUL in it
        return False


def hub_answers(name: str, revision: str, extra: str) -> bool:
    """Whether the hub answers when it is asked for a model, once; without, only a copy in its cache can be read.

    Left alone, the loaders ask for each file again and again, and fail after a minute.

    Raises:
        ValueError: if there is no answer and no copy.
    """
    optional_import(extra, "transformers", extra)  # has huggingface_hub with it, or says how to get both
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError

    try:
        huggingface_hub.HfApi().model_info(name, revision=revision, timeout=SECONDS)
        return True
    except Exception as error:  # the classes for a connection that fails are those of whatever library makes it
        if isinstance(error, HfHubHTTPError) and error.response.status_code < 500:
            return True  # an answer: what is wrong with the name is said by the loader
        if isinstance(huggingface_hub.try_to_load_from_cache(name, "config.json", revision=revision), str):
            return False
        reason = short_text(str(error).strip().split("\n", 1)[0], 120)
        raise ValueError(
            f"hub:{name}: expected a Hugging Face model on the hub or in its cache, got no answer from the hub "
            f"({reason}) and no copy; connect this computer, or fetch the model on another and give it as folder:PATH"
        ) from error


def find_width(net: nn.Module) -> int:
    """Width of the last layer, from the configuration of a model."""
    settings: Any = net.config
    for name in ("hidden_size", "d_model", "n_embd", "dim"):
        if isinstance(getattr(settings, name, None), int):
            return int(getattr(settings, name))
    if hasattr(settings, "hidden_sizes"):
        return int(settings.hidden_sizes[-1])
    return int(settings.hidden_dim)  # EfficientNet's last layer; in other models the width inside a layer


def stack_path(net: nn.Module) -> str:
    """Path of the list of layers: as long as the configuration says, else the longest; "" where there is none."""
    lists = {name: len(part) for name, part in net.named_modules() if isinstance(part, nn.ModuleList)}
    count = getattr(net.config, "num_hidden_layers", None)
    fitting = [name for name, length in lists.items() if length == count]
    return fitting[0] if fitting else max(lists, key=lambda name: lists[name], default="")


class TextTransformer(TransformerEncoder, TextEncoder):
    """Text by any Hugging Face model that reads tokens.

    A text is cut to what the model reads at once (at most 512 tokens). Arguments are those of ``TransformerEncoder``.
    """

    tower = "text_model"
    processed_by = "AutoTokenizer"

    def front(self) -> list[nn.Module]:
        """What is registered before the stack: the tables of word pieces and places."""
        return self._beside(behind=False)

    @property
    def padding(self) -> int:
        """The token that the tokenizer fills up with, or the first."""
        return self.processor.pad_token_id or 0

    def longest(self) -> int:
        """Tokens that are read of a text."""
        places = getattr(self.net.config, "max_position_embeddings", None) or LONGEST
        return min(int(self.processor.model_max_length), int(places), LONGEST)

    def tokens(self, texts: list[str]) -> list[list[int]]:
        """Numbers of the tokens of each text, by the tokenizer of the model."""
        with quiet(optional_import(self.kind, "transformers", self.kind)):
            rows = self.processor(texts, truncation=True, max_length=self.longest(), return_attention_mask=False)
        unknown = [self.processor.unk_token_id or 0]  # for the models whose empty text has no tokens at all
        return [row or unknown for row in rows["input_ids"]]

    def hidden(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """The last layer ``[b, places, dim]``."""
        return self.net(input_ids=tokens, attention_mask=mask.long()).last_hidden_state


class ImageTransformer(TransformerEncoder):
    """Images by any Hugging Face model with an image processor. Its arguments are those of ``TransformerEncoder``."""

    kind = "image"
    tower = "vision_model"
    processed_by = "AutoImageProcessor"
    has_states = True

    @classmethod
    def read_processor(cls, transformers: Any, where: str, options: dict[str, Any]) -> Any:
        """The image processor that works on PIL images, which needs no torchvision."""
        newer = int(transformers.__version__.split(".", 1)[0]) >= 5
        return super().read_processor(
            transformers, where, ({"backend": "pil"} if newer else {"use_fast": False}) | options
        )

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

    Sounds of different lengths run separately, so that none is padded: many of these models have layers that would mix
    the padding in.
    """

    kind = "audio"
    tower = "audio_model"
    processed_by = "AutoFeatureExtractor"

    def prepare(self, frame: pd.DataFrame, root: Path | None = None) -> RaggedInputs:
        """Decode, and do what the model's extractor does."""
        rate = int(self.processor.sampling_rate)

        def make(wave: Tensor) -> Tensor:
            wave = nn.functional.pad(wave, (0, max(0, SHORTEST - len(wave))))
            features = self.processor(wave.numpy(), sampling_rate=rate, return_tensors="np")
            return torch.as_tensor(features["input_values" if "input_values" in features else "input_features"][0])

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


TRANSFORMERS: dict[str, type[TransformerEncoder]] = {
    "text": TextTransformer,
    "image": ImageTransformer,
    "audio": AudioTransformer,
}


@register("encoder", "hub", "text", "image", "audio", "pretrained", family="transformers")
def hub_encoder(columns: str | Sequence[str], model: str, kind: str = "text", **settings: Any) -> TransformerEncoder:
    """Any Hugging Face model of text, images or sounds, downloaded from the hub: "hub:NAME".

    Args:
        columns: the column.
        model: its name on the hub.
        kind: "text", "image" or "audio".
        **settings: ``tune``, ``pooling``, ``revision``, as ``TransformerEncoder`` has them.
    """
    return TRANSFORMERS[check_choice("kind", kind, TRANSFORMERS)](columns, f"hub:{model}", **settings)


@register("encoder", "folder", "text", "image", "audio", "pretrained", family="transformers")
def folder_encoder(columns: str | Sequence[str], model: str, kind: str = "text", **settings: Any) -> TransformerEncoder:
    """Any Hugging Face model of text, images or sounds, in a folder: "folder:PATH".

    Args:
        columns: the column.
        model: path of the folder.
        kind: "text", "image" or "audio".
        **settings: ``tune`` and ``pooling``, as ``TransformerEncoder`` has them.
    """
    return TRANSFORMERS[check_choice("kind", kind, TRANSFORMERS)](columns, f"folder:{model}", **settings)
