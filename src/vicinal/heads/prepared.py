"""What every prediction needs of a bank, computed once and held by whoever holds the bank."""

import torch
from torch import Tensor, nn

from vicinal.core import check_matrices
from vicinal.heads.coarse import CoarseBank, has_bfloat16
from vicinal.heads.costs import sampled_center
from vicinal.similarity import resolve_similarity
from vicinal.similarity.factors import factors, squared_of_bank
from vicinal.similarity.resolution import lengths


class PreparedBank:
    """A bank made ready for one similarity: its centered rows and norms as matrix products take them.

    Give it along with the same bank: ``streamed_prediction(queries, bank, ..., prepared=prepared)``. Predictions do not
    depend on it, but skip what they would compute of each bank row in each pass. It is as large as the bank (half as
    large again with ``coarse``) and stands for the bank as it is now: make another one when that changes.

    Args:
        bank: ``[N, d]``, floating.
        similarity: a registered name or a module.
        coarse: also hold a copy in bfloat16, with which lowest and highest scores and top-k are found sooner, and
            just as exactly (see :mod:`vicinal.heads.coarse`): for distances in float32, where the processor has such
            products.

    Attributes:
        bank: the bank itself.
        features: ``[N, e]``, or None for a similarity that is no function of one inner product.

    >>> from vicinal.heads import streamed_prediction
    >>> bank, labels = torch.tensor([[0.0], [1.0], [9.0]]), torch.tensor([0.0, 1.0, 5.0])
    >>> prepared = PreparedBank(bank)
    >>> streamed_prediction(torch.tensor([[0.5]]), bank, labels, prepared.similarity, prepared=prepared)
    tensor([0.5008])
    """

    def __init__(self, bank: Tensor, similarity: str | nn.Module = "l2", *, coarse: bool = True) -> None:
        check_matrices(bank, bank)
        self.bank = bank.detach()
        self.similarity = resolve_similarity(similarity)
        self._version = None if bank.is_inference() else bank._version
        dtype = torch.promote_types(bank.dtype, torch.float32)
        self.center = self.bank.new_zeros(bank.shape[1], dtype=dtype)
        self.longest = self.center.new_zeros(())
        self.features: Tensor | None = None
        self.norms: Tensor | None = None
        self.coarse: CoarseBank | None = None
        found = factors(self.similarity)
        if found is None:
            return
        with torch.no_grad():
            rows = self.bank.to(dtype)
            if len(rows) and (found.cancels or found.shifts):
                self.center = sampled_center(self.bank, dtype)
            if not found.cancels:
                moved = rows - self.center if found.shifts else rows
                self.features = found.of_bank(moved, self.center)
                if found.shifts and len(rows):
                    self.longest = lengths(rows).amax()
                return
            self.features = rows.new_empty(len(rows), rows.shape[1] + 2)
            self.norms = squared_of_bank(rows, self.center, self.features)
            if coarse and has_bfloat16() and dtype == torch.float32 and rows.device.type == "cpu" and len(rows):
                self.coarse = CoarseBank.make(rows, self.center)

    def check(self, bank: Tensor, similarity: nn.Module) -> None:
        """Check that this was made of ``bank`` as it stands, for ``similarity``.

        Raises:
            ValueError: if not.
        """
        same = bank.data_ptr() == self.bank.data_ptr() and bank.stride() == self.bank.stride()
        if bank.shape != self.bank.shape or bank.dtype != self.bank.dtype or not same:
            raise ValueError("prepared: expected a PreparedBank of this bank, got one of another; make it anew")
        if self._version is not None and not bank.is_inference() and bank._version != self._version:
            raise ValueError(
                "prepared: expected a PreparedBank of the bank as it is now, got an older one; make it anew"
            )
        if repr(similarity) != repr(self.similarity):
            raise ValueError(f"prepared: expected a PreparedBank for {similarity!r}, got one for {self.similarity!r}")
