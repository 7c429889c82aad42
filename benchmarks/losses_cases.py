"""Experiments for losses.py with losses of class scores, teachers, fewer rows and flat minima; one a claim.

``fit(rows, seed, **settings)`` gives the validation error, and what is measured on test rows.
"""

import copy
import time
from itertools import product

import numpy as np
import pandas as pd
import torch
from losses_training import (
    DROPOUT,
    PLAIN,
    Case,
    Net,
    Pace,
    beside,
    digits,
    error,
    measure,
    split,
    texts,
    train,
    wrong,
)
from scipy import sparse
from sklearn.decomposition import TruncatedSVD
from sklearn.metrics import average_precision_score
from torch import nn
from torch.nn import functional

from vicinal import losses
from vicinal.samplers import SlidingLossWindow, UnbiasedPruning
from vicinal.training import AdversarialSteps

# --- one class a row --------------------------------------------------------------------------------------------------


def noisy_digits(share):
    def prepare(data, seed):
        parts = digits(data, seed)
        generator = torch.Generator().manual_seed(1000 + seed)
        for number in (0, 1):  # the labels that stop training are as wrong as the others
            x, y = parts[number]
            flip = torch.rand(len(y), generator=generator) < share
            other = (y + torch.randint(1, 10, y.shape, generator=generator)) % 10
            parts[number] = (x, torch.where(flip, other, y))
        return parts[:3]

    return prepare


def fit_classes(rows, seed, *, decay, dropout, smoothing=0.0, loss=None, **hyper):
    """A loss of class scores in place of cross-entropy."""
    (x, y), valid, test = rows
    torch.manual_seed(seed)
    net = Net(x.shape[1], 10, dropout=dropout)
    criterion = losses.ClassLoss(loss, **hyper) if loss else nn.CrossEntropyLoss(label_smoothing=smoothing)
    lowest = train(net, x, y, lambda net, at, _: criterion(net(x[at]), y[at]), wrong(*valid), seed=seed, decay=decay)
    return lowest, {"error": error(net, *test)}


def named(loss, *own):
    return beside(*({"loss": loss, **each} for each in own))


ROBUST = {
    "plain": PLAIN,
    "comp_sum": named("comp_sum", {"tau": 1.4}, {"tau": 1.7}),
    "truncated_gce": named("truncated_gce", {"cutoff": 0.01}, {"cutoff": 0.05}),
    "symmetric_ce": named("symmetric_ce", {"beta": 0.5}, {"beta": 2.0}),
    "js_loss": named("js_loss", {"share": 0.3}, {"share": 0.7}),
    "normalized_ce": named("normalized_ce", {"passive": "rce"}, {"passive": "agce"}),
    "aldr_kl": named("aldr_kl", {"normalize": False}, {"normalize": True}),
}
CLEAN = {
    "plain": PLAIN,
    "comp_sum": named("comp_sum", {"tau": 0.7}, {"tau": 1.3}),
    "ldr_kl": named("ldr_kl", {"temperature": 0.5}, {"temperature": 2.0}),
    "ldr_k": named("ldr_k", {"k": 2}, {"k": 5}),
    "weston_watkins": named("weston_watkins", {"margin": 1.0}, {"margin": 4.0}),
    "z_loss": named("z_loss", {"sharpness": 1.0, "location": 2.0}, {"sharpness": 4.0, "location": 2.0}),
}


# --- two classes, several classes -------------------------------------------------------------------------------------


def signs(data, seed):
    table, x = texts(data, "vader_sentiment.parquet")
    tweets = (table["domain"] == "tweets").to_numpy()
    return split(x[tweets], torch.tensor((table["rating"][tweets] > 0).to_numpy()).float(), seed, 600, 500, 2500)


def fit_signs(rows, seed, *, decay, dropout, smoothing=0.0, form=None):
    """Margins of one score a row."""
    (x, y), valid, test = rows
    torch.manual_seed(seed)
    net = Net(x.shape[1], 1, dropout=dropout)
    generator = torch.Generator().manual_seed(seed)

    def loss(net, at, _):
        scores, target = net(x[at]), y[at, None]
        if form == "ensloss":
            return losses.ensloss(scores, target.long(), generator=generator)
        if form:
            return losses.margin_surrogate(scores, target.long(), form=form)
        return functional.binary_cross_entropy_with_logits(scores, target * (1 - smoothing) + smoothing / 2)

    def missed(part):
        return lambda net: ((net(part[0])[:, 0] > 0) != (part[1] > 0)).double().mean()

    lowest = train(net, x, y, loss, missed(valid), seed=seed, decay=decay)
    return lowest, {"error": measure(net, missed(test))}


WIDE = [{"decay": d, "dropout": p} for d, p in product((0.001, 0.01, 0.1, 0.3), DROPOUT)]
MARGINS = {"plain": PLAIN, "ensloss": [{**each, "form": "ensloss"} for each in WIDE]}
MARGINS["hinge"] = [{**each, "form": "hinge"} for each in WIDE]


def tags(data, seed):
    """Papers by who saved them, and the twenty commonest of their tags."""
    saved = pd.read_parquet(data / "retrieval" / "citeulike_t_interactions.parquet")
    tagged = pd.read_parquet(data / "retrieval" / "citeulike_t_tags.parquet")
    common = tagged["tag_id"].value_counts().index[:20]
    tagged = tagged[tagged["tag_id"].isin(common)]
    items = np.intersect1d(saved["item_id"].value_counts().loc[lambda n: n >= 8].index, tagged["item_id"].unique())
    saved, tagged = (each[each["item_id"].isin(items)] for each in (saved, tagged))
    at = np.searchsorted(items, saved["item_id"])
    counts = sparse.csr_matrix((np.ones(len(at)), (at, saved["user_id"])), shape=(len(items), 8000))
    x = TruncatedSVD(100, random_state=0).fit_transform(counts)
    x = torch.from_numpy((x - x.mean(0)) / x.std(0)).float()
    y = torch.zeros(len(items), 20)
    y[np.searchsorted(items, tagged["item_id"]), pd.Index(common).get_indexer(tagged["tag_id"])] = 1
    third = len(x) // 4
    return split(x, y, seed, third, third, len(x) - 2 * third)


def fit_tags(rows, seed, *, decay, dropout, smoothing=0.0, factor=None):
    (x, y), valid, test = rows
    torch.manual_seed(seed)
    net = Net(x.shape[1], y.shape[1], dropout=dropout)
    correlation = losses.label_phi(y)

    def loss(net, at, _):
        if factor:
            return losses.label_correlation(net(x[at]), y[at], correlation=correlation, factor=factor)
        return functional.binary_cross_entropy_with_logits(net(x[at]), y[at] * (1 - smoothing) + smoothing / 2)

    def lacking(part):
        return lambda net: 1 - average_precision_score(part[1].numpy(), net(part[0]).numpy(), average="macro")

    lowest = train(net, x, y, loss, lacking(valid), seed=seed, decay=decay)
    return lowest, {"1 - mean average precision": measure(net, lacking(test))}


# --- long tails -------------------------------------------------------------------------------------------------------


def long_tail(data, seed):
    """Classes of 200 rows down to 4, which ones by seed; validation and test rows count each class alike."""
    pool, valid, test, _ = digits(data, seed, 3000, 500)
    order = torch.randperm(10, generator=torch.Generator().manual_seed(seed))
    rows = [(pool[1] == int(k)).nonzero()[: round(200 * 50 ** (-rank / 9)), 0] for rank, k in enumerate(order)]
    some = torch.cat(rows)
    return (pool[0][some], pool[1][some]), valid, test, order[-3:]


def fit_tail(rows, seed, *, decay, dropout, weighted=False, within=None, smoothing=0.0):
    (x, y), valid, test, rare = rows
    torch.manual_seed(seed)
    net = Net(x.shape[1], 10, dropout=dropout)
    count = torch.bincount(y, minlength=10).float()
    criterion = nn.CrossEntropyLoss(weight=len(y) / (10 * count) if weighted else None, label_smoothing=smoothing)
    centers = nn.Embedding(10, 128)

    def loss(net, at, _):
        features = net.features(x[at])
        value = criterion(net.head(features), y[at])
        if within is None:
            return value
        return value + losses.neural_collapse(features, y[at], centers.weight, within=within, between=within)

    def balanced(part):
        def share(net):
            missed = (net(part[0]).argmax(1) != part[1]).double()
            return torch.stack([missed[part[1] == k].mean() for k in range(10)]).mean()

        return share

    lowest = train(net, x, y, loss, balanced(valid), seed=seed, decay=decay, epochs=60, extra=[centers])
    few = torch.isin(test[1], rare)
    return lowest, {"balanced error": measure(net, balanced(test)), "rarest three": error(net, *(t[few] for t in test))}


WEIGHTED = [{"weighted": True, "smoothing": 0.0}, {"weighted": True, "smoothing": 0.1}]
TAIL = {
    "plain": PLAIN,
    "class weights": beside(*WEIGHTED),
    "neural_collapse": beside({"within": 0.1}, {"within": 0.5}),
    "neural_collapse, class weights": beside(*({"weighted": True, "within": w} for w in (0.1, 0.5))),
}


# --- teachers ---------------------------------------------------------------------------------------------------------


def taught(data, seed):
    """A teacher of 2,500 rows; 300 of them with a label for the student, which has twelve hidden units."""
    big, valid, test, _ = digits(data, seed, 2500, 500)
    torch.manual_seed(seed)
    teacher = Net(196, 10, hidden=512, dropout=0.3)
    train(teacher, *big, lambda n, at, _: functional.cross_entropy(n(big[0][at]), big[1][at]), wrong(*valid),
          seed=seed, decay=0.1)  # fmt: skip
    return (big[0][:300], big[1][:300]), valid, test, teacher.eval()


def fit_taught(rows, seed, *, decay, dropout, smoothing=0.0, way=None, temperature=2.0, share=0.8):
    (x, y), valid, test, teacher = rows
    torch.manual_seed(seed)
    net = Net(x.shape[1], 10, hidden=12, dropout=dropout)
    with torch.no_grad():
        said, said_of_test = teacher(x), teacher(test[0])
    past = losses.SelfDistillation(len(x), 10, 60, share=share)

    def loss(net, at, epoch):
        scores, target = net(x[at]), y[at]
        value = functional.cross_entropy(scores, target, label_smoothing=smoothing)
        if way == "self":
            return past(scores, target, at, epoch=epoch)
        if way is None:
            return value
        value = value + losses.kl_top(scores, said[at], k=3 if way == "top" else None, temperature=temperature)
        if way == "sinkhorn":
            value = value + 0.0008 * losses.sinkhorn_distillation(scores, said[at], reduction="sum")
        return value

    lowest = train(net, x, y, loss, wrong(*valid), seed=seed, decay=decay, epochs=60, batch=50, rate=5e-3)
    with torch.no_grad():
        same = float((net.eval()(test[0]).argmax(1) == said_of_test.argmax(1)).double().mean())
    return lowest, {"error": error(net, *test), "unlike the teacher": 1 - same}


def warm(way):
    return beside(*({"way": way, "temperature": t} for t in (2.0, 4.0)))


TAUGHT = {"plain": PLAIN, "kl_top, all classes": warm("all"), "kl_top(k=3)": warm("top")}
TAUGHT |= {"sinkhorn_distillation": warm("sinkhorn")}
TAUGHT["SelfDistillation"] = beside({"way": "self", "share": 0.4}, {"way": "self", "share": 0.8})


# --- fewer rows -------------------------------------------------------------------------------------------------------


def fit_pruned(rows, seed, *, decay, dropout, smoothing=0.0, way="all", keep=1.0, epochs=40):
    """What is trained on differs by epoch; no stopping, and no best epoch. Seconds are of the processor."""
    (x, y), valid, test = rows[:3]
    torch.manual_seed(seed)
    net = Net(x.shape[1], 10, dropout=dropout)
    optimizer = torch.optim.AdamW(net.parameters(), lr=Pace.factor * 2e-3, weight_decay=decay)
    kinds = {"infobatch": lambda: UnbiasedPruning(len(x), epochs=epochs, keep=keep, seed=seed)}
    kinds["seta"] = lambda: SlidingLossWindow(len(x), epochs=epochs, window=keep, seed=seed)
    sampler = kinds[way]() if way in kinds else None
    generator = torch.Generator().manual_seed(seed)
    start, seen = time.process_time(), 0
    for _ in range(epochs if way != "short" else round(epochs * keep)):
        chosen = torch.tensor(list(sampler)) if sampler else torch.randperm(len(x), generator=generator)
        chosen = chosen[: round(keep * len(x))] if way == "random" else chosen
        for at in chosen.split(100):
            each = functional.cross_entropy(net(x[at]), y[at], reduction="none", label_smoothing=smoothing)
            weight = torch.ones(())
            if way == "infobatch":
                weight = torch.from_numpy(sampler.weights(at.numpy())).float()
            if sampler:
                sampler.record(at.numpy(), each.detach().numpy())
            optimizer.zero_grad()
            (weight * each).mean().backward()
            optimizer.step()
            seen += len(at)
    seconds = time.process_time() - start
    shares = {"rows trained on": seen / (epochs * len(x)), "seconds": seconds}
    return measure(net.eval(), wrong(*valid)), {"error": error(net, *test), **shares}


def fewer(way, keep):
    return [{**each, "way": way, "keep": keep} for each in PLAIN]


FEWER = {"plain": PLAIN, "short": fewer("short", 0.6), "random rows": fewer("random", 0.6)}
FEWER |= {"UnbiasedPruning": fewer("infobatch", 0.4), "SlidingLossWindow": fewer("seta", 0.5)}


# --- flat minima ------------------------------------------------------------------------------------------------------


def fit_flat(rows, seed, *, decay, dropout, smoothing=0.0, way=None, strength=0.0):
    (x, y), valid, test = rows
    torch.manual_seed(seed)
    net = Net(x.shape[1], 10, dropout=dropout)
    slow = copy.deepcopy(net)
    past = losses.TrajectoryLoss(len(x), 10, factor=strength) if way == "saf" else None

    def loss(net, at, epoch):
        scores = net(x[at])
        value = functional.cross_entropy(scores, y[at], label_smoothing=smoothing)
        if way == "saf":
            value = value + past(scores, at, epoch=epoch)
        if way == "mesa":
            with torch.no_grad():
                for mean, now in zip(slow.parameters(), net.parameters(), strict=True):
                    mean.lerp_(now, 0.005)
            if epoch >= 5:
                value = value + strength * losses.kl_top(scores, slow(x[at]), temperature=5.0)
        if way == "orthogonal":
            value = value + strength * losses.group_orthogonality(net.features[0].weight)
        return value

    steps = (lambda optimizer: AdversarialSteps(optimizer, radius=strength)) if way == "amp" else None
    lowest = train(net, x, y, loss, wrong(*valid), seed=seed, decay=decay, best=False, steps=steps, epochs=30)
    return lowest, {"error": error(net, *test), "sharpness": sharpness(net, x, y)}


def sharpness(net, x, y, radius=0.05):
    """How much the cross-entropy of training rows rises when each tensor moves uphill by 5 % of its length."""
    net = copy.deepcopy(net).eval()
    loss = functional.cross_entropy(net(x), y)
    slopes = torch.autograd.grad(loss, list(net.parameters()))
    with torch.no_grad():
        for weight, slope in zip(net.parameters(), slopes, strict=True):
            weight += radius * weight.norm() * slope / slope.norm().clamp(min=1e-12)
        return float(functional.cross_entropy(net(x), y) - loss)


def strong(way, *strengths):
    return beside(*({"way": way, "strength": strength} for strength in strengths))


FLAT = {"plain": PLAIN, "TrajectoryLoss (SAF)": strong("saf", 0.05, 0.16), "MESA": strong("mesa", 0.1, 0.3)}
FLAT |= {"AdversarialSteps (AMP)": strong("amp", 0.1, 0.5)}
FLAT["group_orthogonality"] = strong("orthogonal", 1e-4, 1e-2)


CASES = [
    Case(
        "labels, 40 % wrong",
        "bounded losses are moved less by wrong labels than cross-entropy",
        noisy_digits(0.4),
        fit_classes,
        ROBUST,
    ),
    Case(
        "labels, all right",
        "other losses of class scores are as good as cross-entropy",
        noisy_digits(0.0),
        fit_classes,
        CLEAN,
    ),
    Case(
        "two classes",
        "a loss drawn anew at each step needs no tuning and fits less to chance",
        signs,
        fit_signs,
        MARGINS,
    ),
    Case(
        "several classes a row",
        "labels that go together help one another",
        tags,
        fit_tags,
        {"plain": PLAIN, "label_correlation": beside({"factor": 0.1}, {"factor": 1.0})},
    ),
    Case("long tail", "rows near centers at equal angles: rare classes keep their place", long_tail, fit_tail, TAIL),
    Case(
        "a teacher",
        "a small student comes nearer to its teacher, and errs less, than by labels",
        taught,
        fit_taught,
        TAUGHT,
    ),
    Case("fewer rows an epoch", "fewer rows are trained on, at the error of all rows", digits, fit_pruned, FEWER),
    Case("flat minima", "weights that may move, and a lower error by it", noisy_digits(0.0), fit_flat, FLAT),
]
