"""What every encoder of sets is: ``encode(elements [b, n, d], valid [b, n]) -> [b, e]``, whole, by chunks, sampled."""

import abc
from collections.abc import Iterable
from functools import reduce

import torch
from torch import Tensor, nn

from vicinal.core.checks import check_integer, check_tensor

Sums = tuple[Tensor, ...]
"""What an additive encoder keeps of the elements that it has read; each tensor begins with ``[b]``."""


class SetEncoder(nn.Module, abc.ABC):
    """A module from sets of vectors to vectors, whatever the order of the elements and the padding.

    A subclass writes :meth:`encode` for sets that have an element each. What stands where ``valid`` is False is never
    read and gets gradient 0. A set without elements has a learned vector, at first zeros.

    Args:
        width: d, of the elements.
        dim: e, of the vectors.
    """

    def __init__(self, width: int, dim: int) -> None:
        super().__init__()
        self.width, self.dim = check_integer("width", width), check_integer("dim", dim)
        self.empty = nn.Parameter(torch.zeros(dim))

    def forward(self, elements: Tensor, valid: Tensor | None = None) -> Tensor:
        """A vector for each set.

        Args:
            elements: ``[b, n, d]``, floating.
            valid: boolean ``[b, n]``, True where there is an element; None: everywhere.

        Returns:
            ``[b, e]``.

        Raises:
            TypeError: for elements that are not floating, or ``valid`` that is not boolean.
            ValueError: for another shape, or an element that is not finite.
        """
        elements, valid, some = self.checked(elements, valid)
        return self.with_empty(self.encode(elements, valid), some)

    @abc.abstractmethod
    def encode(self, elements: Tensor, valid: Tensor) -> Tensor:
        """``[b, e]`` of checked sets: elements are 0 where ``valid`` is False, and each set has one at least."""

    def checked(self, elements: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Elements that are 0 in the padding, ``valid`` with an element in each set, and which sets have one."""
        elements, valid = check_sets(elements, valid, self.width)
        some = valid.any(dim=1)  # [b]
        if elements.shape[1] == 0:
            elements, valid = elements.new_zeros(len(elements), 1, self.width), some[:, None]
        first = torch.arange(valid.shape[1], device=valid.device) == 0
        return elements, valid | (~some[:, None] & first), some

    def with_empty(self, vectors: Tensor, some: Tensor) -> Tensor:
        """``vectors [b, e]``, and the learned vector for sets without elements."""
        return torch.where(some[:, None], vectors, self.empty.to(vectors.dtype))

    def extra_repr(self) -> str:
        """Widths, for ``print``."""
        return f"width={self.width}, dim={self.dim}"


class AdditiveSetEncoder(SetEncoder):
    """An encoder that adds up something of each element, so that any chunks of a set encode as the whole does.

    A subclass writes :meth:`sums` and :meth:`read_out`; one that joins chunks in another way writes :meth:`joined` and
    is not ``additive``.
    """

    additive = True

    @abc.abstractmethod
    def sums(self, elements: Tensor, valid: Tensor) -> Sums:
        """What these elements add, of checked sets (see :meth:`SetEncoder.encode`)."""

    @abc.abstractmethod
    def read_out(self, sums: Sums) -> Tensor:
        """``[b, e]`` of what all elements have added."""

    def joined(self, one: Sums, other: Sums) -> Sums:
        """What two chunks have added together."""
        return tuple(first + second for first, second in zip(one, other, strict=True))

    def encode(self, elements: Tensor, valid: Tensor) -> Tensor:
        """See :meth:`SetEncoder.encode`."""
        return self.read_out(self.sums(elements, valid))

    def encode_chunks(self, chunks: Iterable[tuple[Tensor, Tensor | None]]) -> Tensor:
        """What the whole sets give, from chunks ``(elements [b, m, d], valid [b, m])`` that are read one at a time.

        Without gradients the memory is that of one chunk, however large the sets are.

        >>> from vicinal.encoders.sets import DeepSets
        >>> encoder, elements = DeepSets(2, 3), torch.ones(1, 6, 2)
        >>> chunks = ((part, None) for part in elements.split(4, dim=1))
        >>> torch.allclose(encoder.encode_chunks(chunks), encoder(elements), atol=1e-6)
        True
        """
        total: Sums | None = None
        some: Tensor | None = None
        for elements, valid in chunks:
            elements, valid = check_sets(elements, valid, self.width)
            part, there = self.sums(elements, valid), valid.any(dim=1)
            total = part if total is None else self.joined(total, part)
            some = there if some is None else some | there
        if total is None or some is None:
            raise ValueError("chunks: expected at least one, got none")
        return self.with_empty(self.read_out(total), some)

    def encode_sampled(
        self, elements: Tensor, valid: Tensor | None, picked: Tensor, *, chunk_size: int = 4096
    ) -> Tensor:
        r"""The whole sets forward; backward through some elements, with a gradient that is unbiased for all parameters.

        Sums are $\mathrm{sg}(S) + \frac n m (S_m - \mathrm{sg}(S_m))$, with S those of all n elements, read by chunks
        without a graph, and $S_m$ those of the m that are picked: the mean of the gradient over all choices of m
        elements is that of the whole set. (Multiplying gradients of parameters by n/m is not: what does not pass
        through the sums would be multiplied too.) Memory grows with m, not with n.

        Args:
            elements: ``[b, n, d]``.
            valid: ``[b, n]`` or None.
            picked: int64 ``[b, m]``, the elements of each set, each at most once: see :func:`draw_elements`.
            chunk_size: elements that are read at a time without a graph.

        Paper: arXiv:2208.12401.
        """
        elements, valid = check_sets(elements, valid, self.width)
        if picked.ndim != 2 or picked.dtype != torch.int64 or len(picked) != len(elements):
            raise ValueError(f"picked: expected int64 [{len(elements)}, m], got {picked.dtype} {tuple(picked.shape)}")
        if not self.additive:
            raise ValueError("encode_sampled: expected an encoder that adds, as 'sum' and 'mean' do, got 'max'")
        with torch.no_grad():
            parts = zip(*(torch.split(each, chunk_size, dim=1) for each in (elements, valid)), strict=True)
            whole = reduce(self.joined, (self.sums(*part) for part in parts))
        chosen = valid.gather(1, picked)
        factor = valid.sum(dim=1) / chosen.sum(dim=1).clamp(min=1)  # [b]
        part = self.sums(elements.gather(1, picked[..., None].expand(-1, -1, self.width)), chosen)
        sums = tuple(
            total + factor.to(some.dtype).reshape(-1, *[1] * (some.ndim - 1)) * (some - some.detach())
            for total, some in zip(whole, part, strict=True)
        )
        return self.with_empty(self.read_out(sums), valid.any(dim=1))


def check_sets(elements: Tensor, valid: Tensor | None, width: int) -> tuple[Tensor, Tensor]:
    """``elements [b, n, width]``, 0 where not valid, and ``valid [b, n]``; see :meth:`SetEncoder.forward`."""
    check_tensor("elements", elements)
    if elements.ndim != 3 or elements.shape[2] != width:
        raise ValueError(f"elements: expected [b, n, {width}], got {tuple(elements.shape)}")
    if not elements.is_floating_point():
        raise TypeError(f"elements: expected a floating dtype, got {elements.dtype}; call .float() on it")
    if valid is None:
        valid = torch.ones(elements.shape[:2], dtype=torch.bool, device=elements.device)
    else:
        if check_tensor("valid", valid).dtype != torch.bool:
            raise TypeError(f"valid: expected booleans, got {valid.dtype}")
        if valid.shape != elements.shape[:2]:
            raise ValueError(f"valid: expected {tuple(elements.shape[:2])} as the elements, got {tuple(valid.shape)}")
        if not bool(valid.all()):
            elements = torch.where(valid[..., None], elements, 0.0)
    known = elements.detach()  # a sum is finite or not at once; it may overflow, too
    if not bool(known.sum().isfinite()) and not bool(known.isfinite().all()):
        raise ValueError("elements: expected finite numbers where valid, got nan or inf")
    return elements, valid


def masked_sum(values: Tensor, valid: Tensor) -> Tensor:
    """Sum over the elements of each set, ``[b, n, k]`` to ``[b, k]``, where padding is finite; one pass over them."""
    if bool(valid.all()):
        return values.sum(dim=1)  # several times faster, its gradient too
    return (valid[:, None].to(values.dtype) @ values)[:, 0]


def draw_elements(valid: Tensor, size: int, generator: torch.Generator | None = None) -> Tensor:
    """``size`` elements of each set, drawn without repetition, int64 ``[b, size]``; of a smaller set all, and padding.

    >>> draw_elements(torch.tensor([[True, False, True]]), 2).sort().values
    tensor([[0, 2]])
    """
    check_integer("size", size, 1, valid.shape[1])
    keys = torch.rand(valid.shape, generator=generator, device=generator.device if generator else valid.device)
    return (keys.to(valid.device) + (~valid).float()).topk(size, dim=1, largest=False).indices


@torch.no_grad()
def order_gap(
    encoder: SetEncoder,
    elements: Tensor,
    valid: Tensor | None = None,
    *,
    shuffles: int = 8,
    generator: torch.Generator | None = None,
) -> float:
    """By how much a vector changes at most when the elements are shuffled: 0, but for rounding, if order is ignored.

    >>> from vicinal.encoders.sets import DeepSets
    >>> order_gap(DeepSets(2, 3), torch.ones(1, 4, 2))
    0.0
    """
    check_integer("shuffles", shuffles)
    first, gap = encoder(elements, valid), 0.0
    for _ in range(shuffles):
        order = torch.randperm(elements.shape[1], generator=generator)
        other = encoder(elements[:, order], None if valid is None else valid[:, order])
        gap = max(gap, float((first - other).abs().max()))
    return gap
