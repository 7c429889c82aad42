"""What a loss does not keep to itself: NaN in what it is given, and a batch in which there is nothing to compare."""

from collections.abc import Iterable

import torch
from torch import Tensor

from vicinal.core import counted
from vicinal.core.checks import warn_caller


def with_nan_of(value: Tensor, *inputs: Tensor | None) -> Tensor:
    """``value``, or NaN with a gradient of NaN where one of the floating inputs holds NaN.

    >>> with_nan_of(torch.zeros(2), torch.tensor([[1.0, torch.nan]]), torch.tensor([0, 1]))
    tensor([nan, nan])
    """
    holds = [each.detach().isnan().any() for each in inputs if each is not None and each.is_floating_point()]
    if not holds:
        return value
    return value * value.new_ones(()).masked_fill(torch.stack(holds).any().to(value.device), torch.nan)


def tell_of_nothing(value: Tensor, relations: Iterable[tuple[Tensor, Tensor | None]]) -> bool:
    """Warn if a loss is 0 since no row has two columns that are not equally related; gives whether to look again.

    A loss other than 0, or the warning, ends the search; 0 where there are such columns may be earned.

    Args:
        value: the loss of a batch, which an accelerator has to finish first.
        relations: relation and weight of blocks of rows, ``[r, N]``; read only if the loss is 0.

    >>> tell_of_nothing(torch.zeros(()), [(torch.eye(2), None)]), tell_of_nothing(torch.ones(()), [])
    (True, False)
    """
    if bool(value.detach().any()):
        return False
    rows = 0
    for relation, weight in relations:
        rows += len(relation)
        left_out = torch.zeros_like(relation, dtype=torch.bool) if weight is None else weight == 0
        if relation.shape[1]:
            most = relation.masked_fill(left_out, -torch.inf).amax(-1)
            if bool((most > relation.masked_fill(left_out, torch.inf).amin(-1)).any()):
                return True
    if rows:
        warn_caller(
            f"labels: expected rows that are related and rows that are not, got a batch of {counted(rows, 'row')} with "
            "none to tell apart: the loss is 0, and nothing is learned; draw batches by class (samplers.ClassBatches)"
        )
    return not rows
