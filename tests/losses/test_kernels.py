"""Every kernel of a loss is its formula: value and gradient, in float64 to 1e-9, else to the bound that it states."""

import pytest
import torch

from vicinal.core import entries, entry
from vicinal.losses import ProxyLoss
from vicinal.losses.kernels import KERNELS, formulas_only

SETTINGS = {
    "adore": [{}, {"cut": 3, "temperature": 0.5}],
    "rank_n_contrast": [{}, {"temperature": 0.1}],
}
CASES = [(kernel, settings) for kernel in KERNELS.values() for settings in SETTINGS.get(kernel.loss, [{}])]


def problem(loss, seed, rows=9, columns=11):
    """Scores with ties, a relation with rows of none and of several related columns, and a weight that leaves out."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(rows, columns, generator=generator, dtype=torch.float64) * 2 - 1
    scores[:, 3] = scores[:, 2]
    classes, of_columns = (torch.randint(4, (n,), generator=generator) for n in (rows, columns))
    relation = (classes[:, None] == of_columns).double()
    if loss == "rank_n_contrast":
        relation = -(classes[:, None] - of_columns).abs().double()
    relation[0] = relation[0] * 0
    weight = (torch.rand(rows, columns, generator=generator) < 0.8).double()
    return scores, relation, weight


def value_and_gradient(make, *leaves):
    leaves = [leaf.clone().requires_grad_() for leaf in leaves]
    value = make(*leaves)
    slopes = torch.autograd.grad((value * torch.linspace(1, 2, value.numel(), dtype=value.dtype)).sum(), leaves)
    return torch.cat([each.detach().double().flatten() for each in (value, *slopes)])


def assert_equal(fast, formula, bound):
    error = (fast - formula).abs().max() / formula.abs().max().clamp(min=1e-3)
    assert float(error) <= bound, float(error)


@pytest.fixture
def calls(monkeypatch):
    """Names of the kernels that gave terms."""
    names = []
    for kernel in KERNELS.values():

        def run(*given, kernel=kernel, original=kernel.run):
            terms = original(*given)
            names.extend([kernel.name] * (terms is not None))
            return terms

        monkeypatch.setitem(kernel.__dict__, "run", run)
    return names


@pytest.mark.parametrize(("kernel", "settings"), CASES, ids=lambda each: getattr(each, "name", str(each)))
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("weighed", [False, True])
def test_a_kernel_is_its_formula(kernel, settings, dtype, weighed, calls):
    loss = entry("pair_loss", kernel.loss).factory
    if kernel.name == "target_softmax":
        pytest.skip("its column comes from ProxyLoss, below")
    for seed in range(3):
        scores, relation, weight = (each.to(dtype) for each in problem(kernel.loss, seed))
        given = (relation, weight) if weighed else (relation,)
        for reduction in ("none", "mean", "mean_nonzero"):
            compute = lambda s: loss(s, *given, reduction=reduction, **settings)  # noqa: B023
            calls.clear()
            fast = value_and_gradient(compute, scores)
            assert kernel.name in calls
            calls.clear()
            with formulas_only():
                formula = value_and_gradient(compute, scores)
            assert calls == []
            bound = {torch.float64: 1e-9, torch.float32: kernel.float32, torch.bfloat16: 2**-7}[dtype]
            assert_equal(fast, formula, bound)


@pytest.mark.parametrize("name", [each.name for each in entries("pair_loss") if "proxies" in each.facts])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_the_kernels_of_known_columns_are_the_formula(name, dtype):
    x = torch.randn(10, 4, generator=torch.Generator().manual_seed(0), dtype=dtype)
    labels = torch.arange(10) % 3
    torch.manual_seed(1)
    loss = ProxyLoss(name, 3, 4, reduction="none").to(dtype)
    compute = lambda rows, proxies: torch.func.functional_call(loss, {"proxies": proxies}, (rows, labels))
    fast = value_and_gradient(compute, x, loss.proxies.detach())
    with formulas_only():
        formula = value_and_gradient(compute, x, loss.proxies.detach())
    assert_equal(fast, formula, 1e-9 if dtype == torch.float64 else KERNELS["target_softmax"].float32)
