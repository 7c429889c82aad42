"""Distillation: a sentence encoder's class scores into hashed words of width 8.

Books, by title and the first 200 characters of the synopsis, into 11 categories and into the 52 genres with at least 20
rows. Teacher: a linear softmax on frozen MiniLM vectors, trained on its own 35 % of the rows. Student: the sum of 8
numbers for each of 8192 hashed words, then a linear layer; it sees teacher scores of other rows, never a label. Every
loss gets the same optimizer, batches, learning rates (the best on validation counts) and early stopping on agreement.
One control needs no loss: the scores of the squares times a factor, chosen on validation so that the error of low
scores is that of "matching Exp 3, each class".

    python benchmarks/matching/distillation.py --data ../shared/data --cache runs/minilm-books.npy
"""

import copy
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from protocol import Clock, arguments, keep, markdown, paired, show, summary
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.model_selection import GroupShuffleSplit
from torch import nn
from torch.nn import functional

from vicinal import links, losses
from vicinal.encoders import MiniLMEncoder

EPOCHS, PATIENCE, BATCH, WIDTH, WORDS = 25, 5, 128, 8, 2**13
OVERLAP = 0.2 / 0.7  # test rows / rows that teacher or student are trained on
RATES = (0.03, 0.1, 0.3)
SQUARES, SELECTIVE, STRETCHED = "MSE on scores", "matching Exp 3, each class", "control: MSE times a factor"
METRICS = ["agreement", "agreement@3", "error_high", "error_low", "error_gap", "accuracy"]


def embed(texts, cache):
    """Frozen MiniLM vectors, kept in the file ``cache`` if one is given."""
    if cache is not None and cache.is_file():
        return torch.from_numpy(np.load(cache))
    frame = pd.DataFrame({"text": texts})
    encoder = MiniLMEncoder("text").fit(frame).eval()
    inputs = encoder.prepare(frame)
    order = np.argsort([len(text) for text in texts])
    vectors = torch.zeros(len(texts), encoder.dim)
    with torch.no_grad():
        for rows in torch.from_numpy(order).split(64):
            vectors[rows] = encoder(inputs.select(rows))
    if cache is not None:
        cache.parent.mkdir(parents=True, exist_ok=True)
        np.save(cache, vectors.numpy())
    return vectors


def split(groups, seed):
    """Positions: 35 % for the teacher, 35 % to train the student, 10 % validation, 20 % test; groups stay together."""
    left, parts = np.arange(len(groups)), []
    for share in (0.2, 0.1 / 0.8, 0.5):
        rest, taken = next(GroupShuffleSplit(1, test_size=share, random_state=seed).split(left, groups=groups[left]))
        parts.append(left[taken])
        left = left[rest]
    test, validation, student = parts
    return left, student, validation, test


def teach(x, labels, rows, seed):
    """Scores ``[n, K]`` of a linear softmax on ``x``, trained on ``rows``: each row has mean 0."""
    torch.manual_seed(seed)
    model = nn.Linear(x.shape[1], int(labels.max()) + 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=60, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        value = functional.cross_entropy(model(x[rows]), labels[rows]) + 3e-4 * (model.weight**2).sum()
        value.backward()
        return value

    optimizer.step(closure)
    with torch.no_grad():
        scores = model(x)
    return scores - scores.mean(1, keepdim=True)


class Bags:
    """Sparse rows of word counts, as what an EmbeddingBag takes."""

    def __init__(self, counts):
        self.counts = counts

    def select(self, rows):
        """Indices, offsets and weights of some rows."""
        part = self.counts[rows]
        return (
            torch.from_numpy(part.indices.astype(np.int64)),
            torch.from_numpy(part.indptr[:-1].astype(np.int64)),
            torch.from_numpy(part.data.astype(np.float32)),
        )


class Student(nn.Module):
    """Hashed words, 8 numbers each, then class scores."""

    def __init__(self, classes):
        super().__init__()
        self.words = nn.EmbeddingBag(WORDS, WIDTH, mode="sum")
        self.scores = nn.Linear(WIDTH, classes)
        nn.init.normal_(self.words.weight, std=0.3)

    def forward(self, bags):
        """Class scores ``[b, K]``."""
        return self.scores(self.words(bags[0], bags[1], per_sample_weights=bags[2]))


def methods(unit, floor):
    """Name -> loss of student and teacher scores in ``unit``s; the teacher's scores below ``floor`` are low ones."""
    high = links.design("high", ratio=3.0, cap=4.0)
    own = 1 / unit  # the temperature that gives the teacher's own probabilities
    return {
        SQUARES: losses.DecomposedMatchingLoss(links.Identity()),
        "KL, temperature 1": losses.SoftmaxMatchingLoss(gamma=own),
        "KL, temperature 3": losses.SoftmaxMatchingLoss(gamma=3 * own),
        "composite CE, clipped": losses.CompositeSoftmaxCrossEntropy(links.SmeLUGrad(0.5, shift=floor), own),
        "re-weighted MSE, Exp 3": lambda s, t: (high.slope(t) * (s - t) ** 2).sum(-1).mean() / 2,
        SELECTIVE: losses.DecomposedMatchingLoss(high),
        "matching softmax, clipped": losses.DistillationMatchingLoss(floor, 0.5, own),
        "matching softmax, Sigmoid": losses.CompositeSoftmaxMatchingLoss(links.Sigmoid(2.0, shift=floor), own),
        "matching softmax, Exp 0.5": losses.CompositeSoftmaxMatchingLoss(links.Exp(0.5), own),
        "matching softmax, Exp 0.5, temperature 3": losses.CompositeSoftmaxMatchingLoss(links.Exp(0.5), 3 * own),
    }


FREE_LEVEL = ("KL, temperature 1", "KL, temperature 3", "composite CE, clipped")
PAIRS = [
    (SELECTIVE, SQUARES),
    (SELECTIVE, STRETCHED),
    (SELECTIVE, "re-weighted MSE, Exp 3"),
    ("matching softmax, clipped", "KL, temperature 1"),
    ("matching softmax, clipped", "composite CE, clipped"),
    ("matching softmax, Sigmoid", "KL, temperature 1"),
    ("matching softmax, Exp 0.5", "KL, temperature 1"),
    ("matching softmax, Exp 0.5, temperature 3", "KL, temperature 3"),
    ("matching softmax, Exp 0.5", SQUARES),
]


def fit(loss, rate, seed, bags, teacher, train, validation):
    """Train until the agreement on validation stops growing; that agreement and the best student."""
    torch.manual_seed(seed)
    model = Student(teacher.shape[1])
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    generator = np.random.default_rng(seed)
    watched, top = bags.select(validation), teacher[validation].argmax(1)
    best, kept, waited = -1.0, None, 0
    for _ in range(EPOCHS):
        for rows in np.array_split(generator.permutation(train), round(len(train) / BATCH)):
            optimizer.zero_grad()
            loss(model(bags.select(rows)), teacher[rows]).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
        with torch.no_grad():
            now = (model(watched).argmax(1) == top).double().mean().item()
        if now > best:
            best, kept, waited = now, copy.deepcopy(model), 0
        elif (waited := waited + 1) >= PATIENCE:
            break
    return best, kept


def measure(scores, teacher, labels, edge):
    """Agreement with the teacher, and root mean squared errors of scores above and below ``edge``."""
    wrong, high = (scores - teacher) ** 2, teacher >= edge
    top, first = teacher.topk(2, dim=1).indices, scores.argmax(1)
    gaps = [part.gather(1, top) @ torch.tensor([1.0, -1.0]) for part in (scores, teacher)]
    return {
        "agreement": (first == top[:, 0]).double().mean().item(),
        "agreement@3": (scores.topk(3, dim=1).indices == top[:, :1]).any(1).double().mean().item(),
        "error_high": wrong[high].mean().sqrt().item(),
        "error_low": wrong[~high].mean().sqrt().item(),
        "error_gap": (gaps[0] - gaps[1]).square().mean().sqrt().item(),
        "accuracy": (first == labels).double().mean().item(),
    }


def factor_of(squares, selective, teacher, edge):
    """The factor that gives the squares' scores the error below ``edge`` that the selective ones have."""
    low = teacher < edge
    wanted = (selective - teacher)[low].square().mean()
    factors = np.linspace(1, 4, 301)
    return min(factors, key=lambda c: abs((c * squares - teacher)[low].square().mean() - wanted))


def study(name, labels, groups, vectors, bags, seeds, clock):
    """Records of every method and seed."""
    labels = torch.from_numpy(labels)
    records = []
    for seed in range(seeds):
        own, train, validation, test = split(groups, seed)
        teacher = teach(vectors, labels, own, seed)
        right = (teacher[test].argmax(1) == labels[test]).double().mean().item()
        unit = teacher[train].std().item()
        teacher = teacher / unit
        classes = teacher.shape[1]
        edge = teacher[train].flatten().kthvalue(round(0.9 * len(train) * classes)).values.item()
        on_test, on_validation, chosen = {}, {}, {}
        for method, loss in methods(unit, floor=0.0).items():
            fits = [(*fit(loss, rate, seed, bags, teacher, train, validation), rate) for rate in RATES]
            _, model, chosen[method] = max(fits, key=lambda found: found[0])
            with torch.no_grad():
                scores = [model(bags.select(rows)) for rows in (test, validation)]
            if method in FREE_LEVEL:
                scores = [part - part.mean(1, keepdim=True) for part in scores]
            on_test[method], on_validation[method] = scores
        factor = factor_of(on_validation[SQUARES], on_validation[SELECTIVE], teacher[validation], edge)
        on_test[STRETCHED], chosen[STRETCHED] = on_test[SQUARES] * factor, chosen[SQUARES]
        for method, scores in on_test.items():
            row = {"data": name, "method": method, "seed": seed, "rate": chosen[method], "teacher": right}
            records.append({**row, **measure(scores, teacher[test], labels[test], edge)})
        clock.say(f"{name}: seed {seed}, teacher's accuracy {right:.3f}, unit {unit:.2f}, high from {edge:.2f}")
    return pd.DataFrame(records)


def main():
    parser = arguments(__doc__)
    parser.add_argument("--cache", type=Path, help="a .npy file to keep the MiniLM vectors in between runs")
    given = parser.parse_args()
    clock = Clock()
    table = pd.read_parquet(given.data / "text" / "book_prices.parquet")
    texts = (table["title"] + ". " + table["synopsis"].str[:200]).tolist()
    vectors = embed(texts, given.cache)
    clock.say("texts are embedded")
    words = HashingVectorizer(n_features=WORDS, alternate_sign=False, stop_words="english").transform(texts)
    groups, size = table["synopsis"].factorize()[0], table["genre"].map(table["genre"].value_counts())
    for name, column, rows in (("categories", "category", size > 0), ("genres", "genre", size >= 20)):
        rows = np.flatnonzero(rows)
        labels = table[column].iloc[rows].factorize()[0]
        records = study(name, labels, groups[rows], vectors[rows], Bags(words[rows]), given.seeds, clock)
        tests = paired(records, PAIRS, ["agreement", "error_high", "error_gap"], OVERLAP)
        keep(records, given.out, f"matching-distillation-{name}.csv")
        keep(tests, given.out, f"matching-distillation-{name}-tests.csv")
        print(markdown(summary(records, METRICS)), markdown(show(tests)), sep="\n\n", flush=True)


if __name__ == "__main__":
    main()
