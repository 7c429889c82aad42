"""What a fitted model teaches another one: labels of rows, and which rows are similar."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from vicinal.core import as_tensor
from vicinal.core.checks import check_between, check_tensor
from vicinal.similarity.base import resolve_similarity


class Teacher(nn.Module):
    r"""A fitted model's predictions for the rows of a fit, as ``loss=`` of the estimator that learns from it.

    The training label of row i becomes $(1 - \lambda_i) y_i + \lambda_i \hat y_i$ with the teacher's prediction
    $\hat y_i$; labels of held-out rows stay. ``loss`` also compares the scores of each row of a batch against the
    others with those of the teacher's embeddings; it is added to the error of the predictions.

    Args:
        predictions: $\hat y$ of all rows of the fit: numbers ``[n]``, or probabilities of classes ``[n, K]``.
        share: $\lambda$ in [0, 1], one number, or one per row ``[n]``.
        vectors: the teacher's embeddings ``[n, d]``; needed by ``loss``.
        loss: a teacher loss, ``loss(scores [b, b - 1], teacher_scores [b, b - 1])``, such as
            :func:`vicinal.losses.kl_top`; None: only the labels teach.
        weight: > 0, factor of ``loss``.
        similarity: used for the embeddings of both models.

    >>> teacher = Teacher(torch.tensor([0.0, 1.0]), share=0.5)
    >>> teacher.blend(torch.tensor([1.0, 1.0]))
    tensor([0.5000, 1.0000])
    """

    vectors: Tensor | None

    def __init__(
        self,
        predictions: Tensor,
        share: float | Tensor = 0.5,
        vectors: Tensor | None = None,
        loss: Callable[[Tensor, Tensor], Tensor] | None = None,
        weight: float = 1.0,
        similarity: str = "l2",
    ) -> None:
        super().__init__()
        check_tensor("predictions", predictions)
        shares = as_tensor("share", share, torch.float64).expand(len(predictions))
        if not bool(((shares >= 0) & (shares <= 1)).all()):
            raise ValueError("share: expected numbers from 0 to 1, got some outside")
        if loss is not None and (vectors is None or len(vectors) != len(predictions)):
            raise ValueError(f"vectors: expected [{len(predictions)}, d], one a prediction, for a loss of scores")
        self.predictions: Tensor = nn.Buffer(predictions.detach(), persistent=False)
        self.share: Tensor = nn.Buffer(shares, persistent=False)
        self.register_buffer("vectors", None if vectors is None else vectors.detach().float(), persistent=False)
        self.loss, self.weight = loss, check_between("weight", weight, 0, torch.inf)
        self.similarity = resolve_similarity(similarity)

    def blend(
        self,
        labels: Tensor,
        label_range: tuple[float, float] | None = None,
        transform: Callable[[Tensor], Tensor] = lambda predictions: predictions,
    ) -> Tensor:
        """Labels mixed with the predictions, for all rows.

        Args:
            labels: as in training, ``[n]`` or ``[n, K]``.
            label_range: the values that training has scaled to 0 and 1; None: labels were not scaled.
            transform: applied to labels before scaling, and here to predictions.
        """
        if labels.shape != self.predictions.shape:
            raise ValueError(f"predictions: expected {tuple(labels.shape)}, got {tuple(self.predictions.shape)}")
        low, high = label_range or (0.0, 1.0)
        known = (transform(self.predictions.to(labels)) - low) / (high - low)
        share = self.share.to(labels)
        return torch.lerp(labels, known, share if labels.ndim == 1 else share[:, None])

    def forward(self, embeddings: Tensor, labels: Tensor, ids: Tensor, groups: Tensor | None = None) -> Tensor:
        """The weighted loss of a batch; 0 without a loss, or for fewer than 3 rows.

        Args:
            embeddings: ``[b, d]``.
            labels: not used.
            ids: positions of the rows in the fit, 0 to n - 1, ``[b]``.
            groups: not used.
        """
        rows = len(embeddings)
        if self.loss is None or self.vectors is None or rows < 3:  # one other row has every share
            return embeddings.sum() * 0.0
        others = ~torch.eye(rows, dtype=torch.bool, device=embeddings.device)
        taught = self.vectors[ids].to(embeddings)
        scores = [self.similarity(x, x)[others].reshape(rows, rows - 1) for x in (embeddings, taught)]
        return self.weight * self.loss(*scores)
