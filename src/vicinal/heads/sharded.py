r"""The NONA head over a bank whose rows are spread over processes: each scores its own, and little is sent.

Every process gives the same queries and its own part of the bank (a shard; it may be empty), all call together, and
all get the prediction over the whole bank. What is sent per query does not grow with the bank. With numbers of
$w$ bytes (4, or 8 in float64), $T$ targets, $d$ columns and $W$ processes, each process hands in per query

==========================  ====================================================================================
softmax without a mask      $w + 8(1+T)$: nearest cost; sums of weights and weighted labels
SoftStep                    $2w + 8(1+T)$: nearest and farthest cost; sums. $w$ more for ``extent="all"`` with ids
top-k                       $kw + 8(1+T)$: k nearest costs, of which each process receives $Wkw$; sums
sparsemax, entmax15         $w + 8(1+T) + 2wP$: nearest cost, sums, and two numbers in each of $P$ passes for the
                            threshold (about ten, at most 60)
with a gradient             $16$ more with SoftStep (how often each end of the range occurs), and $8(1+T)$ more for
                            sparsemax and entmax15
backward                    $8T + dw$: gradients of the prediction and of the query, and $(2+m)w$ with SoftStep for
                            its width, nearest cost and $m$ numbers (3 for S1, 2 for S2)
==========================  ====================================================================================

and once per call $88 + w(d+1)$ bytes, by which all see that they were asked the same, and agree on a center;
similarities with parameters add these in the backward pass. A ring all-reduce sends each byte handed in $2(W-1)/W$
times. For $b$ queries and $N/W$ rows the work is $O(bdN/W)$ a process: at $N/W = 10^6$ and $d = 64$ a query costs
$2.6 \cdot 10^8$ operations and, with S2 and one target, 24 bytes.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from vicinal.blockwise.attention import Attention
from vicinal.blockwise.sharding import LOCAL, DistributedReducer, Reducer, check_same_on_all_ranks, fingerprint
from vicinal.blockwise.topk import topk
from vicinal.core import check_integer, check_labels, check_matrices, process_count, process_rank
from vicinal.core.gathering import Group
from vicinal.heads.admissible import Identity
from vicinal.heads.streaming import (
    asks_gradient,
    check_parts,
    evaluate_weights,
    make_attention,
    predict,
    simplex_name,
)
from vicinal.masks import softmax
from vicinal.masks.simplex import SimplexMap


class _Shard(NamedTuple):
    """What one process holds.

    Attributes:
        tensors: queries, bank and labels.
        parts: similarity, mask and simplex map.
        identity: ids and groups of queries and bank, as :func:`vicinal.heads.admissible` takes them.
        chunk_size: bank rows of a block.
    """

    tensors: tuple[Tensor, Tensor, Tensor]
    parts: tuple[nn.Module, nn.Module | None, SimplexMap]
    identity: Identity
    chunk_size: int | None

    @property
    def tracked(self) -> bool:
        """Whether a gradient is asked for."""
        return asks_gradient(*self.tensors, *self.parts[:2])

    def attention(self, reducer: Reducer) -> Attention:
        """The evaluation, with its settings checked."""
        (queries, bank, _), (similarity, mask, simplex) = self.tensors, self.parts
        chunk, identity = self.chunk_size, self.identity
        return make_attention(
            queries, bank, similarity, mask, simplex, chunk, identity, tracked=self.tracked, reducer=reducer
        )

    def check(self) -> None:
        """Check what can be checked without the others."""
        queries, bank, labels = self.tensors
        check_matrices(queries, bank)
        check_labels(labels, len(bank))
        check_parts(queries, self.parts[1], self.parts[2], self.chunk_size)
        self.identity.keys(len(queries), len(bank))

    def facts(self) -> dict[str, object]:
        """What must be the same on all processes."""
        queries, bank, labels = self.tensors
        similarity, mask, simplex = self.parts
        return {
            "queries": (tuple(queries.shape), fingerprint([queries])),
            "labels": tuple(labels.shape[1:]),
            "dtype": (queries.dtype, bank.dtype, labels.dtype),
            "query_ids": (self.identity.query_ids is None, fingerprint([self.identity.query_ids])),
            "query_groups": (self.identity.query_groups is None, fingerprint([self.identity.query_groups])),
            "similarity": (repr(similarity), fingerprint(similarity.parameters())),
            "mask": (repr(mask), fingerprint(() if mask is None else mask.parameters())),
            "simplex": simplex_name(simplex),
            "requires_grad": self.tracked,
        }

    def combined(self, group: Group) -> tuple[Attention, int]:
        """The attention over all processes, and how many bank rows come before this one's; all have to call."""
        if process_count(group) == 1:
            self.check()
            return self.attention(LOCAL), 0
        rows = check_same_on_all_ranks(self.check, self.facts, len(self.tensors[1]), group)
        return self.attention(DistributedReducer(group, sum(rows))), sum(rows[: process_rank(group)])


def sharded_prediction(
    queries: Tensor,
    bank: Tensor,
    labels: Tensor,
    similarity: nn.Module,
    mask: nn.Module | None = None,
    simplex: SimplexMap = softmax,
    *,
    chunk_size: int | None = None,
    query_ids: Tensor | None = None,
    bank_ids: Tensor | None = None,
    query_groups: Tensor | None = None,
    bank_groups: Tensor | None = None,
    group: Group = None,
) -> Tensor:
    """What :class:`vicinal.heads.NONA` predicts over the shards of all processes, laid end to end.

    The prediction is differentiable on every process in the queries, its own shard and labels, and the parameters of
    mask and similarity. The gradient is that of the mean of the losses that the processes take, which is one process'
    gradient if all take the same: queries and parameters get the whole of it on every process, a shard its part. Every
    process must call ``backward``. (A network whose data-parallel training takes the mean over processes, and which
    embedded the shard with gradient, has to scale the shard's gradient by the number of processes.)

    Args:
        queries: ``[b, d]``, the same on all processes.
        bank: ``[N of this process, d]``, may be empty.
        labels: ``[N of this process]`` or ``[N of this process, T]``, floating.
        similarity: see :func:`vicinal.heads.streamed_prediction`.
        mask: see there; equal parameters on all processes.
        simplex: see there.
        chunk_size: see there; may differ between processes.
        query_ids: the same on all processes, unique over shards, as are groups; see there.
        bank_ids: of this process' shard.
        query_groups: see there.
        bank_groups: of this process' shard.
        group: a ``torch.distributed`` process group; None: all processes. Without torch.distributed, or in a group of
            one, this is :func:`vicinal.heads.streamed_prediction`.

    Returns:
        ``[b]`` or ``[b, T]``, equal on all processes.

    Raises:
        ValueError: on all processes, if they were asked different things, one refused its input, all shards are empty,
            or a query has no admissible bank row; see also :func:`vicinal.heads.streamed_prediction`. A process that
            fails elsewhere, or does not call, makes the others fail after the timeout of their process group.

    >>> from vicinal.similarity import NegativeL2
    >>> bank, labels = torch.tensor([[0.0], [1.0], [9.0]]), torch.tensor([0.0, 1.0, 5.0])
    >>> sharded_prediction(torch.tensor([[0.5]]), bank, labels, NegativeL2())
    tensor([0.5008])
    """
    identity = Identity(query_ids, bank_ids, query_groups, bank_groups)
    shard = _Shard((queries, bank, labels), (similarity, mask, simplex), identity, chunk_size)
    return predict(shard.combined(group)[0], queries, bank, labels, similarity, mask)


@torch.no_grad()
def sharded_top_weights(
    queries: Tensor,
    bank: Tensor,
    k: int,
    similarity: nn.Module,
    mask: nn.Module | None = None,
    simplex: SimplexMap = softmax,
    *,
    chunk_size: int | None = None,
    query_ids: Tensor | None = None,
    bank_ids: Tensor | None = None,
    query_groups: Tensor | None = None,
    bank_groups: Tensor | None = None,
    group: Group = None,
) -> tuple[Tensor, Tensor]:
    """The ``k`` highest weights of each query and their rows, over the shards of all processes laid end to end.

    Each process hands in the ``k`` nearest costs of each query and their positions, $k(w + 8)$ bytes, beside what the
    weights need (see above).

    Args:
        queries: see :func:`sharded_prediction`, as are all but ``k``.
        bank: see there.
        k: >= 1; all rows if there are fewer.
        similarity: see there.
        mask: see there.
        simplex: see there.
        chunk_size: see there.
        query_ids: see there.
        bank_ids: see there.
        query_groups: see there.
        bank_groups: see there.
        group: see there.

    Returns:
        weights ``[b, k]``, descending, and positions ``[b, k]`` in the whole bank, -1 where the weight is 0; equal on
        all processes.

    >>> from vicinal.similarity import NegativeL2
    >>> sharded_top_weights(torch.zeros(1, 1), torch.tensor([[2.0], [0.0], [1.0]]), 2, NegativeL2())
    (tensor([[0.6652, 0.2447]]), tensor([[1, 2]]))
    """
    check_integer("k", k)
    identity = Identity(query_ids, bank_ids, query_groups, bank_groups)
    none = torch.zeros(len(bank), 0, dtype=torch.float64, device=queries.device)
    shard = _Shard((queries, bank, none), (similarity, mask, simplex), identity, chunk_size)
    attention, offset = shard.combined(group)
    reducer, dtype = attention.reducer, attention.scores.dtype
    k = min(k, reducer.rows(len(bank)))
    if queries.shape[0] == 0:
        return queries.new_zeros(0, k, dtype=dtype), torch.zeros(0, k, dtype=torch.int64, device=queries.device)
    with torch.autocast(queries.device.type, enabled=False):
        attended = evaluate_weights(attention, queries, mask)
        values, positions = topk(attention.scores, attention.exclusion, k)
        positions = positions + offset
        if not reducer.alone:
            nearest = reducer.join(values, k, torch.inf).topk(k, dim=1, largest=False)
            values, positions = nearest.values, reducer.join(positions, k, 0).gather(1, nearest.indices)
        weights = attended.weights_of(values)
    return weights, positions.masked_fill(weights == 0, -1)
