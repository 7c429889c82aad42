"""Experiments for losses.py, one a claim: data of a seed, methods with their settings, and a fit that is measured.

Networks have one hidden layer; each method has as many settings as the plain baseline, and the one of the lowest
validation error is taken. ``fit`` returns that error and what is measured on test rows.
"""

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy import sparse
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import average_precision_score
from sklearn.neighbors import NearestNeighbors
from torch import nn
from torch.nn import functional

from vicinal import losses
from vicinal.samplers import SlidingLossWindow, UnbiasedPruning
from vicinal.training import AdversarialSteps

WEIGHT_DECAY, DROPOUT, SMOOTHING = (0.01, 0.3), (0.0, 0.3), (0.0, 0.1)
PLAIN = [{"decay": d, "dropout": p, "smoothing": s} for d, p, s in product(WEIGHT_DECAY, DROPOUT, SMOOTHING)]


def beside(*own):
    """Settings of a method: its own two or so, each with the weight decays and dropouts of the baseline."""
    return [{"decay": d, "dropout": p, **each} for d, p, each in product(WEIGHT_DECAY, DROPOUT, own)]


def measured(results, key):
    """The one measure that is there."""
    return {key: float(results)}


@dataclass
class Case:
    """An experiment: ``prepare(data folder, seed)`` gives its rows, ``fit(rows, seed, **settings)`` one result."""

    name: str
    claim: str
    prepare: Callable
    fit: Callable
    methods: dict[str, list[dict]]
    seeds: int = 10
    plain: tuple[str, ...] = ("plain",)
    notes: dict[str, str] = field(default_factory=dict)


class Net(nn.Module):
    """One hidden layer."""

    def __init__(self, dim, outputs, hidden=128, dropout=0.0):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Dropout(dropout))
        self.head = nn.Linear(hidden, outputs)

    def forward(self, x):
        return self.head(self.features(x))


def train(net, x, y, loss, valid, *, seed, decay, epochs=30, batch=100, rate=2e-3, best=True, extra=(), steps=None):
    """Train ``net``; ``loss(net, rows, epoch)`` of a batch's row numbers; the epoch of the lowest ``valid(net)``."""
    parameters = [*net.parameters(), *(p for module in extra for p in module.parameters())]
    optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=decay)
    step = steps(optimizer) if steps else None
    generator = torch.Generator().manual_seed(seed)
    lowest, state = math.inf, None
    for epoch in range(epochs):
        net.train()
        for rows in torch.randperm(len(x), generator=generator).split(batch):
            if len(rows) < 4:
                continue
            if step is not None:
                step.step(lambda rows=rows, epoch=epoch: loss(net, rows, epoch))
                continue
            optimizer.zero_grad()
            loss(net, rows, epoch).backward()
            optimizer.step()
        if best or epoch == epochs - 1:
            now = measure(net, valid)
            if now < lowest or state is None:
                lowest, state = now, copy.deepcopy(net.state_dict())
    net.load_state_dict(state)
    return lowest


@torch.no_grad()
def measure(net, how):
    net.eval()
    return float(how(net))


def wrong(x, y):
    """The share of wrong rows, with a hundredth of the cross-entropy to settle ties."""
    return lambda net: float((net(x).argmax(1) != y).double().mean()) + 1e-4 * float(functional.cross_entropy(net(x), y))


@torch.no_grad()
def error(net, x, y):
    net.eval()
    return float((net(x).argmax(1) != y).double().mean())


# --- data -------------------------------------------------------------------------------------------------------------


def digits(data, seed, train_rows=1000, valid_rows=500, more=0):
    """Photos of digits as 14 x 14 numbers; training, validation, test rows and perhaps more."""
    file = np.load(data / "images" / "mnist5k.npz")
    images = torch.from_numpy(file["images"]).float()[:, None] / 255
    x = functional.avg_pool2d(images, 2).flatten(1)
    y = torch.from_numpy(file["label"]).long()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    cuts = np.cumsum([train_rows, valid_rows, more])
    parts = [order[: cuts[0]], order[cuts[0] : cuts[1]], order[cuts[2] :], order[cuts[1] : cuts[2]]]
    return [(x[part], y[part]) for part in parts]


_TEXTS = {}


def texts(data, file, dim=100):
    """Rows of a file of texts, and their n-grams of characters as ``dim`` numbers of deviation 1."""
    key = (file, dim)
    if key not in _TEXTS:
        table = pd.read_parquet(data / "text" / file)
        table = table.dropna(subset="text").drop_duplicates("text").reset_index(drop=True)
        grams = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), min_df=5, sublinear_tf=True)
        vectors = TruncatedSVD(dim, random_state=0).fit_transform(grams.fit_transform(table["text"]))
        vectors = (vectors - vectors.mean(0)) / vectors.std(0)
        _TEXTS[key] = table, torch.from_numpy(vectors).float()
    return _TEXTS[key]


def split(x, y, seed, *sizes):
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    ends = np.cumsum(sizes)
    return [(x[part], y[part]) for part in order[: ends[-1]].tensor_split(torch.from_numpy(ends[:-1]))]


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
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=decay)
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
    """How much the cross-entropy of training rows rises when weights move uphill by 5 % of the length of each tensor."""
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


# --- several guesses, partition, outliers -----------------------------------------------------------------------------


def halves(data, seed):
    """The upper half of a digit, and its two lower quarters, which are guessed."""
    parts = digits(data, seed, 1000, 500)[:3]
    return [(x.view(-1, 14, 14)[:, :7].flatten(1), quarters(x)) for x, _ in parts]


def quarters(x):
    lower = x.view(-1, 14, 14)[:, 7:]
    return torch.stack([lower[:, :, :7].flatten(1), lower[:, :, 7:].flatten(1)], dim=1)[:, :, None]  # [n, 2, 1, 49]


def fit_guesses(rows, seed, *, way, decay=0.01, dropout=0.0, count=5):
    (x, y), valid, test = rows
    if way == "near":
        near = NearestNeighbors(n_neighbors=count).fit(x.numpy())

        def guess(part):
            return y[torch.from_numpy(near.kneighbors(part.numpy())[1])].transpose(1, 2)  # [n, 2, K, 1, 49]

        return guessed(guess, *valid)[0], dict(zip(GUESSED, guessed(guess, *test), strict=True))
    torch.manual_seed(seed)
    net = Net(x.shape[1], 2 * count * 49, hidden=256, dropout=dropout)

    def guess_of(net):
        return lambda part: net(part).view(len(part), 2, count, 1, 49)

    def loss(net, at, _):
        guesses, target = guess_of(net)(x[at]), y[at]
        if way == "mean":
            return losses.guess_errors(guesses.flatten(0, 1), target.flatten(0, 1)).mean()
        if way == "apart":
            return losses.best_of_k(guesses.flatten(0, 1), target.flatten(0, 1), joint=0.0)
        pairs = zip(guesses, target, strict=True)
        return torch.stack([losses.best_of_k(one, truth, joint=1.0) for one, truth in pairs]).mean()

    lowest = train(net, x, y, loss, lambda net: guessed(guess_of(net), *valid)[0], seed=seed, decay=decay, epochs=20)
    with torch.no_grad():
        results = guessed(guess_of(net.eval()), *test)
    return lowest, dict(zip(GUESSED, results, strict=True))


GUESSED = ("error of the best guesses", "both quarters by one guess")


def guessed(guess, x, y):
    errors = torch.stack([losses.guess_errors(one, truth) for one, truth in zip(guess(x), y, strict=True)])  # [n, 2, K]
    return float(errors.amin(2).mean()), float(errors.mean(1).amin(1).mean())


GUESSES = {name: [{"way": way, "decay": d, "dropout": p} for d, p in product(WEIGHT_DECAY, DROPOUT)]
           for name, way in (("plain", "mean"), ("best_of_k(joint=0)", "apart"), ("best_of_k(joint=1)", "joint"))}  # fmt: skip
GUESSES["5 nearest rows"] = [{"way": "near"}]


def densities(data, seed):
    """Two principal components of the digits, whose density is to be learned."""
    pool, valid, test, _ = digits(data, seed, 1500, 500)
    mean = pool[0].mean(0)
    plane = torch.linalg.svd(pool[0] - mean, full_matrices=False)[2][:2].T
    parts = [(x - mean) @ plane for x, _ in (pool, valid, test)]
    scale = parts[0].std(0)
    return [part / scale for part in parts]


def fit_density(rows, seed, *, way, rate=1.0, speed=1e-3, draws=8):
    x, valid, test = rows
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(2, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))
    noise = torch.distributions.Normal(torch.zeros(2), torch.full((2,), 1.5))
    average = losses.MovingPartition(rate=rate)
    axis = torch.linspace(-6, 6, 121)
    grid = torch.cartesian_prod(axis, axis)

    def loss(net, at, _):
        drawn = noise.sample((draws,))
        log_q = noise.log_prob(drawn).sum(-1)
        if way == "logistic":  # noise-contrastive estimation
            ratios = net(x[at])[:, 0] - noise.log_prob(x[at]).sum(-1) + math.log(len(at) / draws)
            others = net(drawn)[:, 0] - log_q + math.log(len(at) / draws)
            each = torch.cat([functional.softplus(-ratios), functional.softplus(others)])
            return each.mean()
        return average(net(x[at])[:, 0], net(drawn)[:, 0], log_q)

    def unlikely(part):
        return lambda net: (net(grid)[:, 0].logsumexp(0) + 2 * math.log(0.1)) - net(part).mean()

    lowest = train(net, x, x, loss, unlikely(valid), seed=seed, decay=0.01, rate=speed, epochs=60)
    return lowest, {"negative log-likelihood": measure(net, unlikely(test))}


SPEEDS = (3e-4, 1e-3, 3e-3, 1e-2)
PARTITION = {"plain": [{"way": "logistic", "speed": s} for s in SPEEDS]}
PARTITION["without memory"] = [{"way": "average", "rate": 1.0, "speed": s} for s in SPEEDS]
PARTITION["MovingPartition"] = [{"way": "average", "rate": r, "speed": s} for r, s in product((0.03, 0.1), SPEEDS[1:3])]


def outlying(data, seed):
    """Ratings of tweets; a tenth of the labels of training and validation are moved by five deviations."""
    table, x = texts(data, "vader_sentiment.parquet")
    tweets = (table["domain"] == "tweets").to_numpy()
    rating = table["rating"][tweets]
    y = torch.tensor(((rating - rating.mean()) / rating.std()).to_numpy()).float()
    parts = split(x[tweets], y, seed, 1000, 500, 2000)
    generator = torch.Generator().manual_seed(1000 + seed)
    for number in (0, 1):
        x, y = parts[number]
        off = 5.0 * (torch.rand(len(y), generator=generator) < 0.1) * torch.randn(len(y), generator=generator).sign()
        parts[number] = (x, y + off)
    return parts


def fit_number(rows, seed, *, decay, dropout, way="squared", c=1.0):
    (x, y), valid, test = rows
    torch.manual_seed(seed)
    net = Net(x.shape[1], 1, dropout=dropout)
    kinds = {"squared": functional.mse_loss, "absolute": functional.l1_loss, "pseudo": losses.PseudoHuberLoss(c)}
    kinds["huber"] = nn.HuberLoss(delta=c)
    criterion = kinds[way]
    absolute = lambda part: lambda net: (net(part[0])[:, 0] - part[1]).abs().mean()  # noqa: E731
    loss = lambda net, at, _: criterion(net(x[at])[:, 0], y[at])  # noqa: E731
    lowest = train(net, x, y, loss, absolute(valid), seed=seed, decay=decay)
    with torch.no_grad():
        gap = (net.eval()(test[0])[:, 0] - test[1]).square().mean() / test[1].var()
    return lowest, {"squared error over variance": float(gap), "absolute error": measure(net, absolute(test))}


NUMBERS = {"plain": [{**each, "way": "squared"} for each in WIDE]}
NUMBERS |= {"absolute error": [{**each, "way": "absolute"} for each in WIDE]}
for shown, kind in (("Huber", "huber"), ("PseudoHuberLoss", "pseudo")):
    NUMBERS[shown] = beside({"way": kind, "c": 0.3}, {"way": kind, "c": 1.0})


# --- other domains, ensembles, adversaries, views ---------------------------------------------------------------------


def domains(data, seed):
    """Three domains of texts train, the fourth (by seed) tests."""
    table, x = texts(data, "vader_sentiment.parquet")
    y = torch.tensor((table["rating"] > 0).to_numpy()).long()
    names = ["tweets", "amazon", "movie", "nyt"]
    away = names[seed % 4]
    inside = torch.tensor((table["domain"] != away).to_numpy())
    parts = split(x[inside], y[inside], seed, 1500, 500)
    return [*parts, (x[~inside], y[~inside])]


def fit_domains(rows, seed, *, decay, dropout, smoothing=0.0, factor=None):
    (x, y), valid, test = rows
    torch.manual_seed(seed)
    net = Net(x.shape[1], 2, dropout=dropout)
    rationale = losses.RationaleInvariance(2, 128, factor=factor or 0.0)

    def loss(net, at, _):
        features = net.features(x[at])
        value = functional.cross_entropy(net.head(features), y[at], label_smoothing=smoothing)
        return value + rationale(features, y[at], net.head.weight) if factor else value

    lowest = train(net, x, y, loss, wrong(*valid), seed=seed, decay=decay)
    return lowest, {"error, another domain": error(net, *test)}


def few_labels(data, seed):
    labelled, valid, test, more = digits(data, seed, 300, 500, more=1000)
    return labelled, valid, test, more[0]


def fit_members(rows, seed, *, decay, dropout, smoothing=0.0, strength=None, members=4):
    """Members one after the other, each unlike those before it on rows without labels."""
    (x, y), valid, test, more = rows
    before, scores = [], {"valid": [], "test": []}
    for member in range(members):
        torch.manual_seed(100 * seed + member)
        net = Net(x.shape[1], 10, dropout=dropout)

        def loss(net, at, _, before=before):
            value = functional.cross_entropy(net(x[at]), y[at], label_smoothing=smoothing)
            if strength and before:
                some = torch.randint(len(more), (100,))
                said = torch.stack([each[some] for each in before])
                value = value + losses.member_diversity(net(more[some]), said, strength=strength)
            return value

        train(net, x, y, loss, wrong(*valid), seed=100 * seed + member, decay=decay, epochs=20, batch=50)
        with torch.no_grad():
            net.eval()
            before.append(net(more))
            for name, part in (("valid", valid), ("test", test)):
                scores[name].append(net(part[0]).softmax(1))
    mean = {name: torch.stack(each).mean(0) for name, each in scores.items()}
    missed = {name: float((mean[name].argmax(1) != part[1]).double().mean()) for name, part in (("valid", valid), ("test", test))}  # noqa: E501
    surprise = float(functional.nll_loss(mean["test"].log(), test[1]))
    return missed["valid"], {"error of the mean": missed["test"], "its log-loss": surprise}


def attacked(net, x, y, radius=0.1, steps=10):
    """Inputs moved by at most ``radius`` each so that cross-entropy rises."""
    offset = torch.zeros_like(x)
    for _ in range(steps):
        offset.requires_grad_()
        (slope,) = torch.autograd.grad(functional.cross_entropy(net(x + offset), y), offset)
        offset = (offset.detach() + 2.5 * radius / steps * slope.sign()).clamp(-radius, radius)
    return (x + offset).detach()


def fit_attacked(rows, seed, *, decay, dropout, smoothing=0.0, way=None, strength=1.0):
    (x, y), valid, test = rows
    torch.manual_seed(seed)
    net = Net(x.shape[1], 10, dropout=dropout)

    def loss(net, at, _):
        inputs, target = x[at], y[at]
        if way == "smooth":
            worst = losses.worst_inputs(net, inputs, target, radius=0.1, steps=3)
            return losses.smooth_adversarial(net(inputs), target, perturbed=net(worst), nu=strength)
        if way == "adversarial":
            inputs = attacked(net, inputs, target, steps=3)
        return functional.cross_entropy(net(inputs), target, label_smoothing=smoothing)

    def under(part):
        def share(net):
            with torch.enable_grad():
                moved = attacked(net, *part)
            return (net(moved).argmax(1) != part[1]).double().mean()

        return share

    small = tuple(each[:200] for each in valid)
    lowest = train(net, x, y, loss, under(small), seed=seed, decay=decay, epochs=20, best=False)
    return lowest, {"error, attacked": measure(net, under(test)), "error": error(net, *test)}


ATTACKED = {"plain": PLAIN, "adversarial training": [{**each, "way": "adversarial"} for each in PLAIN]}
ATTACKED["smooth_adversarial"] = [{"way": "smooth", "strength": nu, "decay": d, "dropout": 0.0}
                                  for nu, d in product((0.1, 0.3, 1.0, 3.0), WEIGHT_DECAY)]  # fmt: skip


def fit_views(rows, seed, *, way, strength=1.0, decay=0.01, rate=1e-3):
    """Embeddings of two noisy views without labels, read by a linear classifier of 100 labels."""
    _, valid, test, (x, _) = rows
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(196, 256), nn.ReLU(), nn.Linear(256, 32))
    contrast = losses.EmbeddingLoss("nt_xent", temperature=strength)

    def view(batch):
        shift = torch.randint(-1, 2, (2,)).tolist()
        moved = torch.roll(batch.view(-1, 14, 14), shift, (1, 2)).flatten(1)
        return moved * (torch.rand_like(moved) > 0.3)

    def loss(net, at, _):
        one, other = net(view(x[at])), net(view(x[at]))
        if way == "vicreg":
            return losses.vicreg(one, other, covariance=strength)
        if way == "contrast":
            return contrast(torch.cat([one, other]), torch.arange(len(at)).repeat(2))
        trees = losses.t_regs(one, factor=strength) + losses.t_regs(other, factor=strength)
        return (one - other).square().sum(1).mean() + trees

    def read(part):
        def share(net):
            features, labels = net(valid[0][:100]), valid[1][:100]
            mean, deviation = features.mean(0), features.std(0).clamp(min=1e-6)
            wide = [torch.cat([(net(each) - mean) / deviation, torch.ones(len(each), 1)], 1) for each in (valid[0][:100], part[0])]
            target = functional.one_hot(labels, 10).float()
            weights = torch.linalg.solve(wide[0].T @ wide[0] + 10 * torch.eye(33), wide[0].T @ target)
            return ((wide[1] @ weights).argmax(1) != part[1]).double().mean()

        return share

    rest = (valid[0][100:], valid[1][100:])
    lowest = train(net, x, x, loss, read(rest), seed=seed, decay=decay, rate=rate, epochs=20)
    with torch.no_grad():
        centered = net(test[0]) - net(test[0]).mean(0)
        shares = torch.linalg.svdvals(centered).square()
        shares = shares / shares.sum()
    rank = float((-(shares * shares.clamp(min=1e-12).log()).sum()).exp())
    return lowest, {"error of the reader": measure(net, read(test)), "effective rank": rank}


def viewed(way, *strengths):
    return [{"way": way, "strength": s, "rate": r} for s, r in product(strengths, (1e-3, 3e-3))]


VIEWS = {"vicreg": viewed("vicreg", 1.0, 5.0, 25.0), "nt_xent": viewed("contrast", 0.1, 0.2, 0.5)}
VIEWS["t_regs"] = viewed("tree", 0.5, 2.0, 8.0)


def views(data, seed):
    return digits(data, seed, 10, 500, more=2000)


def fit_binary(rows, seed, *, decay, dropout, smoothing=0.0, strength=None):
    """The weights of the hidden layer become a sign and one number a unit after training."""
    (x, y), valid, test = rows
    torch.manual_seed(seed)
    net = Net(x.shape[1], 10, dropout=dropout)
    first = net.features[0].weight

    def loss(net, at, epoch):
        value = functional.cross_entropy(net(x[at]), y[at], label_smoothing=smoothing)
        if strength:
            value = value + strength * epoch / 60 * losses.cauchy_schwarz(first, scale_free=True)
        return value

    def rounded(part):
        def share(net):
            short = copy.deepcopy(net)
            weight = short.features[0].weight
            weight.copy_(weight.sign() * weight.abs().mean(1, keepdim=True))
            return (short(part[0]).argmax(1) != part[1]).double().mean()

        return share

    lowest = train(net, x, y, loss, rounded(valid), seed=seed, decay=decay, epochs=60)
    return lowest, {"error, binary weights": measure(net, rounded(test)), "error before": error(net, *test)}


CASES = [
    Case("labels, 40 % wrong", "bounded losses are moved less by wrong labels than cross-entropy",
         noisy_digits(0.4), fit_classes, ROBUST),
    Case("labels, all right", "other losses of class scores are as good as cross-entropy",
         noisy_digits(0.0), fit_classes, CLEAN),
    Case("two classes", "a loss drawn anew at each step needs no tuning and fits less to chance",
         signs, fit_signs, MARGINS),
    Case("several classes a row", "labels that go together help one another",
         tags, fit_tags, {"plain": PLAIN, "label_correlation": beside({"factor": 0.1}, {"factor": 1.0})}),
    Case("long tail", "rows near centers at equal angles: rare classes keep their place",
         long_tail, fit_tail, TAIL),
    Case("a teacher", "a small student comes nearer to its teacher, and errs less, than by labels",
         taught, fit_taught, TAUGHT),
    Case("fewer rows an epoch", "fewer rows are trained on, at the error of all rows",
         digits, fit_pruned, FEWER),
    Case("flat minima", "weights that may move, and a lower error by it",
         noisy_digits(0.0), fit_flat, FLAT),
    Case("several guesses", "one of five guesses is near; and one that fits all parts together",
         halves, fit_guesses, GUESSES, 5),
    Case("a density", "an average over steps takes the bias away that few noise rows give the partition",
         densities, fit_density, PARTITION),
    Case("outlying labels", "labels far off pull no harder than others",
         outlying, fit_number, NUMBERS),
    Case("another domain", "rows of a class that come to their scores alike carry over to another domain",
         domains, fit_domains, {"plain": PLAIN, "RationaleInvariance": beside({"factor": 0.01}, {"factor": 0.1})}, 12),
    Case("an ensemble", "members unlike those before them make a better mean",
         few_labels, fit_members, {"plain": PLAIN, "member_diversity": beside({"strength": 1.0}, {"strength": 10.0})}),
    Case("an adversary", "scores whose gaps do not move with the inputs withstand an attack",
         noisy_digits(0.0), fit_attacked, ATTACKED, 5),
    Case("two views", "rows far from one another by their tree fill all dimensions",
         views, fit_views, VIEWS, 10, ("vicreg", "nt_xent")),
    Case("binary weights", "weights that are trained towards two values lose less when they are rounded to two",
         noisy_digits(0.0), fit_binary, {"plain": PLAIN, "cauchy_schwarz": beside({"strength": 0.01}, {"strength": 0.1})}),
]  # fmt: skip
