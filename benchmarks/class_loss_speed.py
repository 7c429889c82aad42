"""Time and memory of losses of class scores beside their textbook form in torch, and of a spanning tree.

    python benchmarks/class_loss_speed.py --out benchmarks/results/class-loss-speed.csv
    python benchmarks/class_loss_speed.py --many --out benchmarks/results/class-loss-many.csv

Scores are [4096, 1000], float32; a step is the loss and its gradient, on one thread; processor time, the median of
interleaved rounds. Memory is the peak above what was held before, the least of five, in matrices of the scores' size;
the gradient itself is one. The tree is `minimum_spanning_tree` of 100,000 random rows, whose matrix of distances would
take 37 GiB. With --many: a whole training step of the Z-loss, of a plain layer and of `losses.SphericalClasses`, by the
number of classes.
"""

import argparse
import contextlib
import csv
import ctypes
import math
import statistics
from pathlib import Path

import torch
from metric_losses import peak, timed
from torch.nn import functional

from vicinal import losses
from vicinal.blockwise.spanning_tree import minimum_spanning_tree

BATCH, CLASSES, ROUNDS = 4096, 1000, 15
TREE = (100_000, 16)


def gaps(scores, y, margin):
    hot = functional.one_hot(y, scores.shape[1]).bool()
    apart = scores - scores.gather(1, y[:, None]) + margin
    return apart.masked_fill(hot, 0.0)


def ldr_kl(scores, y):
    return gaps(scores, y, 2.0).logsumexp(1).mean() - math.log(scores.shape[1])


def aldr_kl(scores, y):
    with torch.no_grad():
        p = scores.softmax(1) + 1e-5
        p = p / p.sum(1, keepdim=True)
        most = math.log(scores.shape[1])
        heat = 1 - ((p * p.log()).sum(1) + most) / (2 * most)
    values = heat * ((gaps(scores, y, 2.0) / heat[:, None]).logsumexp(1) - most)
    return (values - most * (heat - 1).square()).mean()


def z_loss(scores, y):
    z = (scores - scores.mean(1, keepdim=True)) / scores.std(1, keepdim=True, unbiased=False)
    return functional.softplus(-z.gather(1, y[:, None])).mean()


def normalized_ce(scores, y):
    logs = scores.log_softmax(1)
    p = logs.exp().gather(1, y[:, None])[:, 0]
    value = logs.gather(1, y[:, None])[:, 0] / logs.sum(1)
    return (value + (4**1.5 - (3 + p) ** 1.5) / 1.5).mean()


def of_probability(formula):
    """A loss of the probability of the target, by softmax."""
    return lambda scores, y: formula(scores.softmax(1).gather(1, y[:, None])[:, 0]).mean()


def js_loss(p):
    m = 0.5 + 0.5 * p
    value = -0.5 * m.log() + 0.5 * (p * (p / m).log() - (1 - p) * math.log(0.5))
    return value / (0.5 * math.log(2))


def margins(scores, targets, form):
    return form((2 * targets - 1) * scores).mean()


def ensloss(scores, targets):
    margin = ((2 * targets - 1) * scores).flatten()
    slopes = torch.empty_like(margin).detach()
    slopes[margin.detach().argsort()] = (-torch.randn(margin.shape).exp()).clamp(min=-1).sort().values
    return ((torch.where(margin > 1, slopes / margin.detach().clamp(min=1), slopes) - 1e-6) * margin).mean()


def label_correlation(scores, targets, relation):
    value = functional.binary_cross_entropy_with_logits(scores, targets)
    q, low, high = scores.sigmoid(), -relation.clamp(max=0), relation.clamp(min=0)
    alike = q.square() @ high.sum(0) * 2 - 2 * ((q @ high) * q).sum(1)
    apart = ((q.square() - q) @ low.sum(0)) * 2 + 2 * ((q @ low) * q).sum(1) + low.sum()
    return value + 0.1 * ((alike + apart) / relation.abs().sum()).mean()


def cases():
    """Name, ours, the textbook's, whether labels are several."""
    yield "comp_sum(tau=1.7)", lambda s, y: losses.comp_sum(s, y, tau=1.7), of_probability(lambda p: (1 - p**0.7) / 0.7)
    yield "truncated_gce", losses.truncated_gce, of_probability(lambda p: (1 - p.clamp(min=0.3) ** 0.7) / 0.7)
    yield "js_loss", losses.js_loss, of_probability(js_loss)
    yield (
        "symmetric_ce",
        losses.symmetric_ce,
        lambda s, y: 0.5 * functional.cross_entropy(s, y) + 2 * (1 - s.softmax(1).gather(1, y[:, None])).mean(),
    )
    yield "normalized_ce", losses.normalized_ce, normalized_ce
    yield "ldr_kl", losses.ldr_kl, ldr_kl
    yield "ldr_k(k=2)", losses.ldr_k, lambda s, y: gaps(s, y, 1.0).topk(2, dim=1).values.mean()
    yield "aldr_kl", lambda s, y: losses.aldr_kl(s, y, normalize=False), aldr_kl
    yield "weston_watkins", losses.weston_watkins, lambda s, y: gaps(s, y, 1.0).relu().mean()
    yield "z_loss", losses.z_loss, z_loss
    yield "cross-entropy of torch", functional.cross_entropy, functional.cross_entropy


def several():
    relation = losses.label_phi((torch.rand(500, CLASSES) < 0.1).float()).fill_diagonal_(0)
    yield "margin_surrogate", losses.margin_surrogate, lambda s, t: margins(s, t, lambda m: functional.softplus(-m))
    yield "ensloss", losses.ensloss, ensloss
    yield (
        "label_correlation",
        lambda s, t: losses.label_correlation(s, t, correlation=relation),
        lambda s, t: label_correlation(s, t, relation),
    )


def steps(ours, theirs, target):
    """Scores, and a step of each loss on them."""
    scores = (3 * torch.randn(BATCH, CLASSES)).requires_grad_()

    def step(loss):
        def run():
            scores.grad = None
            loss(scores, target).backward()

        return run

    return scores, [step(ours), step(theirs)]


def times(ours, theirs, target):
    """Milliseconds of both, and the ratio."""
    _, both = steps(ours, theirs, target)
    for each in both:
        each()
    rounds = [[timed(each) for each in both] for _ in range(ROUNDS)]
    ratio = statistics.median(one / other for one, other in rounds)
    return [*(f"{1000 * statistics.median(column):.1f}" for column in zip(*rounds, strict=True)), f"{ratio:.2f}"]


def matrices(ours, theirs, target):
    """Peak memory of both, in matrices."""
    scores, both = steps(ours, theirs, target)
    peaks = []
    for each in both:
        each()
        scores.grad = None
        peaks.append(min(peak(each) for _ in range(5)) / scores.nbytes)
        scores.grad = None
    return [f"{value:.1f}" for value in peaks]


def many_classes():
    """Milliseconds of a training step of 64 rows of 128 numbers, by the number of classes; and how far the two part."""
    rows, width = 64, 128
    lines = []
    for classes in (1_000, 10_000, 100_000):
        hidden, target = torch.randn(rows, width), torch.randint(classes, (rows,))
        head = losses.SphericalClasses(width, classes)
        layer = torch.nn.Linear(width, classes)
        with torch.no_grad():
            layer.weight.copy_(head.weight()[:, :-1]), layer.bias.zero_()

        def plain(layer=layer, hidden=hidden, target=target):
            loss = losses.z_loss(layer(hidden), target)
            loss.backward()
            with torch.no_grad():
                for parameter in layer.parameters():
                    parameter -= 0.1 * parameter.grad
                    parameter.grad = None

        def ours(head=head, hidden=hidden, target=target):
            head(hidden, target).backward()
            head.step(0.1)

        medians = [statistics.median([timed(step) for _ in range(ROUNDS)]) for step in (plain, ours)]
        apart = (head.weight()[:, :-1] - layer.weight).abs().max().item()
        lines.append([f"{classes:,}", *(f"{1000 * one:.1f}" for one in medians), f"{apart:.1e}"])
    return ["classes", "plain_ms", "spherical_ms", "largest_difference_of_weights"], lines


def write(path, page, mark, headings, lines):
    """A CSV file, and its table between the marks of a page."""
    with path.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(headings)
        table.writerows(lines)
    print(path.read_text(encoding="utf-8"))
    if page:
        shown = ["| " + " | ".join(row) + " |" for row in [headings, *lines]]
        shown.insert(1, "| --- |" + " --- |" * (len(headings) - 1))
        before, _, rest = page.read_text(encoding="utf-8").partition(f"<!-- {mark} -->")
        after = rest.partition(f"<!-- end of {mark} -->")[2]
        text = f"{before}<!-- {mark} -->\n\n{chr(10).join(shown)}\n\n<!-- end of {mark} -->{after}"
        page.write_text(text, encoding="utf-8")


def give_back(above):
    """Let tensors ``above`` so many bytes be given back to the system at once, not be kept in the heap."""
    mmap_threshold, trim_threshold = -3, -1
    with contextlib.suppress(OSError):
        ctypes.CDLL("libc.so.6").mallopt(mmap_threshold, above)
        ctypes.CDLL("libc.so.6").mallopt(trim_threshold, 2 * above)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tree", action="store_true", help="the tree, too: takes minutes")
    parser.add_argument("--many", action="store_true", help="instead: a step by the number of classes")
    parser.add_argument("--page", type=Path, help="a page whose table between marks is written anew")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if options.many:
        write(options.out, options.page, "many classes", *many_classes())
        return
    y = torch.randint(CLASSES, (BATCH,))
    targets = (torch.rand(BATCH, CLASSES) < 0.02).float()
    all_cases = [(*each, y) for each in cases()] + [(*each, targets) for each in several()]
    give_back(1 << 16)  # else holes of the heap count as memory
    memory = {case[0]: matrices(*case[1:]) for case in all_cases}
    give_back(1 << 25)
    lines = [[case[0], *times(*case[1:]), *memory[case[0]]] for case in all_cases]
    if options.tree:
        rows, seconds = torch.randn(*TREE), []
        tree = peak(lambda: seconds.append(timed(lambda: minimum_spanning_tree(rows)))) / (4 * BATCH * CLASSES)
        name = f"minimum_spanning_tree of {TREE[0]:,} rows of {TREE[1]}"
        lines.append([name, f"{1000 * seconds[0]:.0f}", "", "", f"{tree:.1f}", ""])
    headings = ["name", "ours_ms", "textbook_ms", "ratio", "matrices", "textbook_matrices"]
    write(options.out, options.page, "speed", headings, lines)


if __name__ == "__main__":
    main()
