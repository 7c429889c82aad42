"""Which columns matter to a model as a whole: by what they add to its trend, or by how far they keep rows apart."""

import torch

from vicinal.estimators.fitted import FittedModel
from vicinal.estimators.kernel_metric import kernel_columns
from vicinal.estimators.tree_metric import trend_head
from vicinal.heads.kinds import adjusts


def knows_columns(model: FittedModel) -> bool:
    """Whether the metric is one of columns, so that :func:`importance_of` has an answer."""
    return model.metric != "network"


@torch.no_grad()
def importance_of(model: FittedModel) -> dict[str, float]:
    """How much each column matters: shares that sum to 1, the largest first.

    Of trees and of a kernel with a trend it is the mean of what a column adds to the trend, without its sign, over the
    rows of the bank, each by the folds that left it out; of several targets the mean of these in units of the range of
    each target. Of any other kernel it is the mean squared distance between two rows that a column makes.

    Args:
        model: fitted.

    Returns:
        by column; all 0 where no column makes a difference.

    Raises:
        ValueError: for the metric of a network.
    """
    if not knows_columns(model):
        raise ValueError(
            "importance: expected metric='kernel' or 'trees', which compare rows column by column, got 'network', "
            "which knows no columns; fit with one of these, or measure how the score falls when a column is shuffled, "
            "as sklearn.inspection.permutation_importance does"
        )
    if model.network.cross_fitted:
        head = model.network.head
        head = head if adjusts(head) else trend_head(model.network)  # that of one of several targets knows which
        names, amounts = model.network.trend_columns(), head.contributions(model.bank.vectors)
    else:
        names, amounts = kernel_columns(model.network), None
    columns = list(dict.fromkeys(names))
    belongs = torch.tensor([[float(name == column) for column in columns] for name in names], dtype=torch.float64)
    mass = model.bank.mass.double() / model.bank.mass.sum()
    if amounts is None:
        vectors = model.bank.vectors.double()
        spread = torch.einsum("n,nd->d", mass, (vectors - mass @ vectors).square())
        shares = spread @ belongs
    else:
        shares = torch.einsum("n,ntf->tf", mass, (amounts @ belongs).abs()).mean(dim=0)
    shares = shares / shares.sum().clamp(min=torch.finfo(torch.float64).tiny)
    order = shares.argsort(descending=True, stable=True).tolist()
    return {columns[place]: float(shares[place]) for place in order}
