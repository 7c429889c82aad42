"""A regularizer of embeddings as a criterion that is added to others, with the class centers that it needs."""

import inspect
import math
from typing import Any

import torch
from torch import Tensor, nn

from vicinal.core import entries, entry
from vicinal.core.checks import check_choice, check_integer
from vicinal.core.registry import Entry

_MADE_OF = {"embeddings", "labels", "membership", "centers"}
UNIT_ROWS = ("coding_rate", "mcr2")
"""Made for rows of length 1, to which embeddings are scaled unless ``normalize=False``."""
WHOLE = ("mcr2", "neural_collapse")
"""Those that separate classes by themselves; with any other alone, all rows would become one."""


def _required(one: Entry) -> list[str]:
    """The arguments of a regularizer without a default."""
    if inspect.isclass(one.factory):
        return ["features", "weight"]
    parameters = inspect.signature(one.factory).parameters.values()
    return [p.name for p in parameters if p.default is p.empty]


def of_embeddings() -> list[str]:
    """Names of the regularizers that need nothing but embeddings and classes: those that training can add.

    >>> of_embeddings()
    ['coding_rate', 'energy_confusion', 'flops', 'mcr2', 'neural_collapse', 't_regs', 'zero_mean']
    """
    return [one.name for one in entries("regularizer") if set(_required(one)) <= _MADE_OF]


class RegularizerLoss(nn.Module):
    """A regularizer of the embeddings of a batch, ``criterion(embeddings, labels)``.

    Args:
        name: one of :func:`of_embeddings`.
        num_classes: C >= 2, for learned centers of classes ("neural_collapse").
        dim: width of the embeddings, likewise.
        normalize: scale embeddings to length 1 first; None: where the regularizer is made for that.
        settings: of the regularizer.

    Attributes:
        centers: ``[C, dim]``, parameters that train with the rest; None if there are none.

    >>> RegularizerLoss("energy_confusion")(torch.tensor([[0.0], [2.0], [5.0]]), torch.tensor([0, 0, 1]))
    tensor(17.)
    >>> RegularizerLoss("neural_collapse", 3, 4).centers.shape
    torch.Size([3, 4])
    """

    centers: Tensor | None

    def __init__(
        self,
        name: str,
        num_classes: int | None = None,
        dim: int | None = None,
        *,
        normalize: bool | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        self.name = check_choice("loss", name, of_embeddings())
        one = entry("regularizer", name)
        self.regularizer, self.needs_classes = one.factory, "class-labels" in one.facts
        self.normalize, self.settings = name in UNIT_ROWS if normalize is None else normalize, settings
        self.centers = None
        if "centers" in _required(one):
            if num_classes is None or dim is None:
                raise ValueError(f"loss: expected num_classes and dim for {name}, which learns centers of classes")
            shape = check_integer("num_classes", num_classes, 2), check_integer("dim", dim)
            self.centers = nn.Parameter(torch.randn(shape) / math.sqrt(dim))

    def forward(self, embeddings: Tensor, labels: Tensor, *, ids: Any = None, groups: Any = None) -> Tensor:
        """The value of a batch; 0 for fewer than two rows, or two classes where it is of classes.

        Args:
            embeddings: ``[b, d]``.
            labels: classes ``[b]``, whole numbers; not read by regularizers without classes.
            ids: not used; every criterion of training gets them.
            groups: not used.
        """
        classes = labels.unique() if self.needs_classes else labels  # type: ignore[no-untyped-call]
        if len(embeddings) < 2 or len(classes) < 2:
            return embeddings.sum() * 0.0
        rows = nn.functional.normalize(embeddings, dim=1) if self.normalize else embeddings
        also = [labels] if self.needs_classes else []
        also += [] if self.centers is None else [self.centers]
        return self.regularizer(rows, *also, **self.settings)

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return ", ".join([self.name, *(f"{name}={value}" for name, value in self.settings.items())])
