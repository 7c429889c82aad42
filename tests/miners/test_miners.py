"""One test per promise of the miners, run over every registered one."""

import functools
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from references import mining
from vicinal import miners
from vicinal.blockwise import block_policy
from vicinal.core import entries
from vicinal.losses import EmbeddingLoss
from vicinal.miners import sampled, selection

GOLDEN = Path(__file__).parents[1] / "golden/retrieval/miners.npz"
MINERS = entries("miner")
each_miner = pytest.mark.parametrize("miner", MINERS, ids=lambda e: e.name)


def problem(seed, b=8, *, tied=False):
    """Cosines of a batch against itself, its classes, and itself left out; row 0 has no relatives."""
    g = torch.Generator().manual_seed(seed)
    x = torch.nn.functional.normalize(torch.randn(b, 4, generator=g, dtype=torch.float64), dim=1)
    y = torch.randint(1, 4, (b,), generator=g)
    y[0] = 0
    scores = x @ x.T
    if tied:
        scores = (scores * 4).round() / 4
    return scores, (y[:, None] == y).double(), 1 - torch.eye(b, dtype=torch.float64)


def settings_of(miner, scores, seed=0):
    g = torch.Generator().manual_seed(seed)
    random = {"generator": g} if "random" in miner.facts else {}
    return random | {
        "distance_weighted": {"dim": 4},
        "uniform_histogram": {"bins": 5, "positives": 2, "negatives": 2},
        "guided": {"guide": scores.flip(1)},
        "topk_hard": {"k": 2},
    }.get(miner.name, {})


def call(miner, scores, relation, weight=None, seed=0):
    return miner.factory(scores, relation, weight, **settings_of(miner, scores, seed))


def test_all_of_the_contract_are_there():
    assert {e.name for e in MINERS} >= {
        "hard",
        "semihard",
        "distance_weighted",
        "angular",
        "multi_similarity",
        "pair_margin",
        "uniform_histogram",
        "topk_hard",
        "guided",
    }


@each_miner
def test_gives_the_weight_or_0_and_never_opens_a_closed_pair(miner):
    for seed in range(10):
        s, r, w = problem(seed, tied=seed % 2 == 1)
        w = w * torch.rand(w.shape, generator=torch.Generator().manual_seed(seed), dtype=w.dtype).round(decimals=1)
        got = call(miner, s, r, w)
        assert got.shape == s.shape
        assert ((got == 0) | (got == w)).all()
        assert not got.requires_grad


@each_miner
def test_a_pair_of_weight_0_has_no_influence(miner):
    if "random" in miner.facts or miner.name == "angular":
        pytest.skip("other numbers are drawn, or the batch is no longer square")
    s, r, w = problem(3, b=10)
    w[:, 7] = 0
    kept = [0, 1, 2, 3, 4, 5, 6, 8, 9]
    settings = settings_of(miner, s)
    fewer = {k: v[:, kept] if k == "guide" else v for k, v in settings.items()}
    want = miner.factory(s[:, kept], r[:, kept], w[:, kept], **fewer)
    torch.testing.assert_close(miner.factory(s, r, w, **settings)[:, kept], want)


@each_miner
@given(seed=st.integers(0, 2**31 - 1), tied=st.booleans())
def test_keeps_what_it_declares(miner, seed, tied):
    if "random" in miner.facts:
        return
    s, r, w = problem(seed, b=6, tied=tied and miner.name != "topk_hard")
    want = call(miner, s, r, w)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(seed))
    settings = settings_of(miner, s)
    rows = torch.arange(6) if "square" not in miner.facts else order
    moved = {k: v[rows][:, order] if k == "guide" else v for k, v in settings.items()}
    got = miner.factory(s[rows][:, order], r[rows][:, order], w[rows][:, order], **moved)
    torch.testing.assert_close(got, want[rows][:, order])
    if "score-shift-invariant" in miner.facts and tied:  # a shift of rounded scores is exact
        torch.testing.assert_close(miner.factory(s + 2, r, w, **settings), want)


@each_miner
def test_blocks_of_rows_give_the_same(miner):
    s, r, w = problem(4, b=40)
    want = call(miner, s, r, w)
    with block_policy(sort_entries=100):
        torch.testing.assert_close(call(miner, s, r, w), want)
    if "row-separable" in miner.facts and "random" not in miner.facts:
        settings = settings_of(miner, s)
        part = slice(10, 30)
        fewer = {k: v[part] if isinstance(v, torch.Tensor) and v.ndim == 2 else v for k, v in settings.items()}
        torch.testing.assert_close(miner.factory(s[part], r[part], w[part], **fewer), want[part])


@each_miner
def test_edges(miner):
    s, r, w = problem(5)
    assert (call(miner, s, r, w * 0) == 0).all()
    assert (call(miner, s, torch.ones_like(r), w) >= 0).all()
    assert (call(miner, s, torch.zeros_like(r), w) >= 0).all()
    assert (call(miner, torch.zeros_like(s), r, w) >= 0).all()
    assert call(miner, s[:1, :1], r[:1, :1], w[:1, :1]).tolist() == [[0.0]]
    assert call(miner, s[:0, :0], r[:0, :0], w[:0, :0]).shape == (0, 0)


@each_miner
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(miner, dtype):
    s, r, _ = problem(6)
    s = s.to(dtype)
    got = call(miner, s, r, None)
    assert got.dtype == dtype
    torch.testing.assert_close(got.double(), call(miner, s.float(), r, None).double())


@each_miner
def test_seeded(miner):
    s, r, w = problem(7, b=12)
    torch.testing.assert_close(call(miner, s, r, w, seed=3), call(miner, s, r, w, seed=3))
    if "random" in miner.facts:
        assert any((call(miner, s, r, w, seed=k) != call(miner, s, r, w, seed=3)).any() for k in range(10))


@each_miner
def test_errors_name_the_argument(miner):
    s, r, w = problem(8)
    with pytest.raises(ValueError, match=r"^relation: expected \(8, 8\) as the scores"):
        call(miner, s, r[:, 1:], w)
    with pytest.raises(ValueError, match=r"^weight: expected"):
        call(miner, s, r, w[:, 1:])
    with pytest.raises(TypeError, match=r"^scores: expected a floating dtype"):
        miner.factory(s.long(), r, w, **settings_of(miner, s))


GRID = [
    ("hard", {}),
    ("semihard", {}),
    *[
        ("triplet_margin", {"kind": kind, "margin": m})
        for kind in ("violating", "hard", "semihard", "easy")
        for m in (0.1, 0.5)
    ],
    ("multi_similarity", {}),
    ("multi_similarity", {"epsilon": 0.5}),
    ("pair_margin", {"positive": 0.5, "negative": 0.0}),
    ("angular", {}),
    ("angular", {"angle": 40.0}),
    ("topk_hard", {"k": 2}),
    ("topk_hard", {"k": None, "margin": 0.1}),
    ("topk_hard", {"k": 3, "relative": 0.05}),
    ("topk_hard", {"k": 2, "reference": "mean", "margin": 0.05, "relative": 0.2}),
    ("topk_hard", {"k": 4, "max_score": 0.3, "min_score": -0.5, "margin": -0.3}),
]


@pytest.mark.parametrize(("name", "settings"), GRID, ids=str)
@pytest.mark.parametrize("tied", [False, True])
def test_equals_numpy(name, settings, tied):
    if name == "angular" and tied:
        pytest.skip("rounded scores are no cosines")
    for seed in range(12):
        s, r, w = problem(seed, b=9, tied=tied)
        w[1, 3] = w[4] = 0
        want = getattr(mining, name)(s.numpy(), r.numpy(), w.numpy(), **settings)
        got = getattr(miners, name)(s, r, w, **settings)
        np.testing.assert_array_equal(got.numpy(), want * w.numpy(), err_msg=f"{name} {settings} {seed}")


@pytest.mark.parametrize("settings", [{}, {"margin": 0.2}, {"relative": 0.1}, {"reference": "mean"}], ids=str)
def test_guided_equals_numpy(settings):
    for seed in range(10):
        s, r, w = problem(seed)
        guide = problem(seed + 100)[0]
        want = mining.guided(s.numpy(), r.numpy(), w.numpy(), guide=guide.numpy(), **settings)
        got = miners.guided(s, r, w, guide=guide, **settings)
        np.testing.assert_array_equal(got.numpy(), want * w.numpy())


def stored(case):
    z = np.load(GOLDEN)
    x, y = torch.tensor(z[f"{case}_x"]), torch.tensor(z[f"{case}_y"])
    unit = torch.nn.functional.normalize(x, dim=1)
    relation = (y[:, None] == y).double()
    return z, unit @ unit.T, distances(unit), distances(x), relation, 1 - torch.eye(len(y))


def distances(x):
    return -torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")


def union(shape, *pairs):
    out = np.zeros(shape, bool)
    for a, b in pairs:
        out[a, b] = True
    return out


@pytest.mark.parametrize("case", "AB")
def test_pytorch_metric_learning(case):
    z, cosine, negative, raw, r, w = stored(case)

    def check(got, *pairs):
        np.testing.assert_array_equal(got.numpy() > 0, union(r.shape, *pairs))

    kinds = {"all": "violating", "hard": "hard", "semihard": "semihard", "easy": "easy"}
    for theirs, kind in kinds.items():
        a, p, n = z[f"{case}_triplet_{theirs}_m0.2"]
        check(miners.triplet_margin(negative, r, w, margin=0.2, kind=kind), (a, p), (a, n))
    a, p, n = z[f"{case}_angular_20deg"]  # theirs takes the rows as they are, not their directions
    check(miners.angular(raw, r, w, angle=20, scale="l2"), (a, p), (a, n))
    check(miners.angular(-raw.square(), r, w, angle=20, scale="squared_l2"), (a, p), (a, n))
    sides = (z[f"{case}_multi_similarity_e0.1_pos"], z[f"{case}_multi_similarity_e0.1_neg"])
    check(miners.multi_similarity(cosine, r, w, epsilon=0.1), *sides)
    sides = (z[f"{case}_pair_margin_p0.2_n0.8_pos"], z[f"{case}_pair_margin_p0.2_n0.8_neg"])
    check(miners.pair_margin(negative, r, w, positive=-0.2, negative=-0.8), *sides)


CHOICES = ["easy_hard", "easy_semihard", "easy_easy", "hard_hard", "hard_semihard", "hard_easy"]
CHOICES += ["semihard_hard", "semihard_easy", "batch_hard"]


@pytest.mark.parametrize("case", "AB")
@pytest.mark.parametrize("choices", CHOICES)
def test_choices_of_pytorch_metric_learning(case, choices):
    """Exactly theirs, but for ties (rows 0 and 1 of case B are equal): they keep one of them, we keep all."""
    z, _, negative, _, r, w = stored(case)
    if choices == "batch_hard":
        (a, p, n), settings = z[f"{case}_batch_hard"], {}
        b = a
    else:
        a, p, b, n = z[f"{case}_beh_{choices}"]
        settings = dict(zip(("positive", "negative"), choices.split("_"), strict=True))
    got = miners.hard(negative, r, w, **settings).numpy() > 0
    theirs = union(r.shape, (a, p), (b, n))
    assert not (theirs & ~got).any()
    for i, j in np.argwhere(got & ~theirs):
        assert case == "B"
        assert j in (0, 1)
        assert theirs[i, 1 - j]


def test_hard_refuses_what_has_no_order():
    s, r, w = problem(0)
    for positive, negative in (("semihard", "semihard"), ("all", "semihard"), ("semihard", "all")):
        with pytest.raises(ValueError, match=r"^negative: expected 'hard' or 'easy' beside one 'semihard'"):
            miners.hard(s, r, w, positive=positive, negative=negative)
    both = (r > 0).sum(1) > 1
    got = miners.hard(s, r, w, positive="all")
    np.testing.assert_array_equal((got * r).numpy(), (r * w * both[:, None]).numpy())


def test_semihard_is_strict_and_ties_are_kept():
    r = torch.tensor([[1, 1, 0, 0, 0, 0]])
    s = torch.tensor([[0.9, 0.5, 0.5, 0.4, 0.4, 0.1]])
    assert miners.hard(s, r, negative="semihard").tolist() == [[0, 1, 0, 1, 1, 0]]
    assert miners.hard(s, r, positive="semihard").tolist() == [[1, 0, 1, 0, 0, 0]]
    assert miners.semihard(s, r, margin=0.05).tolist() == [[0, 0, 0, 0, 0, 0]]


def test_margins_keep_fewer_as_they_grow_and_never_a_false_negative():
    s, r, w = problem(9, b=30)
    before = None
    for margin in (0.0, 0.1, 0.3, 0.6):
        got = miners.topk_hard(s, r, w, k=None, margin=margin)
        lowest = torch.where((r > 0) & (w > 0), s, torch.inf).amin(1, keepdim=True)
        assert (s[(got > 0) & (r == 0)] + margin <= lowest.expand_as(s)[(got > 0) & (r == 0)]).all()
        np.testing.assert_array_equal(got[(r > 0)].numpy(), w[r > 0].numpy())
        assert before is None or (got <= before).all()
        before = got


def test_a_relative_margin_does_not_open_up_for_negative_scores():
    s, r = torch.tensor([[-0.5, -0.48, -0.52, -0.9]]), torch.tensor([[1, 0, 0, 0]])
    assert miners.topk_hard(s, r, k=None, relative=0.1).tolist() == [[1, 0, 0, 1]]


def test_density_and_frequencies_of_distance_weighted():
    from vicinal.miners.sampled import log_density

    d = torch.tensor([0.5, 0.9, 1.2, 1.4], dtype=torch.float64)
    want = [mining.log_density(float(x), 16) for x in d]
    np.testing.assert_allclose(log_density(d, 16), want, rtol=1e-12)
    scores = torch.cat([torch.ones(1, dtype=torch.float64), 1 - d.square() / 2])[None].expand(20000, 5)
    relation = torch.tensor([[1.0, 0, 0, 0, 0]]).expand(20000, 5)
    g = torch.Generator().manual_seed(0)
    got = miners.distance_weighted(scores, relation, dim=16, draws=1, farthest=1.5, generator=g)
    share = np.exp(-np.array(want))
    np.testing.assert_allclose(got[:, 1:].mean(0), share / share.sum(), atol=0.01)
    assert (got[:, 0] == 1).all()
    far = miners.distance_weighted(scores, relation, dim=16, draws=4, farthest=1.0, generator=g)
    assert far[0].tolist() == [1, 1, 1, 0, 0]
    only = miners.distance_weighted(scores[:, [0, 4]], relation[:, [0, 4]], dim=16, farthest=1.0, generator=g)
    assert only[0].tolist() == [1, 1]


def test_uniform_histogram_is_flat():
    g = torch.Generator().manual_seed(1)
    s = torch.randn(60, 60, generator=g, dtype=torch.float64)
    r = (torch.rand(60, 60, generator=g) < 0.3).double()
    got = miners.uniform_histogram(s, r, bins=10, positives=7, negatives=9, generator=g) > 0
    for side, limit in ((r > 0, 7), (r == 0, 9)):
        values = s[side]
        counts, edges = np.histogram(values, bins=10)
        drawn, _ = np.histogram(s[side & got], bins=edges)
        np.testing.assert_array_equal(drawn, np.minimum(counts, limit))


def test_uniform_histogram_draws_again_if_too_few_numbers_were_low(monkeypatch):
    monkeypatch.setattr(sampled, "_SPARE", -18)
    test_uniform_histogram_is_flat()


@pytest.mark.parametrize("seed", range(3))
def test_picked_are_the_first_of_a_stable_sort(seed):
    g = torch.Generator().manual_seed(seed)
    preference, among = torch.randint(0, 4, (30, 9), generator=g).float(), torch.rand(30, 9, generator=g) < 0.7
    count = torch.randint(0, 12, (30,), generator=g)
    got = selection.picked(preference, among, count)
    for row, kept, number, found in zip(preference.numpy(), among.numpy(), count.tolist(), got, strict=True):
        order = [column for column in np.argsort(-row, kind="stable") if kept[column]][:number]
        assert sorted(order) == found.nonzero()[:, 0].tolist()


@pytest.mark.slow
def test_no_miner_builds_a_cube():
    """A batch of 1500 holds 2 million pairs; a tensor of triplets would hold 3 billion."""
    g = torch.Generator().manual_seed(2)
    x = torch.nn.functional.normalize(torch.randn(1500, 8, generator=g), dim=1)
    y = torch.randint(0, 750, (1500,), generator=g)
    s, r, w = x @ x.T, (y[:, None] == y).float(), 1 - torch.eye(1500)
    for miner in MINERS:
        assert call(miner, s, r, w).shape == s.shape


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's own, while it traces
@each_miner
def test_compiles_to_one_graph(miner):
    torch._dynamo.reset()
    s, r, w = problem(6)
    settings = {k: v for k, v in settings_of(miner, s).items() if k != "generator"}
    compiled = torch.compile(lambda *given: miner.factory(*given, **settings), backend="eager", fullgraph=True)
    torch.manual_seed(0)
    got = compiled(s, r, w)
    torch.manual_seed(0)
    torch.testing.assert_close(got, miner.factory(s, r, w, **settings))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's own, while it traces
@each_miner
def test_compiles_to_one_graph_with_a_loss(miner):
    torch._dynamo.reset()
    g = torch.Generator().manual_seed(0)
    rows, labels = torch.randn(12, 4, generator=g), torch.arange(6).repeat_interleave(2)
    settings = {k: v for k, v in settings_of(miner, torch.randn(12, 12, generator=g)).items() if k != "generator"}
    criterion = EmbeddingLoss("triplet", miner=functools.partial(miner.factory, **settings))
    compiled = torch.compile(criterion, backend="eager", fullgraph=True)
    torch.manual_seed(0)
    got = compiled(rows, labels)
    torch.manual_seed(0)
    torch.testing.assert_close(got, criterion(rows, labels))
