"""A fitted model whose members are folds, of embeddings and labels that no training has made."""

import numpy as np
import pandas as pd
from torch import nn

from vicinal.estimators.bank import Bank
from vicinal.estimators.fitted import FittedModel
from vicinal.estimators.label_codec import NumberCodec
from vicinal.index import NeighborBank
from vicinal.training import NeighborNetwork
from vicinal.training.history import TrainingHistory


def of_folds(vectors, labels, folds, head, heads=None):
    """The model of four members over rows ``[n, 4 * d]``, with a head for each fold if there are some."""
    bank, nobody = NeighborBank(vectors.shape[1]), Bank.over(NeighborBank(vectors.shape[1]))
    bank.add(
        np.arange(len(vectors)),
        vectors.float(),
        labels.double(),
        rows=pd.DataFrame(index=range(len(vectors))),
        folds=folds,
    )
    network = NeighborNetwork(nn.Identity(), nn.Identity(), head).eval()
    count = int(folds.max()) + 1
    return FittedModel(
        NumberCodec(), network, Bank.over(bank), nobody, "network", TrainingHistory([], []), 4, count, heads
    )
