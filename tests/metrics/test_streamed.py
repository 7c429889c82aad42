"""Metrics by blocks equal metrics of the whole matrix, and need no whole matrix."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from faults.warm import program, run_case
from vicinal import metrics
from vicinal.blockwise import block_policy
from vicinal.metrics.retrieval import NAMES, from_ranks, named
from vicinal.ranks.hard import related_ranks
from vicinal.similarity import Dot, NegativeL2

pytestmark = pytest.mark.sweep(3)

GOLDEN = Path(__file__).parents[1] / "golden/retrieval"
ALL = ["precision@1", "precision@5", "hit@3", "recall@7", "r_precision", "map@r", "map", "map@5", "mrr", "mrr@3"]
ALL += ["ndcg@5", "ndcg"]
SETS = [ALL, ["precision@1", "r_precision", "map@r"], ["mrr"], ["map"], ["recall@7"], ["precision@1", "mrr"]]


def whole(scores, labels, others, weight, names, ties):
    relation = labels[:, None] == others
    found, ranks = {}, related_ranks(scores, relation, weight, ties=ties)
    for one in named(names):
        found[one.name] = from_ranks(one.formula, ranks, k=one.k)
        if one.formula == "ndcg":
            found[one.name] = metrics.ndcg(scores, relation, weight, k=one.k, ties=ties)
    return found


@settings(max_examples=max(10, settings().max_examples // 3))
@given(
    seed=st.integers(0, 2**31 - 1),
    n=st.integers(1, 70),
    classes=st.integers(1, 9),
    block=st.integers(1, 80),
    ties=st.sampled_from(["worst", "best"]),
    names=st.sampled_from(SETS),
)
def test_blocks_equal_whole_with_ties(seed, n, classes, block, ties, names):
    g = torch.Generator().manual_seed(seed)
    x = torch.randint(-2, 3, (n, 3), generator=g).double()  # small whole numbers: products are exact, ties are ties
    y = torch.randint(0, classes, (n,), generator=g) * 3 - 4
    got = metrics.embedding_metrics(x, y, metrics=names, similarity="dot", ties=ties, block=block)
    want = whole(x @ x.T, y, y, 1 - torch.eye(n), names, ties)
    assert list(got) == names
    for name in names:
        torch.testing.assert_close(got[name], want[name], equal_nan=True)


@pytest.mark.slow
@pytest.mark.parametrize("spread", [None, 2.0, 0.5])
@pytest.mark.parametrize("ties", ["worst", "best"])
def test_many_rows_in_large_blocks(spread, ties):
    """Large enough that thresholds are raised by the scores of a block."""
    g = torch.Generator().manual_seed(1)
    y = torch.randint(0, 40, (500,), generator=g)
    x = torch.randn(500, 6, generator=g, dtype=torch.float64)
    if spread is not None:
        x = torch.randn(40, 6, generator=g, dtype=torch.float64)[y] + spread * x
    x = x.mul(2).round()
    for names in SETS:
        got = metrics.embedding_metrics(x, y, metrics=names, similarity="dot", ties=ties, block=200)
        want = whole(x @ x.T, y, y, 1 - torch.eye(500), names, ties)
        for name in names:
            torch.testing.assert_close(got[name], want[name], equal_nan=True)


@given(seed=st.integers(0, 2**31 - 1), n=st.integers(1, 30), m=st.integers(1, 50), block=st.integers(1, 40))
def test_queries_against_a_bank(seed, n, m, block):
    g = torch.Generator().manual_seed(seed)
    x, z = (torch.randint(-2, 3, (k, 3), generator=g).double() for k in (n, m))
    y, w = (torch.randint(0, 6, (k,), generator=g) for k in (n, m))
    got = metrics.embedding_metrics(x, y, z, w, metrics=ALL, similarity=Dot(), block=block)
    for name, want in whole(x @ z.T, y, w, None, ALL, "worst").items():
        torch.testing.assert_close(got[name], want, equal_nan=True)


@pytest.mark.parametrize("block", [400, 200])
def test_a_sample_of_columns_may_mislead(block):
    """Every fourth column is near everything, so a sample of every fourth finds high scores only."""
    g = torch.Generator().manual_seed(8)
    y = torch.arange(400) // 4
    x = torch.randint(1, 9, (400, 2), generator=g).double()
    x[::4] = torch.randint(40, 400, (100, 2), generator=g).double()
    names = ["mrr@40", "map@40", "recall@40"]
    got = metrics.embedding_metrics(x, y, metrics=names, similarity="dot", block=block)
    for name, want in whole(x @ x.T, y, y, 1 - torch.eye(400), names, "worst").items():
        torch.testing.assert_close(got[name], want)


def test_stripes_equal_half_of_the_blocks():
    g = torch.Generator().manual_seed(2)
    x, y = torch.randn(200, 4, generator=g, dtype=torch.float64), torch.randint(0, 5, (200,), generator=g)
    want = metrics.embedding_metrics(x, y, metrics=ALL, block=16)
    with block_policy(memory_entries=64):
        got = metrics.embedding_metrics(x, y, metrics=ALL, block=16)
    for name in ALL:
        torch.testing.assert_close(got[name], want[name])


@pytest.mark.parametrize("similarity", ["cosine", "dot", "l2", "squared_l2", "l1", NegativeL2()])
def test_similarities(similarity):
    g = torch.Generator().manual_seed(3)
    x, y = torch.randn(60, 4, generator=g, dtype=torch.float64), torch.randint(0, 6, (60,), generator=g)
    from vicinal.similarity.base import resolve_similarity

    got = metrics.embedding_metrics(x, y, metrics=ALL, similarity=similarity, block=16)
    want = whole(resolve_similarity(similarity)(x, x), y, y, 1 - torch.eye(60), ALL, "worst")
    for name in ALL:
        torch.testing.assert_close(got[name], want[name])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_embeddings_are_computed_in_float32(dtype):
    g = torch.Generator().manual_seed(4)
    x, y = torch.randn(80, 8, generator=g).to(dtype), torch.randint(0, 6, (80,), generator=g)
    got, want = metrics.embedding_metrics(x, y, metrics=ALL), metrics.embedding_metrics(x.float(), y, metrics=ALL)
    for name in ALL:
        torch.testing.assert_close(got[name], want[name], rtol=0, atol=0)


def test_pytorch_metric_learning():
    z = np.load(GOLDEN / "retrieval_metrics.npz")
    theirs = {
        "precision@1": "precision_at_1",
        "r_precision": "r_precision",
        "map@r": "mean_average_precision_at_r",
        "map": "kall_mean_average_precision",
        "mrr": "kall_mean_reciprocal_rank",
    }
    for case, (key, similarity) in [(c, k) for c in "AB" for k in (("l2", "l2"), ("cos", "cosine"))]:
        x, y = torch.tensor(z[f"{case}_x"]), torch.tensor(z[f"{case}_y"])
        accumulator = metrics.EmbeddingRetrieval(list(theirs), similarity=similarity, block=4)
        accumulator.update(x[:3], y[:3])
        accumulator.update(x[3:], y[3:])
        for name, value in accumulator.compute().items():
            assert value == pytest.approx(float(z[f"{case}_{key}_{theirs[name]}"]), rel=1e-9), (case, key, name)
    for case in "AB":
        x, y = torch.tensor(z[f"{case}_x"]), torch.tensor(z[f"{case}_y"])
        got = metrics.embedding_metrics(x[::2], y[::2], x[1::2], y[1::2], similarity="l2", metrics=list(theirs)[:3])
        for name, values in got.items():
            assert values.nanmean() == pytest.approx(float(z[f"{case}_split_l2_{theirs[name]}"]), rel=1e-9), name


def test_rows_without_relatives_one_row_one_class_and_equal_rows():
    one = metrics.embedding_metrics(torch.ones(1, 2), torch.tensor([3]), metrics=ALL)
    assert all(value.isnan().all() and value.shape == (1,) for value in one.values())
    alone = metrics.embedding_metrics(torch.randn(4, 2), torch.arange(4), metrics=ALL, empty=0)
    assert all((value == 0).all() for value in alone.values())
    same = metrics.embedding_metrics(torch.randn(5, 2), torch.zeros(5, dtype=torch.long), metrics=["map", "map@r"])
    assert all((value == 1).all() for value in same.values())
    flat = metrics.embedding_metrics(torch.ones(6, 2), torch.tensor([0, 0, 0, 1, 1, 1]), metrics=["map@r", "mrr"])
    torch.testing.assert_close(flat["mrr"], torch.full((6,), 1 / 4, dtype=torch.float64))
    assert (flat["map@r"] == 0).all()
    none = metrics.embedding_metrics(torch.ones(0, 2), torch.zeros(0, dtype=torch.long))
    assert all(value.shape == (0,) for value in none.values())


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        ({"labels": torch.zeros(4)}, TypeError, r"^labels: expected integers \(classes\), got torch.float32"),
        ({"labels": torch.zeros(3, dtype=torch.long)}, ValueError, r"^labels: expected \[4\], one class for each row"),
        ({"embeddings": torch.tensor([[0.0], [1.0], [torch.nan], [2.0]])}, ValueError, r"^embeddings: .* in row 2$"),
        ({"bank_labels": torch.zeros(4)}, ValueError, r"^bank_labels: expected None without a bank"),
        ({"bank": torch.zeros(4, 1)}, TypeError, r"^bank_labels: expected a tensor of integers, got NoneType"),
        ({"bank": torch.zeros(4, 2)}, ValueError, r"^bank: expected \[N, 1\]"),
        ({"ties": "first"}, ValueError, r"^ties: expected one of 'worst', 'best', got 'first'"),
        ({"block": 0}, ValueError, r"^block: expected a whole number of at least 1"),
        ({"metrics": []}, ValueError, r"^metrics: expected a list of names"),
        ({"metrics": "map"}, ValueError, r"^metrics: expected a list of names"),
        ({"metrics": ["map", "map"]}, ValueError, r"^metrics: expected each name once"),
        ({"metrics": ["precision"]}, ValueError, r"^metrics: expected a cutoff as in 'precision@10', got 'precision'"),
        ({"metrics": ["r_precision@3"]}, ValueError, r"^metrics: expected 'r_precision' without a cutoff"),
        ({"metrics": ["hit@x"]}, ValueError, r"^metrics: expected a whole number after @, got 'hit@x'"),
        ({"metrics": ["hit@0"]}, ValueError, r"^k: expected a whole number of at least 1, got 0"),
        ({"metrics": ["ncdg@3"]}, ValueError, r"did you mean 'ndcg'\?$"),
    ],
)
def test_bad_input_gets_one_sentence(change, error, sentence):
    right = {"embeddings": torch.arange(4.0)[:, None], "labels": torch.tensor([0, 0, 1, 1])}
    with pytest.raises(error, match=sentence):
        metrics.embedding_metrics(**{**right, **change})


def test_accumulated_blocks_of_queries_equal_the_whole_and_keep_nothing():
    g = torch.Generator().manual_seed(5)
    s, r = torch.randn(30, 12, generator=g).round(), torch.randint(0, 3, (30, 12), generator=g)
    r[4:9] = 0
    w = (torch.rand(30, 12, generator=g) < 0.7).float()
    parts, left, right = (metrics.RetrievalMetrics(ALL) for _ in range(3))
    for rows in torch.arange(30).split(7):
        parts.update(s[rows], r[rows], w[rows])
        (left if rows[0] < 12 else right).update(s[rows], r[rows], w[rows])
    left.merge(right)
    whole_ = metrics.RetrievalMetrics(ALL)
    whole_.update(s, r, w)
    for name, value in whole_.compute().items():
        assert parts.compute()[name] == pytest.approx(value, rel=1e-12)
        assert left.compute()[name] == pytest.approx(value, rel=1e-12)
        formula, k = named([name])[0].formula, named([name])[0].k
        settings_ = {} if k is None else {"k": k}
        assert value == pytest.approx(float(getattr(metrics, formula)(s, r, w, **settings_).nanmean()), rel=1e-12)
    held = [v for v in vars(parts).values() if isinstance(v, torch.Tensor)]
    assert sum(v.numel() for v in held) == 2 * len(ALL)
    parts.reset()
    assert all(math.isnan(value) for value in parts.compute().values())
    with pytest.raises(ValueError, match=r"^other: expected the metrics"):
        parts.merge(metrics.RetrievalMetrics(["mrr"]))


def test_an_empty_accumulator_and_wrong_batches():
    accumulator = metrics.EmbeddingRetrieval()
    assert all(math.isnan(value) for value in accumulator.compute().values())
    with pytest.raises(ValueError, match=r"^labels: expected \[b\] for embeddings"):
        accumulator.update(torch.zeros(3, 2), torch.zeros(2, dtype=torch.long))
    x = torch.randn(3, 2, requires_grad=True)
    accumulator.update(x, torch.tensor([0, 0, 1]))
    assert not accumulator.embeddings[0].requires_grad
    assert set(accumulator.compute()) == {"precision@1", "r_precision", "map@r"}
    accumulator.reset()
    assert accumulator.labels == []


def test_in_a_lightning_module():
    from lightning import LightningModule, Trainer
    from torch.utils.data import DataLoader, TensorDataset

    class Module(LightningModule):
        def __init__(self):
            super().__init__()
            self.map_at_r = metrics.EmbeddingRetrieval(["map@r"])

        def validation_step(self, batch):
            self.map_at_r.update(*batch)

        def on_validation_epoch_end(self):
            self.log_dict(self.map_at_r.compute())
            self.map_at_r.reset()

    g = torch.Generator().manual_seed(6)
    x, y = torch.randn(40, 4, generator=g), torch.randint(0, 5, (40,), generator=g)
    loader = DataLoader(TensorDataset(x, y), batch_size=16)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logged = Trainer(**quiet, enable_checkpointing=False).validate(Module(), loader, verbose=False)
    want = metrics.embedding_metrics(x, y, metrics=["map@r"])["map@r"].nanmean()
    assert logged[0]["map@r"] == pytest.approx(float(want), rel=1e-6)


def test_every_written_name_has_a_formula():
    for written, (formula, takes) in NAMES.items():
        assert named([f"{written}@3" if takes == "needs" else written])[0].formula == formula


CODE = """
import sys, torch
from vicinal.metrics import embedding_metrics
torch.set_num_threads(1)
g = torch.Generator().manual_seed(0)
n = int(sys.argv[1])
y = torch.randint(0, n // 20, (n,), generator=g)
x = torch.randn(n // 20, 32, generator=g)[y] + torch.randn(n, 32, generator=g)
embedding_metrics(x[:3000], y[:3000] % 100)
def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) / 1024
with open("/proc/self/clear_refs", "w") as file:  # a new process starts with the peak of the one that made it
    file.write("5")
before = peak()
embedding_metrics(x, y)
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak memory as Linux gives it")
def test_memory_does_not_grow_with_the_square(tmp_path):
    done = run_case(tmp_path, program, CODE, 10_000)
    assert done.code == 0, done.err
    assert float(done.out) < 60, "MiB above what a small call takes; the matrix of scores would be 381"
