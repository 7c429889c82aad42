"""Experiments for losses.py with numbers, domains, ensembles, adversaries, views and weights; see losses_cases.py."""

import copy
import math
from itertools import product

import torch
from losses_cases import WIDE, noisy_digits
from losses_training import (
    DROPOUT,
    PLAIN,
    WEIGHT_DECAY,
    Case,
    Net,
    beside,
    digits,
    error,
    measure,
    split,
    texts,
    train,
    wrong,
)
from sklearn.neighbors import NearestNeighbors
from torch import nn
from torch.nn import functional

from vicinal import losses

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


GUESSES = {
    name: [{"way": way, "decay": d, "dropout": p} for d, p in product(WEIGHT_DECAY, DROPOUT)]
    for name, way in (("plain", "mean"), ("best_of_k(joint=0)", "apart"), ("best_of_k(joint=1)", "joint"))
}
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
    absolute = lambda part: lambda net: (net(part[0])[:, 0] - part[1]).abs().mean()
    loss = lambda net, at, _: criterion(net(x[at])[:, 0], y[at])
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
    missed = {
        name: float((mean[name].argmax(1) != part[1]).double().mean())
        for name, part in (("valid", valid), ("test", test))
    }
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
            wide = [
                torch.cat([(net(each) - mean) / deviation, torch.ones(len(each), 1)], 1)
                for each in (valid[0][:100], part[0])
            ]
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
    Case(
        "several guesses",
        "one of five guesses is near; and one that fits all parts together",
        halves,
        fit_guesses,
        GUESSES,
        5,
    ),
    Case(
        "a density",
        "an average over steps takes the bias away that few noise rows give the partition",
        densities,
        fit_density,
        PARTITION,
    ),
    Case("outlying labels", "labels far off pull no harder than others", outlying, fit_number, NUMBERS),
    Case(
        "another domain",
        "rows of a class that come to their scores alike carry over to another domain",
        domains,
        fit_domains,
        {"plain": PLAIN, "RationaleInvariance": beside({"factor": 0.01}, {"factor": 0.1})},
        12,
    ),
    Case(
        "an ensemble",
        "members unlike those before them make a better mean",
        few_labels,
        fit_members,
        {"plain": PLAIN, "member_diversity": beside({"strength": 1.0}, {"strength": 10.0})},
    ),
    Case(
        "an adversary",
        "scores whose gaps do not move with the inputs withstand an attack",
        noisy_digits(0.0),
        fit_attacked,
        ATTACKED,
        5,
    ),
    Case(
        "two views",
        "rows far from one another by their tree fill all dimensions",
        views,
        fit_views,
        VIEWS,
        10,
        ("vicreg", "nt_xent"),
    ),
    Case(
        "binary weights",
        "weights that are trained towards two values lose less when they are rounded to two",
        noisy_digits(0.0),
        fit_binary,
        {"plain": PLAIN, "cauchy_schwarz": beside({"strength": 0.01}, {"strength": 0.1})},
    ),
]
