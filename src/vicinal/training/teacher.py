"""What a fitted model teaches another one: labels of rows, and which rows are alike."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from vicinal.core import check_between
from vicinal.core.checks import check_tensor
from vicinal.similarity import resolve_similarity


class Teacher(nn.Module):
    r"""What a fitted model says of the rows of a fit, as ``loss=`` of the estimator that is to learn from it.

    The labels of row i that are trained on become $(1 - \lambda_i) y_i + \lambda_i \hat y_i$, $\hat y$ what the teacher
    predicts; those of the rows held out stay. With ``loss`` the scores of each row of a batch against the others are
    compared with those of the teacher's embeddings, beside the error of the predictions.

    Args:
        predictions: $\hat y$ of all rows of the fit: numbers ``[n]``, or probabilities of classes ``[n, K]``.
        share: $\lambda$ in [0, 1], one number or one a row ``[n]``.
        vectors: the teacher's embeddings ``[n, d]``; needed by ``loss``.
        loss: of teachers, ``loss(scores [b, b - 1], teacher_scores [b, b - 1])``, such as
            :func:`vicinal.losses.kl_top`; None: labels alone teach.
        weight: > 0, of ``loss`` beside the error of predictions.
        similarity: of both embeddings.

    >>> teacher = Teacher(torch.tensor([0.0, 1.0]), share=0.5)
    >>> teacher.blend(torch.tensor([1.0, 1.0]))
    tensor([0.5000, 1.0000])
    """

    predictions: Tensor
    share: Tensor
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
        shares = torch.as_tensor(share, dtype=torch.float64).expand(len(predictions))
        if not bool(((shares >= 0) & (shares <= 1)).all()):
            raise ValueError("share: expected numbers from 0 to 1, got some outside")
        if loss is not None and (vectors is None or len(vectors) != len(predictions)):
            raise ValueError(f"vectors: expected [{len(predictions)}, d], one a prediction, for a loss of scores")
        self.register_buffer("predictions", predictions.detach(), persistent=False)
        self.register_buffer("share", shares, persistent=False)
        self.register_buffer("vectors", None if vectors is None else vectors.detach().float(), persistent=False)
        self.loss, self.weight = loss, check_between("weight", weight, 0, torch.inf)
        self.similarity = resolve_similarity(similarity)

    def blend(
        self,
        labels: Tensor,
        label_range: tuple[float, float] | None = None,
        transform: Callable[[Tensor], Tensor] = lambda predictions: predictions,
    ) -> Tensor:
        """The labels that are trained on, all rows.

        Args:
            labels: as training sees them, ``[n]`` or ``[n, K]``.
            label_range: what training has scaled to 0 and 1, in the units of the predictions.
            transform: what labels went through before they were scaled.
        """
        if labels.shape != self.predictions.shape:
            raise ValueError(f"predictions: expected {tuple(labels.shape)}, got {tuple(self.predictions.shape)}")
        low, high = label_range or (0.0, 1.0)
        known = (transform(self.predictions.to(labels)) - low) / (high - low)
        share = self.share.to(labels)
        return torch.lerp(labels, known, share if labels.ndim == 1 else share[:, None])

    def forward(self, embeddings: Tensor, labels: Tensor, ids: Tensor, groups: Tensor | None = None) -> Tensor:
        """The loss of a batch.

        Args:
            embeddings: ``[b, d]``.
            labels: not used.
            ids: places of the rows, 0 to n - 1, ``[b]``.
            groups: not used.
        """
        rows = len(embeddings)
        if self.loss is None or self.vectors is None or rows < 3:  # one other row has every share
            return embeddings.sum() * 0.0
        others = ~torch.eye(rows, dtype=torch.bool, device=embeddings.device)
        taught = self.vectors[ids].to(embeddings)
        scores = [self.similarity(x, x)[others].reshape(rows, rows - 1) for x in (embeddings, taught)]
        return self.weight * self.loss(*scores)
