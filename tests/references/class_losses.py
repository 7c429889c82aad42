"""Losses of class scores in numpy, a row and a class at a time: ``f(scores [K], target, **settings) -> number``."""

import numpy as np


def lse(x):
    x = np.asarray(x, float)
    return x.max() + np.log(np.exp(x - x.max()).sum())


def softmax(x):
    return np.exp(x - lse(x))


def softplus(x):
    return np.logaddexp(0, x)


def gaps(s, y, margin):
    return np.array([0.0 if k == y else s[k] - s[y] + margin for k in range(len(s))])


def comp_sum(s, y, tau=1.0, rho=1.0):
    u = sum(np.exp((s[k] - s[y]) / rho) for k in range(len(s)) if k != y)
    return np.log1p(u) if tau == 1 else ((1 + u) ** (1 - tau) - 1) / (1 - tau)


def smooth_adversarial(s, y, perturbed, tau=1.0, rho=1.0, nu=1.0):
    moved = [(perturbed[y] - perturbed[k]) - (s[y] - s[k]) for k in range(len(s)) if k != y]
    return comp_sum(s, y, tau, rho) + nu * np.sqrt(np.square(moved).sum())


def z_loss(s, y, sharpness=1.0, location=0.0):
    mu = s.mean()
    sigma = np.sqrt((s**2).mean() - mu**2)
    return np.log1p(np.exp(sharpness * (location - (s[y] - mu) / sigma))) / sharpness


def tempered_log(x, t):
    return np.log(x) if t == 1 else (x ** (1 - t) - 1) / (1 - t)


def tempered_softmax(s, t):
    """By halving: each is exp_t of the score less what makes them sum to 1."""
    if t == 1:
        return softmax(s)
    low, high = s.max(), s.max() + (len(s) ** (t - 1) - 1) / (t - 1)
    shares = lambda shift: np.maximum(1 + (1 - t) * (s - shift), 0) ** (1 / (1 - t))
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if shares(middle).sum() > 1 else (low, middle)
    return shares(low)


def tempered(s, y, t1=0.8, t2=1.2):
    return -tempered_log(tempered_softmax(s, t2)[y], t1)


def bi_tempered(s, y, t1=0.8, t2=1.2):
    p, label = tempered_softmax(s, t2), np.eye(len(s))[y]
    powers = (label ** (2 - t1) - p ** (2 - t1)) / (2 - t1)
    return -tempered_log(p[y], t1) - powers.sum()  # log_t of 1 is 0


def rescaled(s):
    return softplus(s) / softplus(s).mean()


def ldr_kl(s, y, temperature=1.0, margin=2.0, normalize=False):
    g = gaps(rescaled(s) if normalize else s, y, margin)
    if temperature in (0, np.inf):
        return g.max() if temperature == 0 else g.mean()
    return temperature * np.log(np.exp(g / temperature).mean())


def ldr_k(s, y, k=2, margin=1.0):
    """As a linear program over the distributions with at most 1/k on each."""
    g, left, value = sorted(gaps(s, y, margin), reverse=True), 1.0, 0.0
    for each in g:
        share = min(left, 1 / min(k, len(s)))
        value, left = value + share * each, left - share
    return value


def aldr_kl(s, y, temperatures=None, temperature=1.0, margin=2.0, alpha=2.0, normalize=True):
    z, most = rescaled(s) if normalize else s, np.log(len(s))
    p = softmax(z / (temperature if temperatures is None else temperatures)) + 1e-5
    p = p / p.sum()
    after = temperature - temperature * (p * np.log(len(s) * p)).sum() / (alpha * most)
    return ldr_kl(z, y, after, margin) - alpha * most / (2 * temperature) * (after - temperature) ** 2


def truncated_gce(s, y, q=0.7, cutoff=0.3):
    return (1 - max(softmax(s)[y], cutoff) ** q) / q


def js_loss(s, y, share=0.5):
    p, label = softmax(s), np.eye(len(s))[y]
    mixed = share * label + (1 - share) * p
    kl = lambda a: sum(x * np.log(x / m) for x, m in zip(a, mixed, strict=True) if x > 0)
    return (share * kl(label) + (1 - share) * kl(p)) / -((1 - share) * np.log(1 - share))


def symmetric_ce(s, y, alpha=0.5, beta=0.5, scale=4.0):
    p = softmax(s)[y]
    return -alpha * np.log(p) + beta * scale * (1 - p)


def normalized_ce(s, y, passive="agce", a=3.0, q=1.5):
    p = softmax(s)
    value = np.log(p[y]) / np.log(p).sum()
    if passive == "agce":
        return value + ((a + 1) ** q - (a + p[y]) ** q) / q
    if passive == "aul":
        return value + ((a - p[y]) ** q - (a - 1) ** q) / q
    return value + (np.log(1e4) * (p.sum() - p[y]) if passive == "rce" else 0)


def weston_watkins(s, y, margin=1.0):
    return sum(max(0.0, margin + s[k] - s[y]) for k in range(len(s)) if k != y) / len(s)


def margin_surrogate(s, t, form="logistic"):
    beyond = {
        "hinge": lambda m: 0.0,
        "exp_hinge": lambda m: -np.exp(1 - m),
        "log_hinge": lambda m: -np.log(m),
        "inverse_hinge": lambda m: 1 / m - 1,
        "inverse_log_hinge": lambda m: np.e / np.log(m + np.e - 1) - np.e,
        "sqrt_hinge": lambda m: -2 * np.sqrt(m - 1),
    }
    everywhere = {
        "exp": lambda m: np.exp(-m),
        "logistic": lambda m: np.log1p(np.exp(-m)),
        "focal": lambda m: np.log1p(np.exp(-m)) / (1 + np.exp(m)) ** 2,
    }
    phi = lambda m: everywhere[form](m) if form in everywhere else 1 - m if m <= 1 else beyond[form](m)
    return np.mean([phi((2 * label - 1) * score) for score, label in zip(s, t, strict=True)])


def label_correlation(s, t, correlation, class_weight=None, factor=0.1):
    q, size = 1 / (1 + np.exp(-s)), len(s)
    w = np.ones(size) if class_weight is None else class_weight
    value = -np.mean(w * (t * np.log(q) + (1 - t) * np.log(1 - q)))
    total = mass = 0.0
    for one in range(size):
        for other in range(size):
            if one != other:
                r = correlation[one, other]
                mass += abs(r)
                total += abs(r) * ((q[one] - q[other]) ** 2 if r > 0 else (q[one] + q[other] - 1) ** 2)
    return value + factor * total / (mass or 1.0)
