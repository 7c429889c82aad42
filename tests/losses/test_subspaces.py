"""Learners of slices of the embedding."""

import pytest
import torch

from vicinal.losses import EmbeddingLoss, SubspaceLearners, matched_clusters, subspace_slices


def groups(seed=0):
    """Three far groups of rows, in six dimensions."""
    g = torch.Generator().manual_seed(seed)
    places = 10 * torch.eye(6)[torch.arange(30) % 3]
    return places + 0.1 * torch.randn(30, 6, generator=g), torch.arange(30) % 3


def test_slices_cut_an_embedding_whole():
    for dim, learners in ((6, 1), (6, 3), (7, 3), (5, 5)):
        cut = [list(range(dim))[part] for part in subspace_slices(dim, learners)]
        assert [place for part in cut for place in part] == list(range(dim))
        assert len(cut) == learners
    with pytest.raises(ValueError, match=r"^learners: expected a whole number of at most 3"):
        subspace_slices(3, 4)


def test_a_learner_trains_its_slice_alone():
    loss = EmbeddingLoss("supcon")
    x, labels = torch.randn(8, 6, generator=torch.Generator().manual_seed(0)).requires_grad_(), torch.arange(8) % 3
    torch.testing.assert_close(SubspaceLearners(loss, 6)(x, labels, 0), loss(x, labels))
    train = SubspaceLearners(loss, 6, learners=3)
    for learner, part in enumerate(subspace_slices(6, 3)):
        value = train(x, labels, learner)
        torch.testing.assert_close(value, loss(x[:, part], labels))
        (grad,) = torch.autograd.grad(value, x)
        outside = torch.ones(6, dtype=torch.bool)
        outside[part] = False
        assert (grad[:, outside] == 0).all()
        assert (grad[:, part] != 0).any()


def test_the_cosine_of_slices_scaled_apart_is_their_mean():
    x, y = torch.randn(2, 6, generator=torch.Generator().manual_seed(1))
    cut = subspace_slices(6, 3)
    joined = [torch.cat([torch.nn.functional.normalize(row[part], dim=0) for part in cut]) for row in (x, y)]
    each = torch.stack([torch.nn.functional.cosine_similarity(x[part], y[part], dim=0) for part in cut])
    torch.testing.assert_close(torch.nn.functional.cosine_similarity(*joined, dim=0), each.mean())


def test_clusters_keep_their_learner():
    x, group = groups()
    train = SubspaceLearners(EmbeddingLoss("supcon"), 6, learners=3)
    clusters = train.assign(x)
    for k in range(3):
        assert len(clusters[group == k].unique()) == 1
    other = SubspaceLearners(EmbeddingLoss("supcon"), 6, learners=3, seed=7)
    torch.testing.assert_close(other.assign(x, clusters), clusters)
    names = torch.tensor([2, 0, 1])
    assert torch.equal(matched_clusters(names[clusters], clusters, 3), clusters)
    assert torch.equal(matched_clusters(clusters, clusters, 3), clusters)
    with pytest.raises(ValueError, match=r"^embeddings: expected at least 3 rows"):
        train.assign(x[:2])


def test_learners_join_where_the_score_stands_still():
    train = SubspaceLearners(EmbeddingLoss("supcon"), 6, most=3, patience=2)
    joined = [train.observe(score) for score in (0.1, 0.2, 0.2, 0.1, 0.3, 0.2, 0.2, 0.2, 0.2, 0.2)]
    assert joined == [False, False, False, True, False, False, True, False, False, False]
    assert train.learners == 3
    x, _ = groups()
    before = SubspaceLearners(EmbeddingLoss("supcon"), 6, learners=2).assign(x)
    assert len(train.assign(x, before).unique()) == 3
    with pytest.raises(ValueError, match=r"^learner: expected"):
        train(x, torch.zeros(30, dtype=torch.long), 3)
    with pytest.raises(ValueError, match=r"^embeddings: expected \[b, 6\]"):
        train(x[:, :4], torch.zeros(30, dtype=torch.long), 0)
