"""Other ways to write the NONA head in torch, for benchmarks/neighbor_attention.py."""

import torch


def step(x, a=0.2, b=0.8, t=0.5):
    """Log of S1 with fixed numbers."""
    u, v = (x - a).clamp_min(0).pow(1 / t), (b - x).clamp_min(0).pow(1 / t)
    return (u / (u + v)).log()


def naive(q, x, y, masked):
    """What one writes down first."""
    s = -torch.cdist(q, x)
    if masked:
        low, high = s.amin(1, keepdim=True), s.amax(1, keepdim=True)
        s = s + step((s - low) / (high - low))
    return torch.softmax(s, 1) @ y


def compiled_blocks(q, x, y, masked):
    """Blocks of 1,024 rows whose arithmetic is fused by torch.compile."""

    def scores(q, q2, x, x2):
        return -torch.addmm(q2 + x2, q, x.T, alpha=-2).clamp_min_(0).sqrt_()

    def bounds(q, q2, x, x2):
        s = scores(q, q2, x, x2)
        return s.amin(1, keepdim=True), s.amax(1, keepdim=True)

    def weigh(q, q2, x, x2, y, low, high):
        s = scores(q, q2, x, x2)
        w = (s - high + step((s - low) / (high - low))).exp()
        return w @ y, w.sum(1, keepdim=True)

    def online(q, q2, x, x2, y, top, total, sums):
        s = scores(q, q2, x, x2)
        new = torch.maximum(top, s.amax(1, keepdim=True))
        scale, w = (top - new).exp(), (s - new).exp()
        return new, total * scale + w.sum(1, keepdim=True), sums * scale + w @ y

    bounds, weigh, online = (torch.compile(f, dynamic=False) for f in (bounds, weigh, online))
    spans = [slice(i, min(i + 1024, len(x))) for i in range(0, len(x), 1024)]

    def call():
        q2 = q.square().sum(1, keepdim=True)
        norms = [x[p].square().sum(1)[None] for p in spans]
        total, sums = torch.zeros(len(q), 1), torch.zeros(len(q), 1)
        low, high = torch.full((len(q), 1), torch.inf), torch.full((len(q), 1), -torch.inf)
        for p, x2 in zip(spans, norms, strict=True):
            if masked:
                lowest, highest = bounds(q, q2, x[p], x2)
                low, high = torch.minimum(low, lowest), torch.maximum(high, highest)
            else:
                high, total, sums = online(q, q2, x[p], x2, y[p, None], high, total, sums)
        for p, x2 in zip(spans, norms, strict=True) if masked else ():
            part, mass = weigh(q, q2, x[p], x2, y[p, None], low, high)
            sums += part
            total += mass
        return sums / total

    return call
