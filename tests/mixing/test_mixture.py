"""Mixed rows: what is mixed, how related it is, and which of it counts."""

import numpy as np
import pytest
import torch
from scipy import stats

from vicinal.core import entries
from vicinal.losses import EmbeddingLoss, MixedLoss, ProxyLoss, metrix
from vicinal.mixing import Mixture, draw_mixture
from vicinal.mixing.mixture import draw_shares
from vicinal.relation import same_class, shared_labels
from vicinal.relation.pairs import other_rows

SOFT = [
    entry
    for entry in entries("pair_loss")
    if "soft-relation" in entry.facts and not {"square", "proxies", "proxy-rows"} & entry.facts
]
LABELS = torch.tensor([0, 0, 1, 1, 2, 2, 0, 1])


def normal(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def mixture(shares=(0.0, 0.25, 0.5, 1.0)):
    shares = torch.tensor(shares, dtype=torch.float64)
    return Mixture(torch.tensor([0, 1, 5, 3]), torch.tensor([2, 4, 5, 6]), shares, 8)


def relations():
    ids = torch.arange(8)
    return same_class(LABELS, LABELS).double(), other_rows(ids, ids).double()


def test_rows_of_any_shape_and_relations_are_mixed_alike():
    made, images = mixture(), normal(0, 8, 2, 3, 3)
    for m, (i, j, share) in enumerate(zip([0, 1, 5, 3], [2, 4, 5, 6], [0.0, 0.25, 0.5, 1.0], strict=True)):
        torch.testing.assert_close(made.rows(images)[m], share * images[i] + (1 - share) * images[j])
        relation, _ = relations()
        torch.testing.assert_close(made.relation(relation)[:, m], share * relation[:, i] + (1 - share) * relation[:, j])
    assert len(made) == 4
    hot = torch.nn.functional.one_hot(LABELS, 3).double()
    torch.testing.assert_close(made.relation(relation), hot @ made.rows(hot).T)  # of classes: labels are mixed


def test_a_mixed_row_counts_where_all_that_is_in_it_does():
    weight = mixture().weight(relations()[1])
    assert weight.shape == (8, 4)
    left_out = (weight == 0).nonzero().tolist()
    assert left_out == [[1, 1], [2, 0], [3, 3], [4, 1], [5, 2]]  # a source of share 0 is not in it
    anchored = mixture().weight(relations()[1], with_anchor=True)
    assert (anchored == 0).nonzero().tolist() == [[2, 0], [4, 1], [5, 2]]


@pytest.mark.parametrize("entry", SOFT, ids=lambda e: e.name)
def test_shares_of_0_and_1_give_the_clean_loss_of_the_sources(entry):
    made, x = mixture((1.0, 0.0, 1.0, 0.0)), normal(1, 8, 4)
    relation, weight = relations()
    x = torch.nn.functional.normalize(x)
    columns = torch.tensor([0, 4, 5, 6])
    settings = {"temperature": 0.5} if entry.name == "amcl" else {}
    got = entry.factory(x @ made.rows(x).T, made.relation(relation), made.weight(weight), **settings)
    want = entry.factory(x @ x[columns].T, relation[:, columns], weight[:, columns], **settings)
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("entry", SOFT, ids=lambda e: e.name)
def test_every_loss_with_soft_relations_takes_mixed_rows_of_inputs_features_and_embeddings(entry):
    torch.manual_seed(0)
    images = normal(2, 8, 5)
    first, second = torch.nn.Linear(5, 6).double(), torch.nn.Linear(6, 4).double()
    criterion = MixedLoss(EmbeddingLoss(entry.name), generator=seeded())
    drawn = criterion.draw(LABELS)
    features, embeddings = first(images), second(first(images))
    values = [
        criterion(embeddings, LABELS, mixture=drawn, mixed=mixed)
        for mixed in (None, second(drawn.rows(features)), second(first(drawn.rows(images))))
    ]
    for value in values[1:]:  # all layers are linear, so the level does not matter
        torch.testing.assert_close(value, values[0])
    values[2].backward()
    assert first.weight.grad.isfinite().all()
    clean = EmbeddingLoss(entry.name)(embeddings, LABELS)
    torch.testing.assert_close(MixedLoss(EmbeddingLoss(entry.name), factor=0)(embeddings, LABELS), clean)
    again = MixedLoss(EmbeddingLoss(entry.name), generator=seeded())(embeddings, LABELS)
    torch.testing.assert_close(again, values[0])


def test_half_shares_are_symmetric_and_a_smaller_share_of_a_relative_costs_less_pull():
    x, half = normal(3, 8, 4), torch.full((4,), 0.5, dtype=torch.float64)
    made = Mixture(torch.tensor([0, 1, 5, 3]), torch.tensor([2, 4, 6, 6]), half, 8)
    swapped = Mixture(made.second, made.first, half, 8)
    criterion = MixedLoss(EmbeddingLoss("metrix"))
    torch.testing.assert_close(
        criterion(x, LABELS, mixture=made), criterion(x, LABELS, mixture=swapped), rtol=1e-12, atol=0
    )
    score = torch.zeros(1, 1)
    pulls = [float(metrix(score, torch.tensor([[t]]), form="contrastive")) for t in (0.2, 0.5, 1.0)]
    assert pulls == pytest.approx([0.2, 0.5, 1.0])


@pytest.mark.parametrize("kind", ["positive-negative", "anchor-negative", "positive-positive"])
def test_mixed_loss_is_clean_plus_factor_times_mixed(kind):
    x, ids = normal(4, 8, 4), torch.tensor([9, 3, 4, 8, 0, 1, 7, 2])
    criterion = EmbeddingLoss("metrix", reduction="none")
    made = MixedLoss(criterion, kind=kind, factor=0.7, per_row=2, generator=seeded(1))
    value = made(x, LABELS, ids=ids)
    drawn = MixedLoss(criterion, kind=kind, per_row=2, generator=seeded(1)).draw(LABELS)
    relation, weight = relations()
    scores = torch.nn.functional.normalize(x) @ torch.nn.functional.normalize(drawn.rows(x)).T
    of_columns = weight[:, drawn.second]
    if kind != "anchor-negative":
        of_columns = of_columns * weight[:, drawn.first]
    mixed = metrix(scores, drawn.relation(relation), of_columns, reduction="none")
    torch.testing.assert_close(value, criterion(x, LABELS) + 0.7 * mixed)
    if kind == "anchor-negative":
        own = drawn.first == torch.arange(8)[:, None]
        assert (drawn.weight(weight, with_anchor=True)[own] == 1).all()  # a row sees its own mixtures
    seen = made(x, LABELS, ids=torch.tensor([9, 9, 4, 8, 0, 1, 7, 2]))
    assert (seen != value).any()


def test_several_labels_and_proxies_are_mixed_too():
    x, hot = normal(5, 8, 4), torch.nn.functional.one_hot(LABELS, 3)
    hot[0, 1] = 1
    value = MixedLoss(EmbeddingLoss("supcon"), generator=seeded())(x, hot)
    drawn = draw_mixture(shared_labels(hot, hot), generator=seeded())
    assert value.isfinite()
    torch.manual_seed(0)
    for name in ("cosface", "proxy_anchor", "normalized_softmax", "unpg"):
        proxies = ProxyLoss(name, 3, 4).double()
        mixed = proxies(drawn.rows(x), drawn.rows(torch.nn.functional.one_hot(LABELS, 3).double()))
        mixed.backward()
        assert (proxies.proxies.grad != 0).any()


@pytest.mark.parametrize("kind", ["positive-negative", "anchor-negative", "positive-positive"])
def test_what_is_drawn(kind):
    relation, weight = relations()
    labels = torch.tensor([0, 0, 1, 1, 2, 2, 0, 9])  # the last is of a class of its own
    relation = same_class(labels, labels)
    weight[0, 1] = weight[1, 0] = 0.0
    drawn = draw_mixture(relation, weight, kind=kind, per_row=40, generator=seeded())
    anchors = torch.arange(8) if kind == "anchor-negative" else torch.arange(7)
    anchors = anchors.repeat_interleave(40)
    assert len(drawn) == len(anchors)
    if kind == "anchor-negative":
        assert (drawn.first == anchors).all()
    else:
        assert (relation[anchors, drawn.first] * weight[anchors, drawn.first] == 1).all()
    wanted = 1.0 if kind == "positive-positive" else 0.0
    assert (relation[anchors, drawn.second] == wanted).all()
    assert (weight[anchors, drawn.second] == 1).all()
    again = draw_mixture(relation, weight, kind=kind, per_row=40, generator=seeded())
    assert all(torch.equal(getattr(drawn, name), getattr(again, name)) for name in ("first", "second", "share"))
    assert len(draw_mixture(torch.eye(3), kind="positive-positive")) == 0


def test_only_the_nearest_unrelated_rows_are_drawn():
    relation, weight = relations()
    scores = normal(6, 8, 8)
    drawn = draw_mixture(relation, weight, scores=scores, nearest=2, per_row=50, generator=seeded())
    for row in range(8):
        seen = set(drawn.second[row * 50 : row * 50 + 50].tolist())
        unrelated = [j for j in range(8) if relation[row, j] == 0]
        assert seen == set(sorted(unrelated, key=lambda j: float(scores[row, j]))[-2:])
    value = MixedLoss(EmbeddingLoss("metrix"), nearest=1, generator=seeded())(normal(1, 8, 3), LABELS)
    assert value.isfinite()


@pytest.mark.parametrize("alpha", [0.4, 1.0, 2.0])
def test_shares_follow_a_beta_distribution(alpha):
    shares = draw_shares(2000, alpha, generator=seeded())
    assert ((shares >= 0) & (shares <= 1)).all()
    assert stats.kstest(shares.numpy(), stats.beta(alpha, alpha).cdf).pvalue > 0.01
    assert torch.equal(shares, draw_shares(2000, alpha, generator=seeded()))
    assert draw_shares(0).shape == (0,)


@pytest.mark.parametrize(
    ("call", "kind", "sentence"),
    [
        (lambda: mixture((0.0, 0.25, 1.5, 1.0)), ValueError, r"^share: expected numbers from 0 to 1, got 1.5"),
        (lambda: mixture((0.0, float("nan"), 0.5, 1.0)), ValueError, "^share: expected numbers from 0 to 1, got nan"),
        (
            lambda: Mixture(torch.tensor([8]), torch.tensor([0]), torch.ones(1), 8),
            ValueError,
            "^first: expected rows 0 to 7, got 8",
        ),
        (
            lambda: Mixture(torch.tensor([0]), torch.tensor([-1]), torch.ones(1), 8),
            ValueError,
            "^second: expected rows 0 to 7, got -1",
        ),
        (
            lambda: Mixture(torch.tensor([0.0]), torch.tensor([1]), torch.ones(1), 8),
            TypeError,
            "^first: expected whole numbers",
        ),
        (
            lambda: Mixture(torch.tensor([0]), torch.tensor([1, 2]), torch.ones(1), 8),
            ValueError,
            "^second: expected one row for each",
        ),
        (lambda: mixture().rows(torch.zeros(7, 2)), ValueError, r"^values: expected \[8, ...\]"),
        (lambda: mixture().rows(LABELS), TypeError, "^values: expected a floating dtype"),
        (lambda: mixture().relation(torch.zeros(3, 7)), ValueError, r"^relation: expected \[b, 8\]"),
        (lambda: draw_shares(2, 0.0), ValueError, "^alpha: expected a number above 0"),
        (lambda: draw_mixture(torch.zeros(2, 3)), ValueError, r"^relation: expected \[n, n\]"),
        (lambda: draw_mixture(torch.eye(3), kind="negative"), ValueError, "^kind: expected one of"),
        (lambda: draw_mixture(torch.eye(3), nearest=1), ValueError, "^scores: expected .* with nearest"),
        (lambda: MixedLoss(EmbeddingLoss("n_pairs")), ValueError, "^criterion: expected a loss that takes soft"),
        (lambda: MixedLoss(metrix), TypeError, "^criterion: expected an EmbeddingLoss"),
        (lambda: MixedLoss(EmbeddingLoss("supcon"), factor=-1), ValueError, "^factor: expected"),
        (
            lambda: MixedLoss(EmbeddingLoss("supcon"))(normal(0, 8, 2), LABELS, mixed=normal(0, 4, 2)),
            ValueError,
            "^mixture: expected with mixed",
        ),
        (
            lambda: MixedLoss(EmbeddingLoss("supcon"))(
                normal(0, 8, 2), LABELS, mixture=mixture(), mixed=normal(0, 3, 2)
            ),
            ValueError,
            "^mixed: expected 4 rows",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call, kind, sentence):
    with pytest.raises(kind, match=sentence):
        call()


def test_gradient_of_the_mixed_loss():
    made = mixture()
    criterion = MixedLoss(EmbeddingLoss("metrix"))
    assert torch.autograd.gradcheck(
        lambda rows: criterion(rows, LABELS, mixture=made), (normal(7, 8, 3).requires_grad_(),)
    )
    half = criterion(normal(7, 8, 3).bfloat16(), LABELS, mixture=made)
    np.testing.assert_allclose(half.float(), criterion(normal(7, 8, 3), LABELS, mixture=made), rtol=0.02)
