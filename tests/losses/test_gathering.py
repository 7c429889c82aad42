"""Two processes give the value, the gradient and the bank of one process with the whole batch."""

import pytest
import torch
import torch.distributed

from processes import run_processes
from vicinal.core import entries, entry
from vicinal.core.gathering import gather_rows, sum_over_processes
from vicinal.losses import AdaptiveHeadsLoss, CrossBatchBank, EmbeddingLoss, MixedLoss, ProxyLoss

pytestmark = pytest.mark.sweep(8)

NAMES = [
    (entry.name, "number-relation" in entry.facts)
    for entry in entries("pair_loss")
    if not {"proxies", "proxy-rows"} & entry.facts
]

AGAINST_PROXIES = [entry.name for entry in entries("pair_loss") if "square" not in entry.facts]
"""All that take other columns than their rows."""

LABELS_AND_REDUCTIONS = [(False, "mean"), (True, "sum"), (False, "none")]


def batch(number):
    g = torch.Generator().manual_seed(number)
    x = torch.randn(12, 6, generator=g, dtype=torch.float64)
    return x, torch.randint(0, 3, (12,), generator=g)


def mixed():
    """A loss with mixed rows; all processes draw the same."""
    return MixedLoss(EmbeddingLoss("metrix", gather=True), generator=torch.Generator().manual_seed(3))


def heads():
    """A loss with parameters of its own."""
    made = AdaptiveHeadsLoss(4, heads=2, criterion=EmbeddingLoss("amcl", gather=True)).double()
    with torch.no_grad():
        for number, parameter in enumerate(made.parameters()):
            parameter.copy_(torch.linspace(-1, 1 + number / 9, parameter.numel()).reshape(parameter.shape))
    return made


MADE = {"of mixed rows": mixed, "of heads": heads}
NAMES += [(name, False) for name in MADE]


def train(name, numbers, part, processes):
    """Loss and gradient of a linear encoder in two steps, as data-parallel training takes it, and the bank's state."""
    weight = torch.linspace(-1, 1, 24, dtype=torch.float64).reshape(6, 4).requires_grad_()
    bank = None
    if name in MADE:
        loss = MADE[name]()
    else:
        bank = None if "square" in entry("pair_loss", name).facts else CrossBatchBank(20, 4).double()
        loss = EmbeddingLoss(name, similarity="l2" if numbers else "cosine", bank=bank, gather=True)
    kept = []
    for step in range(2):
        x, labels = batch(step)
        value = loss(x[part] @ weight, labels[part])
        (slope,) = torch.autograd.grad(value, weight)
        if processes > 1:
            torch.distributed.all_reduce(slope)
        kept += [value.detach(), slope / processes]
    return [*kept, {} if bank is None else bank.state_dict()]


def against_proxies(name, several, part, processes, **settings):
    """Loss against proxies, and the gradients of a linear encoder and of the proxies in data-parallel training."""
    weight = torch.linspace(-1, 1, 24, dtype=torch.float64).reshape(6, 4).requires_grad_()
    torch.manual_seed(5)
    loss = ProxyLoss(name, 3, 4, per_class=2, **settings).double()
    x, labels = batch(0)
    if several:
        labels = torch.stack([labels == 0, labels == 1, labels != 0], 1).long()
    value = loss(x[part] @ weight, labels[part])
    slopes = torch.autograd.grad(value.sum(), [weight, loss.proxies])
    if processes > 1:
        for slope in slopes:
            torch.distributed.all_reduce(slope)
    return [value.detach(), *(slope / processes for slope in slopes)]


def gathered(rank):
    """Rows, sums and their gradients, of parts of 5 and 7 rows, and of 0 and 12."""
    found = {}
    for first in (5, 0):
        x = batch(0)[0]
        own = (x[:first] if rank == 0 else x[first:]).requires_grad_()
        rows, total = gather_rows(own), sum_over_processes(own.square().sum(dim=0))
        (slope,) = torch.autograd.grad((rank + 1) * (rows**3).sum() + total.sum(), own)
        found[str(first)] = [rows.detach(), gather_rows(torch.arange(len(own)) + 100 * rank), total.detach(), slope]
    return found


def work(rank, names, of_proxies):
    """Losses with equal and with unequal parts of the batch, and what they are built of."""
    results = {"gathered": gathered(rank)}
    for split in (6, 5):
        part = slice(0, split) if rank == 0 else slice(split, None)
        results[str(split)] = {name: train(name, numbers, part, 2) for name, numbers in names}
        results[f"proxies {split}"] = {
            f"{name} {several} {way}": against_proxies(name, several, part, 2, gather=True, reduction=way)
            for name, several, way in of_proxies
        }
        apart = against_proxies("proxy_anchor", False, part, 2)
        results[f"apart {split}"] = {"proxy_anchor": apart, "arcface": against_proxies("arcface", False, part, 2)}
    return results


@pytest.fixture(scope="module")
def results(request, tmp_path_factory):
    """What two processes find for the cases that are run."""
    own = [item for item in request.session.items if item.path == request.path]
    cases = [item.callspec.params for item in own if hasattr(item, "callspec")]
    names = [(case["name"], case["numbers"]) for case in cases if "numbers" in case]
    of_proxies = [(case["name"], case["several"], case["way"]) for case in cases if "several" in case]
    return run_processes(work, 2, tmp_path_factory.mktemp("ranks"), names, of_proxies)


@pytest.mark.parametrize("first", [5, 0])
def test_rows_and_sums_of_all_with_gradients(results, first):
    x = batch(0)[0]
    for rank, result in enumerate(results):
        rows, numbers, total, slope = result["gathered"][str(first)]
        assert torch.equal(rows, x)
        assert numbers.tolist() == [*range(first), *range(100, 112 - first)]
        torch.testing.assert_close(total, x.square().sum(dim=0))
        own = x[:first] if rank == 0 else x[first:]
        torch.testing.assert_close(slope, 3 * 3 * own**2 + 2 * 2 * own)  # of both losses: 1 + 2 times, and twice


@pytest.mark.slow
@pytest.mark.parametrize(("name", "numbers"), NAMES, ids=[name for name, _ in NAMES])
def test_two_processes_are_one(results, name, numbers):
    want = train(name, numbers, slice(None), 1)
    for result in results:
        for split in ("6", "5"):
            torch.testing.assert_close(result[split][name], want, rtol=1e-9, atol=1e-12)
    assert all(torch.equal(value, results[1]["6"][name][-1][key]) for key, value in results[0]["6"][name][-1].items())


@pytest.mark.parametrize(("several", "way"), LABELS_AND_REDUCTIONS)
@pytest.mark.parametrize("name", AGAINST_PROXIES)
def test_two_processes_with_proxies_are_one(results, name, several, way):
    want = against_proxies(name, several, slice(None), 1, reduction=way)
    for result in results:
        for split in ("6", "5"):
            got = result[f"proxies {split}"][f"{name} {several} {way}"]
            torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-12)


def test_which_losses_need_rows_of_all_processes(results):
    """Gradients of equal parts alone average to those of the whole for a mean over rows, and for no other loss."""
    for name, split, same in [("arcface", "6", True), ("arcface", "5", False), ("proxy_anchor", "6", False)]:
        want = against_proxies(name, False, slice(None), 1)[1:]
        got = results[0][f"apart {split}"][name][1:]
        assert all(torch.allclose(one, other, rtol=1e-9) for one, other in zip(got, want, strict=True)) == same
