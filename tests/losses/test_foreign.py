"""Losses and miners of pytorch-metric-learning here, and ours there."""

import functools
import warnings

import numpy as np
import pytest
import torch

from references.tables import QUICK
from vicinal import miners
from vicinal.estimators import NeighborClassifier, NeighborRegressor
from vicinal.losses import (
    CrossBatchBank,
    EmbeddingLoss,
    LossForPML,
    LossFromPML,
    MinerForPML,
    ProxyLoss,
    miner_from_pml,
)
from vicinal.losses.pml import class_codes
from vicinal.relation import same_class
from vicinal.relation.pairs import other_rows

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("pytorch_metric_learning", reason="pytorch-metric-learning is an optional package")
    from pytorch_metric_learning import distances, losses, reducers
    from pytorch_metric_learning import miners as their_miners
    from pytorch_metric_learning.trainers import MetricLossOnly

LABELS = torch.arange(24) // 4
OTHER = torch.arange(40) % 8


def embeddings(n=24, seed=0):
    x = torch.randn(n, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.nn.functional.normalize(x)


def value_and_slope(criterion, *more, **named):
    x = embeddings().requires_grad_()
    value = criterion(x, LABELS, *more, **named)
    value.backward()
    return value.detach(), x.grad


# Theirs here.


@pytest.mark.parametrize(
    "make", [losses.SupConLoss, losses.NTXentLoss, losses.TripletMarginLoss, losses.MultiSimilarityLoss]
)
@pytest.mark.parametrize("mined", [False, True])
def test_their_loss_keeps_its_value_and_gradient(make, mined):
    miner = their_miners.MultiSimilarityMiner() if mined else None
    ours = value_and_slope(LossFromPML(make(), miner), ids=torch.arange(24) + 7)
    theirs = value_and_slope(lambda x, y: make()(x, y, miner(x, y) if mined else None))
    torch.testing.assert_close(ours, theirs)


def test_their_loss_takes_a_bank():
    bank = embeddings(40, seed=1)
    ours = value_and_slope(LossFromPML(losses.SupConLoss()), bank, OTHER)
    theirs = value_and_slope(lambda x, y: losses.SupConLoss()(x, y, ref_emb=bank, ref_labels=OTHER))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("miner", [None, their_miners.TripletMarginMiner(), their_miners.MultiSimilarityMiner()])
def test_their_loss_leaves_out_pairs_of_one_id_or_group(miner):
    seen = []

    class Spy(torch.nn.Module):
        def forward(self, x, y, indices_tuple=None, ref_emb=None, ref_labels=None):
            seen.append(indices_tuple)
            return x.sum()

    groups = torch.arange(24) // 2
    LossFromPML(Spy(), miner)(embeddings(), LABELS, ids=torch.arange(24), groups=groups)
    first, positive, *rest = seen[0]
    assert len(first)
    for one, other in ((first, positive), (rest[0] if len(rest) == 2 else first, rest[-1])):
        assert not (groups[one] == groups[other]).any()
    twice = torch.arange(24) // 2  # a row that stands twice is no pair with itself
    LossFromPML(Spy(), miner)(embeddings(), LABELS, ids=twice)
    first, positive, *_ = seen[1]
    assert not (twice[first] == twice[positive]).any()


def test_their_loss_is_trained_with_a_neighbor_model():
    x = np.random.default_rng(0).normal(size=(120, 3))
    classes = np.where(x[:, 0] > 0, "a", "b")
    model = NeighborClassifier(loss=LossFromPML(losses.SupConLoss()), **QUICK).fit(x, classes)
    assert model.score(x, classes) > 0.8
    with pytest.raises(ValueError, match="got SupConLoss, which takes classes"):
        NeighborRegressor(loss=LossFromPML(losses.SupConLoss()), **QUICK).fit(x, x[:, 0])


def test_their_loss_refuses_numbers_in_place_of_comparing_them():
    with pytest.raises(TypeError, match="compares labels for equality"):
        LossFromPML(losses.SupConLoss())(embeddings(), LABELS / 3)


PAIRS_OF_MINERS = [
    (their_miners.MultiSimilarityMiner(epsilon=0.1), functools.partial(miners.multi_similarity, epsilon=0.1)),
    (
        their_miners.PairMarginMiner(pos_margin=0.7, neg_margin=0.1, distance=distances.CosineSimilarity()),
        functools.partial(miners.pair_margin, positive=0.7, negative=0.1),
    ),
    (their_miners.BatchHardMiner(), miners.hard),
    (their_miners.TripletMarginMiner(margin=0.2), functools.partial(miners.triplet_margin, margin=0.2)),
    (
        their_miners.TripletMarginMiner(margin=0.2, type_of_triplets="semihard"),
        functools.partial(miners.semihard, margin=0.2),
    ),
]
both = pytest.mark.parametrize(("theirs", "ours"), PAIRS_OF_MINERS, ids=lambda m: type(m).__name__)


@both
def test_their_miner_chooses_what_ours_does(theirs, ours):
    scores, relation = embeddings() @ embeddings().T, same_class(LABELS, LABELS)
    weight = other_rows(torch.arange(24), torch.arange(24))
    torch.testing.assert_close(
        miner_from_pml(theirs)(scores, relation, weight).float(), ours(scores, relation, weight).float()
    )


@both
def test_their_miner_works_against_a_bank(theirs, ours):
    scores, relation = embeddings() @ embeddings(40, seed=1).T, same_class(LABELS, OTHER)
    torch.testing.assert_close(miner_from_pml(theirs)(scores, relation).float(), ours(scores, relation).float())


def test_their_miner_in_our_criterion():
    loss = EmbeddingLoss("multi_similarity", miner=miner_from_pml(their_miners.MultiSimilarityMiner()))
    ours = EmbeddingLoss("multi_similarity", miner=miners.multi_similarity)
    torch.testing.assert_close(value_and_slope(loss), value_and_slope(ours))


def test_their_miner_needs_a_relation_of_classes():
    miner = miner_from_pml(their_miners.BatchHardMiner())
    with pytest.raises(ValueError, match=r"^relation: expected 0 and 1 of classes"):
        miner(torch.zeros(2, 3), torch.tensor([[1.0, 1, 0], [0, 1, 1]]))
    with pytest.raises(ValueError, match=r"^relation: expected 0 and 1 of classes"):
        miner(torch.zeros(1, 2), torch.tensor([[0.5, 0]]))
    with pytest.raises(TypeError, match=r"^miner: expected a miner of pytorch-metric-learning"):
        miner_from_pml(losses.SupConLoss)


def test_class_codes_are_those_of_the_relation():
    relation = same_class(LABELS, torch.tensor([5, 5, 0, 9, 2, 0]))
    rows, columns = class_codes(relation)
    assert torch.equal((rows[:, None] == columns).float(), relation)


# Ours there.


@pytest.mark.parametrize(
    ("name", "theirs", "settings"),
    [
        ("supcon", losses.SupConLoss(temperature=0.1), {"reduction": "mean_nonzero"}),
        ("nt_xent", losses.NTXentLoss(temperature=0.1), {"temperature": 0.1}),
        ("multi_similarity", losses.MultiSimilarityLoss(), {}),
        (
            "contrastive",
            losses.ContrastiveLoss(1, 0, distance=distances.CosineSimilarity()),
            {"reduction": "mean_nonzero"},
        ),
        (
            "contrastive",
            losses.ContrastiveLoss(1, 0, distance=distances.CosineSimilarity(), reducer=reducers.MeanReducer()),
            {},
        ),
    ],
)
@pytest.mark.parametrize("mined", [False, True])
def test_our_loss_takes_their_pairs(name, theirs, settings, mined):
    indices = their_miners.PairMarginMiner(0.9, -0.2, distance=distances.CosineSimilarity())(embeddings(), LABELS)
    given = indices if mined else None
    ours = value_and_slope(LossForPML(EmbeddingLoss(name, **settings)), given)
    torch.testing.assert_close(ours, value_and_slope(theirs, given))


def test_our_loss_takes_their_triplets_as_pairs():
    triplets = their_miners.TripletMarginMiner(margin=0.1)(embeddings(), LABELS)
    loss = LossForPML(EmbeddingLoss("supcon"))
    anchor, positive, negative = triplets
    torch.testing.assert_close(
        loss(embeddings(), LABELS, triplets), loss(embeddings(), LABELS, (anchor, positive, anchor, negative))
    )


@pytest.mark.parametrize(
    "miner", [None, their_miners.PairMarginMiner(0.9, -0.2, distance=distances.CosineSimilarity())]
)
def test_our_loss_takes_their_reference_rows(miner):
    more = embeddings(40, seed=1), OTHER
    indices = None if miner is None else miner(embeddings(), LABELS, *more)
    ours = value_and_slope(LossForPML(EmbeddingLoss("nt_xent", temperature=0.1)), indices, *more)
    torch.testing.assert_close(ours, value_and_slope(losses.NTXentLoss(temperature=0.1), indices, *more))


@both
def test_our_miner_gives_their_pairs(theirs, ours):
    found = MinerForPML(ours)(embeddings(), LABELS)
    assert len(found) == 4
    weight = miner_from_pml(theirs)(
        embeddings() @ embeddings().T, same_class(LABELS, LABELS), other_rows(torch.arange(24), torch.arange(24))
    )
    from vicinal.losses.pml import weight_of_indices

    torch.testing.assert_close(weight_of_indices(found, 24, 24).double(), weight)
    assert losses.ContrastiveLoss()(embeddings(), LABELS, found).isfinite()


def test_our_loss_with_vectors_of_classes_takes_no_pairs():
    loss = LossForPML(ProxyLoss("arcface", 6, 8))
    assert loss(embeddings().float(), LABELS).isfinite()
    with pytest.raises(ValueError, match=r"^indices_tuple: expected None"):
        loss(embeddings().float(), LABELS, (LABELS, LABELS, LABELS, LABELS))


@pytest.mark.parametrize("wrong", [losses.SupConLoss(), None])
def test_what_is_no_criterion_is_refused(wrong):
    with pytest.raises(TypeError, match=r"^criterion: expected an EmbeddingLoss or a ProxyLoss"):
        LossForPML(wrong)
    with pytest.raises(ValueError, match=r"^criterion: expected none with a bank"):
        LossForPML(EmbeddingLoss("supcon", bank=CrossBatchBank(4, 8)))


@pytest.mark.filterwarnings("ignore")
def test_our_loss_and_miner_in_their_trainer():
    x = embeddings(96).float()
    rows = torch.utils.data.TensorDataset(x, torch.arange(96) // 8)
    trunk = torch.nn.Linear(8, 4)
    before = trunk.weight.detach().clone()
    trainer = MetricLossOnly(
        models={"trunk": trunk},
        optimizers={"trunk_optimizer": torch.optim.SGD(trunk.parameters(), lr=0.1)},
        batch_size=32,
        loss_funcs={"metric_loss": LossForPML(EmbeddingLoss("supcon"))},
        dataset=rows,
        mining_funcs={"tuple_miner": MinerForPML(miners.multi_similarity)},
        data_device="cpu",
        iterations_per_epoch=2,
        dataloader_num_workers=0,
    )
    trainer.train(num_epochs=1)
    assert not torch.equal(trunk.weight, before)
