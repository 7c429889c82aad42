"""Encoders out of Hugging Face models: what text, images and sounds have in common.

Nothing of a model folder is executed: weights are safetensors only, and code that comes with a model is never run.
"""

import abc
import contextlib
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field
from torch import Tensor, nn

from vicinal.core import check_choice, local_path, short, short_text
from vicinal.encoders.base import SavedEncoder, state_hash
from vicinal.encoders.pretrained import PretrainedEncoder, SavedPretrained

POOLINGS = ("mean", "cls")

SECONDS = 10.0
"""How long an answer of the hub is waited for."""


class SavedTransformer(SavedPretrained):
    """See :meth:`TransformerEncoder.config`; only weights that are known by their checksum are read."""

    kind: Literal["text", "image", "audio"]
    pooling: Literal["mean", "cls"]
    revision: str | None = Field(pattern=r"^[A-Za-z0-9_./-]+$", max_length=100)
    weights: str = Field(pattern=r"^[0-9a-f]{64}$")


def import_transformers(extra: str) -> Any:
    """The package transformers, or a sentence on how to get it."""
    try:
        import transformers
    except ImportError as error:
        raise ValueError(
            f"{extra}: expected the package transformers, got none; install it with pip install 'vicinal[{extra}]'"
        ) from error
    return transformers


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
        tune: "none", "all" or "last-N": what is trained.
        pooling: "mean" over the places of the last layer, or "cls": the first place.
        revision: of a hub model; None: the newest. The one that was read is kept in the configuration.
        weights: sha256 that the weights must have, or None: any.

    Attributes:
        own_name: how a model that vicinal knows is called; "": as the argument ``model``.
        tower: attribute of models of several kinds of data that holds the part for this kind.

    Raises:
        ValueError: when the model cannot be had, or its weights are not ``weights``.
    """

    name = "folder"
    saved: ClassVar[type[SavedEncoder]] = SavedTransformer
    own_name: ClassVar[str] = ""
    tower: ClassVar[str]

    def __init__(
        self,
        columns: str | Sequence[str],
        model: str,
        tune: str = "none",
        pooling: str = "mean",
        revision: str | None = None,
        weights: str | None = None,
    ) -> None:
        self.name = self.own_name or model
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

    @classmethod
    @abc.abstractmethod
    def read_processor(cls, transformers: Any, where: str, options: dict[str, Any]) -> Any:
        """The tokenizer, image processor or feature extractor."""

    def _load(self, where: str, options: dict[str, Any]) -> tuple[Any, Any]:
        transformers = import_transformers(self.kind)
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

    def _revision(self, where: str, options: dict[str, Any]) -> str | None:
        """The commit of a hub model that was read, from its place in the cache of the hub."""
        if "revision" not in options:
            return None
        where_from = {name: options[name] for name in ("revision", "local_files_only")}
        file = import_transformers(self.kind).utils.cached_file(where, "config.json", **where_from)
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
        modules: list[nn.Module] = []
        module = self.net
        for name in stack_path(self.net).split("."):
            children = dict(module.named_children())
            modules += list(children.values())[list(children).index(name) + 1 :]
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
        if mask is None:
            return hidden.mean(dim=1)
        weight = mask[:, :, None].to(hidden.dtype)
        return (hidden * weight).sum(dim=1) / weight.sum(dim=1).clamp(min=1)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The encoder with the same published weights, found where they were."""
        settings = {name: value for name, value in config.items() if name != "kind"}
        return super().from_config(settings if cls.own_name else {**settings, "model": config["encoder"]})


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
    import_transformers(extra)  # has huggingface_hub with it, or says how to get both
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
    return int(settings.hidden_sizes[-1])


def stack_path(net: nn.Module) -> str:
    """Path of the list of layers: as long as the configuration says, else the longest; "" where there is none."""
    lists = {name: len(part) for name, part in net.named_modules() if isinstance(part, nn.ModuleList)}
    count = getattr(net.config, "num_hidden_layers", None)
    fitting = [name for name, length in lists.items() if length == count]
    return fitting[0] if fitting else max(lists, key=lambda name: lists[name], default="")
