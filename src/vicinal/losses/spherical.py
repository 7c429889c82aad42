"""A linear layer of very many classes that is trained at a cost that does not depend on how many they are."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from vicinal.core import check_choice
from vicinal.core.checks import check_between, check_integer

FOLD_ABOVE = 1e4
"""Condition of the common factor of the weights above which it is multiplied in."""
_LOOK_EVERY = 32

Formula = Callable[[Tensor, Tensor, Tensor, int], Tensor]
"""From the score of the target, sum and sum of squares of all scores ``[b]``, and K, to the loss of each row."""


def _z_loss(
    of_target: Tensor, total: Tensor, squares: Tensor, classes: int, sharpness: float, location: float
) -> Tensor:
    mean = total / classes
    variance = (squares / classes - mean.square()).clamp(min=0)
    flat = variance <= 1e-14 * mean.square()  # the square root of a variance of 0 has no slope
    z = (of_target - mean) * torch.where(flat, 1.0, variance).rsqrt()
    return nn.functional.softplus(sharpness * (location - z)) / sharpness


def _squares(of_target: Tensor, total: Tensor, squares: Tensor, classes: int) -> Tensor:
    return squares - 2 * of_target + 1


def _taylor_softmax(of_target: Tensor, total: Tensor, squares: Tensor, classes: int) -> Tensor:
    return (classes + total + squares / 2).log() - (1 + of_target + of_target.square() / 2).log()


def _spherical_softmax(of_target: Tensor, total: Tensor, squares: Tensor, classes: int, room: float) -> Tensor:
    return (squares + classes * room).log() - (of_target.square() + room).log()


class _Pull(NamedTuple):
    """Rows that were seen, and what their losses' gradients by the three numbers are, filled in by backward."""

    rows: Tensor
    target: Tensor
    slopes: dict[str, Tensor]


class SphericalClasses(nn.Module):
    r"""Scores $s = Wx + b$ of K classes under a loss of $s_y$, $\sum_k s_k$ and $\sum_k s_k^2$: the spherical family.

    The sums are $\bar w^T x$ and $x^T G x$ with $\bar w = \sum_k w_k$ and $G = W^T W$, which are kept up to date. A
    step of plain gradient descent changes all K rows of W, but in one way: W is kept as $VU + 1\omega^T$, of which it
    changes U, $\omega$ and the rows of V of the targets. A step of b rows so takes $O(d^3 + b\,d^2)$ for any K, and
    gives what the plain layer gives (to rounding; all is kept in float64). Vincent, de Brébisson and Bouthillier 2015
    (arXiv:1412.7091); the losses: arXiv:1604.08859, arXiv:1511.05042.

    Losses: "z_loss", see :func:`z_loss`; "squares" $\sum_k (s_k - [k = y])^2$; "taylor_softmax"
    $-\log\frac{1 + s_y + s_y^2/2}{\sum_k 1 + s_k + s_k^2/2}$; "spherical_softmax"
    $-\log\frac{s_y^2 + \epsilon}{\sum_k s_k^2 + \epsilon}$.

    Call it, call ``backward`` of what comes of its value, and then :meth:`step`; the network below has an optimizer of
    its own. Its state is in buffers, which no optimizer changes. Values that are only looked at belong under
    ``torch.no_grad()``.

    Args:
        dim: d, width of the rows.
        classes: K.
        loss: one of the four.
        sharpness: of the Z-loss.
        location: of the Z-loss.
        room: $\epsilon$ > 0 of the spherical softmax.
        generator: of the start, normal numbers over the square root of d.

    >>> head = SphericalClasses(4, 100_000, generator=torch.Generator().manual_seed(0))
    >>> rows, target = torch.eye(4), torch.tensor([3, 70, 11, 99_999])
    >>> for _ in range(10):
    ...     loss = head(rows, target)
    ...     loss.backward()
    ...     head.step(5.0)
    >>> head.scores(rows).argmax(1).tolist() == target.tolist()
    True
    """

    def __init__(
        self,
        dim: int,
        classes: int,
        *,
        loss: str = "z_loss",
        sharpness: float = 1.0,
        location: float = 0.0,
        room: float = 1e-2,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        check_integer("dim", dim), check_integer("classes", classes, 2)
        check_between("sharpness", sharpness, 0, math.inf), check_between("room", room, 0, math.inf)
        formulas: Mapping[str, Formula] = {
            "z_loss": partial(_z_loss, sharpness=sharpness, location=location),
            "squares": _squares,
            "taylor_softmax": _taylor_softmax,
            "spherical_softmax": partial(_spherical_softmax, room=room),
        }
        self.classes, self.formula = classes, formulas[check_choice("loss", loss, formulas)]
        start = torch.randn(classes, dim, generator=generator, dtype=torch.float64) / math.sqrt(dim)
        self.factor: Tensor = nn.Buffer(torch.cat([start, torch.zeros(classes, 1, dtype=torch.float64)], dim=1))
        self.common: Tensor = nn.Buffer(torch.eye(dim + 1, dtype=torch.float64))
        self.shift: Tensor = nn.Buffer(torch.zeros(dim + 1, dtype=torch.float64))
        self.total: Tensor = nn.Buffer(self.factor.sum(0))
        self.gram: Tensor = nn.Buffer(self.factor.T @ self.factor)
        self._pulls: list[_Pull] = []
        self._steps = 0

    def weight(self) -> Tensor:
        """W with b as its last column, ``[K, d + 1]``, float64; this and :meth:`scores` take longer for a larger K."""
        return self.factor @ self.common + self.shift

    def scores(self, rows: Tensor) -> Tensor:
        """Scores of all classes ``[b, K]`` of rows ``[b, d]``."""
        return (self._wide(rows) @ self.weight().T).to(rows.dtype)

    def _wide(self, rows: Tensor) -> Tensor:
        dim = self.factor.shape[1] - 1
        if rows.ndim != 2 or rows.shape[1] != dim or not rows.is_floating_point():
            raise ValueError(f"rows: expected floating numbers [b, {dim}], got {rows.dtype} {tuple(rows.shape)}")
        return nn.functional.pad(rows.double(), (0, 1), value=1.0)

    def forward(self, rows: Tensor, target: Tensor) -> Tensor:
        """The mean loss of rows ``[b, d]`` of classes ``[b]``.

        Raises:
            ValueError: for other shapes, or a class that is not below K.
        """
        wide = self._wide(rows)
        if target.shape != (len(rows),) or target.is_floating_point() or target.dtype == torch.bool:
            raise ValueError(f"target: expected classes [{len(rows)}], got {target.dtype} {tuple(target.shape)}")
        if len(target) and not 0 <= int(target.min()) <= int(target.max()) < self.classes:
            raise ValueError(f"target: expected classes 0 to {self.classes - 1}, got some outside")
        learning = torch.is_grad_enabled()
        if learning and not wide.requires_grad:
            wide = wide.detach().requires_grad_()
        each = self.factor[target] @ self.common + self.shift
        moments = {
            "of_target": (each * wide).sum(1),
            "total": wide @ self.total,
            "squares": ((wide @ self.gram) * wide).sum(1),
        }
        if learning:
            pull = _Pull(wide.detach(), target, {})
            self._pulls.append(pull)
            for name, moment in moments.items():
                moment.register_hook(partial(pull.slopes.__setitem__, name))  # type: ignore[no-untyped-call]
        values = self.formula(moments["of_target"], moments["total"], moments["squares"], self.classes)
        return values.mean().to(torch.promote_types(rows.dtype, torch.float32))

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Change W and b against the gradient of every loss that ``backward`` was called of since the last step.

        Args:
            rate: > 0, the learning rate.

        Raises:
            RuntimeError: if there is none.
        """
        check_between("rate", rate, 0, math.inf)
        pulls, self._pulls = [pull for pull in self._pulls if pull.slopes], []
        if not pulls:
            raise RuntimeError("step: expected a loss that backward was called of before, got none")
        rows, target = torch.cat([pull.rows for pull in pulls]), torch.cat([pull.target for pull in pulls])
        none = rows.new_zeros(())
        of_target, total, squares = (
            torch.cat([pull.slopes.get(name, none).expand(len(pull.rows)) for pull in pulls])
            for name in ("of_target", "total", "squares")
        )
        offset = rate * (total @ rows)  # [D]: of every class alike
        turn = torch.eye(rows.shape[1], dtype=rows.dtype, device=rows.device) - 2 * rate * (
            rows.T @ (squares[:, None] * rows)
        )
        turned = turn @ self.total
        self.gram = turn @ self.gram @ turn - turned.outer(offset) - offset.outer(turned)
        self.gram += self.classes * offset.outer(offset)
        self.total = turned - self.classes * offset
        self.common, self.shift = self.common @ turn, turn @ self.shift - offset
        which, place = torch.unique(target, return_inverse=True)
        moved = rows.new_zeros(len(which), rows.shape[1])
        moved.index_add_(0, place, -rate * of_target[:, None] * rows)
        before = self.factor[which] @ self.common + self.shift
        self.factor[which] += torch.linalg.solve(self.common, moved, left=False)
        crossed = before.T @ moved
        self.gram += crossed + crossed.T + moved.T @ moved
        self.total += moved.sum(0)
        self._steps += 1
        if self._steps % _LOOK_EVERY == 0 and float(torch.linalg.cond(self.common)) > FOLD_ABOVE:
            self.fold()

    @torch.no_grad()
    def fold(self) -> None:
        """Multiply the common factor into the rows, and compute the sums anew: once in many steps, O(K d^2)."""
        self.factor = self.weight()
        self.common, self.shift = torch.eye(len(self.shift)).to(self.factor), torch.zeros_like(self.shift)
        self.total, self.gram = self.factor.sum(0), self.factor.T @ self.factor

    def extra_repr(self) -> str:
        """Sizes, for ``print``."""
        return f"dim={self.factor.shape[1] - 1}, classes={self.classes}"
