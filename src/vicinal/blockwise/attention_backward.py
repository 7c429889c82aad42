"""The gradient of attention: each block is scored again, so that nothing of size [b, N] is kept.

:func:`attend` is the whole, differentiable. Block by block, weights give the gradient of masked scores
(:class:`_OutputGrad`), which passes through the mask (:class:`_RowGrads`) to queries, bank rows and parameters
(:class:`ScoreGradients`). Last, the gradients of row numbers go to the bank rows at the ends of each range.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from vicinal.blockwise.attention import Attended, Attention, ScoreGaps
from vicinal.blockwise.exclusion import Exclusion
from vicinal.blockwise.row_minmax import RunningExtreme
from vicinal.blockwise.scores import Block, BlockScores, Product
from vicinal.blockwise.softstep import step_rows
from vicinal.blockwise.thresholds import response

Backward = Callable[[Tensor, Tensor | None], None]
"""Takes the gradient ``[r, B]`` of the costs of a tile, and 1 / cost if these are roots; may write over the first."""

_PAIRS = 64
"""Single pairs that are scored together, on the diagonal of a matrix of scores."""


class ScoreGradients:
    """Gradients of queries, bank and parameters of the similarity, from gradients of costs, block after block.

    Attributes:
        bank: ``[N, d]`` in the bank's dtype, or None if it is not needed.
        scale: ``[b, 1]``, factor for the gradients of each query's costs.
    """

    def __init__(self, scores: BlockScores, *, bank: bool, parameters: list[Tensor]) -> None:
        self.scale = torch.ones_like(scores.queries[:, :1])
        self.scores = scores
        self.bank = torch.zeros_like(scores.bank) if bank else None
        self.leaves = parameters
        self.parameters = [torch.zeros_like(value) for value in parameters]
        self.query_rows = torch.zeros_like(scores.queries)
        self.query_features = torch.zeros_like(scores.features)

    def add_pairs(self, rows: Tensor, positions: Tensor, gradient: Tensor) -> None:
        """Add the gradients ``[p]`` of single costs: of the queries ``rows`` with the bank rows at ``positions``."""
        for start in range(0, len(rows), _PAIRS):
            part = slice(start, start + _PAIRS)
            q, at = rows[part], positions[part]
            bank_rows = self.scores.moved(self.scores.bank[at].to(self.scores.dtype))
            leaves = [self.scores.queries[q].detach(), bank_rows.detach()]
            with torch.enable_grad():
                leaves = [leaf.requires_grad_() for leaf in leaves]
                scores = self.scores.kernel.score(*leaves).diagonal()
            grads = torch.autograd.grad(
                scores, [*leaves, *self.leaves], -gradient[part].to(scores.dtype), allow_unused=True
            )
            if grads[0] is not None:
                self.query_rows.index_add_(0, q, grads[0])
            if grads[1] is not None and self.bank is not None:
                self.bank.index_add_(0, at, grads[1].to(self.bank.dtype))
            for total, grad in zip(self.parameters, grads[2:], strict=True):
                if grad is not None:
                    total += grad

    def queries(self) -> Tensor:
        """Gradient of the queries ``[b, d]``."""
        scores = self.scores
        if scores.factors is None:
            return self.query_rows
        of_queries = scores.factors.of_queries
        return self.query_rows + _grad_through(of_queries, scores.queries, scores.center, self.query_features)


class _BlockGradients:
    """The part of :class:`ScoreGradients` for one block of the bank."""

    def __init__(self, total: ScoreGradients, block: Block) -> None:
        self.total, self.scores, self.block = total, total.scores, block
        self.rows = torch.zeros_like(block.rows)
        self.features = torch.zeros_like(block.features)

    def product(self, rows: slice) -> tuple[Product, Backward]:
        """The product of ``rows`` with the block, and a function that takes the gradient of its costs ``[r, B]``."""
        if self.scores.factors is None:
            return self._through_module(rows)
        product = self.scores.product(rows, self.block, lowest=False)
        close = None if product.pairs is None else product.values[product.pairs]

        def backward(gradient: Tensor, inverse: Tensor | None) -> None:
            if product.pairs is not None and close is not None:
                self._through_pairs(rows, product.pairs, close, gradient)
            self._through_product(rows, gradient, inverse)

        return product, backward

    def _through_product(self, rows: slice, gradient: Tensor, inverse: Tensor | None) -> None:
        scale = self.total.scale[rows]
        if inverse is not None:
            gradient, scale = gradient.mul_(inverse), 0.5 * scale
        # Products of narrow matrices are much faster with the long side last.
        self.total.query_features[rows] += (self.block.features.T @ gradient.T).T.mul_(scale)
        if self.total.bank is not None:
            self.features += ((self.scores.features[rows] * scale).T @ gradient).T

    def _through_pairs(self, rows: slice, pairs: tuple[Tensor, Tensor], close: Tensor, gradient: Tensor) -> None:
        queries, columns = pairs
        each = gradient[pairs] * self.total.scale[rows][queries, 0]
        apart = self.scores.queries[rows][queries] - self.block.rows[columns]
        cost = self.scores.costs_of(close)
        rooted = self.scores.rooted
        scale = torch.where(close > 0, each / torch.where(close > 0, cost, 1.0), 0.0) if rooted else 2 * each
        apart *= scale[:, None]
        self.total.query_rows[rows].index_add_(0, queries, apart)
        self.rows.index_add_(0, columns, apart, alpha=-1)
        gradient[pairs] = 0.0

    def _through_module(self, rows: slice) -> tuple[Product, Backward]:
        total, leaves = self.total, [self.scores.queries[rows].detach(), self.block.rows.detach()]
        with torch.enable_grad():
            leaves = [leaf.requires_grad_() for leaf in leaves]
            scores = self.scores.kernel.score(*leaves)
        values = -scores.detach().to(self.scores.dtype)

        def backward(gradient: Tensor, inverse: Tensor | None) -> None:
            of_scores = -(gradient * total.scale[rows]).to(scores.dtype)
            grads = torch.autograd.grad(scores, [*leaves, *total.leaves], of_scores, allow_unused=True)
            for sums, grad in zip([total.query_rows[rows], self.rows, *total.parameters], grads, strict=True):
                if grad is not None:
                    sums += grad

        return Product(values, values.amin(dim=1), None), backward

    def close(self) -> None:
        """Write the gradient of the block's rows."""
        if self.total.bank is None:
            return
        factors, center = self.scores.factors, self.scores.center
        if factors is not None and factors.grad_of_bank is not None:
            self.rows += factors.grad_of_bank(self.block.rows, center, self.features)
        elif factors is not None:
            self.rows += _grad_through(factors.of_bank, self.block.rows, center, self.features)
        self.total.bank[self.block.start : self.block.stop] += self.rows.to(self.total.bank.dtype)


def _grad_through(mapped: Callable[[Tensor, Tensor], Tensor], rows: Tensor, center: Tensor, gradient: Tensor) -> Tensor:
    """Gradient at ``rows`` of ``mapped(rows, center)`` from the gradient of its result."""
    with torch.enable_grad():
        leaf = rows.detach().requires_grad_()
        result = mapped(leaf, center)
    (grad,) = torch.autograd.grad(result, leaf, gradient)
    return grad


class _RowGrads:
    """Gradients of the row numbers: width, first cost and the numbers of the step, ``[b, 1]`` each."""

    def __init__(self, attended: Attended, like: Tensor) -> None:
        self.attended, self.stats, self.buffers = attended, attended.stats, attended.attention.scores.buffers
        self.short = self.stats.short if attended.threshold is None else None
        number = 0 if self.stats.step is None else sum(isinstance(value, Tensor) for value in self.stats.step.rows)
        self.width, self.first, *self.numbers = (torch.zeros_like(like) for _ in range(2 + number))
        self.sums = like.new_zeros(len(like), 4)

    def weights(self, gaps: ScoreGaps) -> tuple[Tensor, list[Tensor]]:
        """Weights of a block, and what :meth:`backward` needs."""
        if self.short is not None:
            weights, parts = self.short.at(gaps.rows).weights_and_parts(gaps.gap, self.buffers)
            return gaps.exclude(weights, 0.0), parts
        weights, unit_gaps = self.attended.weigh(gaps)
        return weights, [] if unit_gaps is None else [unit_gaps]

    def backward(self, rows: slice, of_scores: Tensor, parts: list[Tensor]) -> Tensor:
        """Gradient of gaps from that of masked scores ``[r, B]``; gradients of row numbers are added up."""
        if self.stats.step is None:
            return of_scores
        if self.short is not None:
            of_gaps, sums = self.short.at(rows).backward(of_scores, parts, self.buffers)
            self.sums[rows, : len(sums)] += torch.stack(sums, dim=1)
            return of_gaps
        step, (unit_gaps,) = self.stats.step.at(rows), parts
        of_unit_gaps, of_numbers = step.rows.backward(unit_gaps, of_scores, self.buffers)
        for total, part in zip(self.numbers, of_numbers, strict=True):
            total[rows] += part
        of_unit_gaps /= step.width
        self.first[rows] += of_unit_gaps.sum(dim=1, keepdim=True)
        self.width[rows] -= (unit_gaps * of_unit_gaps).sum(dim=1, keepdim=True)
        return of_scores.add_(of_unit_gaps)

    def finish(self, scale: Tensor) -> None:
        """Turn sums over blocks, times ``scale [b, 1]``, into gradients."""
        if self.short is not None and self.stats.step is not None:
            self.first, self.width, self.numbers = self.short.row_gradients(self.sums * scale, self.stats.step)
        elif self.stats.step is not None:
            self.first, self.width = self.first * scale, self.width * scale
            self.numbers = [value * scale for value in self.numbers]


class _OutputGrad:
    """From the gradient of a prediction to that of masked scores.

    Attributes:
        scale: ``[b, 1]``, a factor left out of the gradient of scores: for a single target, the prediction's gradient.
    """

    def __init__(self, attended: Attended, labels: Tensor, gradient: Tensor) -> None:
        attention = attended.attention
        dtype = attention.scores.dtype
        self.simplex, self.buffers, self.single = attention.simplex, attention.scores.buffers, labels.shape[1] == 1
        mean = (attended.sums if attended.responses is None else attended.responses).mean()
        self.mean, self.gradient = mean.to(dtype), gradient.to(dtype)
        if attended.threshold is None:  # the weights of a block come before their division by the sum of the row
            self.gradient = self.gradient / attended.sums.total.to(dtype)
        self.center = (self.gradient * mean).sum(dim=1, keepdim=True).to(dtype)
        self.scale = self.gradient if self.single else torch.ones_like(self.center)

    def of_labels(self, rows: slice, weights: Tensor) -> Tensor:
        """Gradient ``[B, T]`` of the labels of a block from its weights ``[r, B]``."""
        if self.single:
            return torch.mv(weights.T, self.gradient[rows, 0])[:, None]
        return weights.T @ self.gradient[rows]

    def of_scores(self, rows: slice, weights: Tensor, labels: Tensor) -> Tensor:
        """Gradient ``[r, B]`` of masked scores, without the scale, from weights and ``labels [B, T]``."""
        grad = self.buffers.like("score gradients", weights)
        if self.single:
            torch.sub(labels.T, self.mean[rows], out=grad)
        else:
            torch.mm(self.gradient[rows], labels.T, out=grad).sub_(self.center[rows])
        return grad.mul_(response(self.simplex, weights))


class AttentionGrads(NamedTuple):
    """Gradients of the inputs of attention; None if there is no such input or its gradient is not needed."""

    queries: Tensor
    bank: Tensor | None
    labels: Tensor | None
    numbers: Tensor | None
    parameters: list[Tensor]


def attention_backward(
    attended: Attended,
    labels: Tensor,
    numbers: Tensor | None,
    parameters: Sequence[Tensor],
    gradient: Tensor,
    needed: tuple[bool, bool],
) -> AttentionGrads:
    """Gradients of queries, bank, labels, SoftStep numbers and similarity parameters.

    Args:
        attended: the evaluation.
        labels: ``[N, T]``.
        numbers: ``[b, 4]`` of a SoftStep, or None.
        parameters: of the similarity.
        gradient: of the prediction, ``[b, T]``.
        needed: whether the gradients of the bank and of the labels are needed.
    """
    attention = attended.attention
    scores = attention.scores
    output = _OutputGrad(attended, labels, gradient)
    gradients = ScoreGradients(scores, bank=needed[0], parameters=list(parameters))
    gradients.scale = -output.scale
    of_labels = torch.zeros_like(labels) if needed[1] else None
    of_rows = _RowGrads(attended, output.scale)
    for block in scores.blocks():
        entries = attention.exclusion.within(block.start, block.stop)
        part = slice(block.start, block.stop)
        of_block = _BlockGradients(gradients, block)
        for rows in scores.tiles():
            product, backward = of_block.product(rows)
            gaps = attended.stats.score_gaps(scores, product, rows, entries)
            weights, parts = of_rows.weights(gaps)
            if of_labels is not None:
                of_labels[part] += output.of_labels(rows, weights).to(labels.dtype)
            of_scores = output.of_scores(rows, weights, labels[part].to(scores.dtype))
            backward(of_rows.backward(rows, of_scores, parts), gaps.inverse)
        of_block.close()
    of_rows.finish(output.scale)
    gradients.scale = torch.ones_like(output.scale)
    of_numbers = None if numbers is None else _range_backward(attended, numbers, of_rows, gradients)
    return AttentionGrads(gradients.queries(), gradients.bank, of_labels, of_numbers, gradients.parameters)


def _range_backward(
    attended: Attended, numbers: Tensor, of_rows: _RowGrads, gradients: ScoreGradients
) -> Tensor | None:
    """From the row numbers to the numbers of the mask, and to the bank rows at the ends of each range."""
    attention, span, zone = attended.attention, attended.span, attended.zone
    if span is None or span.far is None or zone is None or attention.step is None:
        return None
    ends = (span.near, span.first, span.far)
    leaves = [attention.costs_of(end) for end in ends] + [numbers.to(attention.scores.dtype).detach()]
    with torch.enable_grad():
        leaves = [leaf.requires_grad_() for leaf in leaves]
        near, first, far, wide = leaves
        step = step_rows(attention.step, wide, near, first, far, zone)
        outputs = [step.width, *(value for value in step.rows if isinstance(value, Tensor))]
    grads = torch.autograd.grad(outputs, leaves, [of_rows.width, *of_rows.numbers], allow_unused=True)
    of_near, of_first, of_far = (torch.zeros_like(near) if grad is None else grad for grad in grads[:3])
    of_first = of_first + of_rows.first
    counted = attention.exclusion if span.first is span.near else None
    if span.first is span.near:
        _extreme_backward(gradients, attention.exclusion, span.near, (of_near + of_first)[:, 0])
    else:
        _extreme_backward(gradients, attention.exclusion, span.near, of_near[:, 0])
        _extreme_backward(gradients, None, span.first, of_first[:, 0])
    _extreme_backward(gradients, counted, span.far, of_far[:, 0])
    return None if grads[3] is None else grads[3].to(numbers.dtype)


def _extreme_backward(
    gradients: ScoreGradients, exclusion: Exclusion | None, extreme: RunningExtreme, gradient: Tensor
) -> None:
    """Give the gradient ``[b]`` of a row statistic to the bank rows that have it, in equal shares.

    Args:
        gradients: where it is added.
        exclusion: entries that did not count, or None if all did.
        extreme: the statistic, tracked.
        gradient: of the cost that ``extreme`` holds.
    """
    single = ((gradient != 0) & (extreme.count == 1)).nonzero()[:, 0]
    gradients.add_pairs(single, extreme.position[single], gradient[single])
    share = torch.where(extreme.count > 1, gradient / extreme.count.clamp(min=1), 0.0)
    scores = gradients.scores
    tiles = [rows for rows in scores.tiles() if bool((share[rows] != 0).any())]
    if not tiles:
        return
    for block in scores.blocks():
        entries = None if exclusion is None else exclusion.within(block.start, block.stop)
        of_block = _BlockGradients(gradients, block)
        for rows in tiles:
            product, backward = of_block.product(rows)
            same = product.values == extreme.value[rows, None]
            if entries is not None:
                same = entries.fill(same, rows, 0.0)
            if bool(same.any()):
                _, inverse = scores.costs(product)
                backward(same * share[rows, None], inverse)
        of_block.close()


class _Attend(torch.autograd.Function):
    """Prediction ``[b, T]``; differentiable in queries, bank, labels, SoftStep numbers and similarity parameters."""

    @staticmethod
    def forward(
        ctx: Any,
        attention: Attention,
        queries: Tensor,
        bank: Tensor,
        labels: Tensor,
        numbers: Tensor | None,
        *parameters: Tensor,
    ) -> Tensor:
        ctx.attended = attention.evaluate(labels, numbers)
        ctx.save_for_backward(queries, bank, labels, numbers, *parameters)
        prediction: Tensor = ctx.attended.sums.mean()
        return prediction

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        queries, _, labels, numbers, *parameters = ctx.saved_tensors
        with torch.autocast(queries.device.type, enabled=False):
            grads = attention_backward(ctx.attended, labels, numbers, parameters, gradient, ctx.needs_input_grad[2:4])
        return (None, grads.queries.to(queries.dtype), grads.bank, grads.labels, grads.numbers, *grads.parameters)


def attend(
    attention: Attention,
    queries: Tensor,
    bank: Tensor,
    labels: Tensor,
    numbers: Tensor | None,
    parameters: Sequence[Tensor] = (),
) -> Tensor:
    """Weighted means ``[b, T]`` of labels, float64, with a gradient that can be taken once.

    Args:
        attention: made of these queries and this bank, both detached.
        queries: ``[b, d]``.
        bank: ``[N, d]``.
        labels: ``[N, T]``.
        numbers: ``[b, 4]``, a0, b0, t and t / (1 - t) of a SoftStep, or None.
        parameters: those of the similarity that need a gradient.
    """
    result: Tensor = _Attend.apply(attention, queries, bank, labels, numbers, *parameters)  # type: ignore[no-untyped-call]
    return result
