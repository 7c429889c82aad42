"""Euclidean distances beside plain differences: values, both gradients, and as nodes of a compiled graph."""

import importlib

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from vicinal.blockwise import block_policy
from vicinal.blockwise import distances as euclidean
from vicinal.blockwise.distances import distances, squared_distances
from vicinal.similarity import NegativeL2, NegativeSquaredL2

pytestmark = pytest.mark.sweep(3)

traced = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's own
rooted = pytest.mark.parametrize("rooted", [True, False])
DATA = ("spread", "offset", "clusters", "coincident", "collapsed", "outlier")


def normal(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def data(name, rows=9, columns=13, dim=5):
    """Queries, bank and the slope of what is made of them."""
    q, x = normal(0, rows, dim), normal(1, columns, dim)
    if name == "offset":
        q, x = q + 3000, x + 3000
    elif name == "clusters":
        q[::2], x[::2] = 50 + q[::2] / 100, 50 + x[::2] / 100
    elif name == "coincident":
        x[:rows:3], x[3] = q[::3], x[4]
    elif name == "collapsed":
        q, x = torch.ones_like(q), torch.ones_like(x)
    elif name == "outlier":
        q[1], x[2] = 1e4, -1e4
    return q, x, normal(2, rows, columns)


def plain(q, x, rooted):
    squared = (q[:, None] - x).square().sum(-1)
    apart = squared > 0
    return torch.where(apart, torch.where(apart, squared, 1.0).sqrt(), 0.0) if rooted else squared


def value_and_slopes(make, q, x, slope, wanted=(True, True)):
    leaves = [each.clone().requires_grad_(want) for each, want in zip((q, x), wanted, strict=True)]
    value = make(*leaves)
    made = torch.autograd.grad(value, [each for each, want in zip(leaves, wanted, strict=True) if want], slope)
    return value.detach(), *made


def measured(rooted):
    return lambda q, x: distances(q, x, rooted=rooted)


@rooted
@pytest.mark.parametrize("name", DATA)
def test_equals_differences_and_autograd(name, rooted):
    given = data(name)
    want = value_and_slopes(lambda q, x: plain(q, x, rooted), *given)
    torch.testing.assert_close(value_and_slopes(measured(rooted), *given), want, rtol=1e-9, atol=1e-10)


@traced
@rooted
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("center", "scale", "near"), [(3000, 1, 1e-2), (0, 1e-4, 1e-8)])
def test_gradient_of_near_pairs_in_single_precision(center, scale, near, compiled, rooted):
    q, x, slope = data("spread", 40, 60, 8)
    q, x = (center + scale * q).float(), (center + scale * x).float()
    x[:40:2] = q[::2] + near * normal(3, 20, 8).float()
    make = measured(rooted)
    if compiled:
        torch._dynamo.reset()
        make = torch.compile(make, backend="aot_eager", fullgraph=True)
    want = value_and_slopes(lambda q, x: plain(q, x, rooted), q.double(), x.double(), slope)
    for found, exact in zip(value_and_slopes(make, q, x, slope.float()), want, strict=True):
        torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=2e-5 * float(exact.abs().mean()))


@rooted
@pytest.mark.parametrize("name", ["spread", "clusters"])
def test_first_and_second_derivatives(name, rooted):
    q, x, _ = data(name, 3, 4, 3)
    sides = q.requires_grad_(), x.requires_grad_()
    assert torch.autograd.gradcheck(measured(rooted), sides)
    assert torch.autograd.gradgradcheck(measured(rooted), sides)
    assert torch.autograd.gradgradcheck(lambda bank: distances(q.detach(), bank, rooted=rooted), sides[1:])


def test_queries_that_are_the_bank():
    x = data("coincident")[1]
    slope, leaf = normal(4, 13, 13), x.clone().requires_grad_()
    score = NegativeL2()(leaf, leaf)
    assert (score.diagonal() == 0).all()
    (found,) = torch.autograd.grad(score, leaf, slope, create_graph=True)
    (once,) = torch.autograd.grad(NegativeL2()(leaf, leaf), leaf, slope)
    (want,) = torch.autograd.grad(-plain(leaf, leaf, True), leaf, slope)
    torch.testing.assert_close([once, found.detach()], [want, want])
    squared = squared_distances(leaf, leaf).sum()
    (first,) = torch.autograd.grad(squared, leaf, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), leaf)
    torch.testing.assert_close(first.detach(), 4 * (13 * x - x.sum(0)))
    torch.testing.assert_close(second, torch.zeros_like(x))  # moving all rows alike changes no distance


@rooted
@pytest.mark.parametrize("wanted", [(True, False), (False, True)])
def test_only_the_side_that_needs_a_gradient_is_computed(wanted, rooted):
    given = data("clusters")
    both = value_and_slopes(measured(rooted), *given)
    torch.testing.assert_close(value_and_slopes(measured(rooted), *given, wanted), (both[0], both[1 + wanted[1]]))
    products = {}
    for sides in ((True, True), wanted):
        with FlopCounterMode(display=False) as counter:  # does not see the product of the value, which is in place
            value_and_slopes(measured(rooted), *given, sides)
        products[sides] = counter.get_total_flops() / (2 * given[2].numel() * given[0].shape[1])
    assert products == {(True, True): 2, wanted: 1}


@rooted
def test_blocks_change_nothing(rooted):
    given = data("clusters")
    whole = value_and_slopes(measured(rooted), *given)
    with block_policy(scan_entries=1, pair_entries=1):
        torch.testing.assert_close(value_and_slopes(measured(rooted), *given), whole, rtol=1e-12, atol=1e-12)


@rooted
def test_slopes_of_any_layout(rooted):
    q, x, _ = data("coincident")
    for slope in (torch.tensor(2.0).double().expand(9, 13), normal(5, 13, 9).T, normal(6, 9, 26)[:, ::2]):
        kept = slope.clone()
        want = value_and_slopes(lambda q, x: plain(q, x, rooted), q, x, slope)
        torch.testing.assert_close(value_and_slopes(measured(rooted), q, x, slope), want)
        assert (slope == kept).all()


def test_scores_may_be_changed_in_place():
    q, x, slope = data("clusters")
    own = torch.eye(9, 13, dtype=torch.bool)
    for similarity in (NegativeL2(), NegativeSquaredL2()):
        found = value_and_slopes(lambda q, x, make=similarity: make(q, x).masked_fill_(own, 0.0), q, x, slope)
        want = value_and_slopes(lambda q, x, make=similarity: make(q, x).masked_fill(own, 0.0), q, x, slope)
        torch.testing.assert_close(found, want, rtol=0, atol=0)


@rooted
def test_autocast_leaves_value_and_gradient_alone(rooted):
    q, x, slope = (each.float() for each in data("clusters"))
    leaf = q.clone().requires_grad_()
    want = value_and_slopes(measured(rooted), q, x, slope)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = value_and_slopes(measured(rooted), q, x, slope)
        (again,) = torch.autograd.grad(distances(leaf, x, rooted=rooted), leaf, slope, create_graph=True)
    torch.testing.assert_close(found, want, rtol=0, atol=0)
    torch.testing.assert_close(again.detach(), want[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("similarity", [NegativeL2(), NegativeSquaredL2()], ids=["l2", "squared_l2"])
def test_each_side_gets_a_gradient_of_its_own_dtype(similarity):
    q, x, slope = data("spread")
    q = q.bfloat16()
    value, of_queries, of_bank = value_and_slopes(similarity, q, x, slope)
    assert (value.dtype, of_queries.dtype, of_bank.dtype) == (torch.float64, torch.bfloat16, torch.float64)
    want = value_and_slopes(similarity, q.double(), x, slope)
    torch.testing.assert_close((value, of_queries, of_bank), (want[0], want[1].bfloat16(), want[2]))


@pytest.mark.slow
@traced
@rooted
@pytest.mark.parametrize("name", ["clusters", "coincident"])
def test_compiled_as_one_graph(name, rooted):
    torch._dynamo.reset()
    given = data(name)
    made = torch.compile(measured(rooted), backend="aot_eager", fullgraph=True)
    for wanted in ((True, True), (True, False), (False, True)):
        want = value_and_slopes(measured(rooted), *given, wanted)
        torch.testing.assert_close(value_and_slopes(made, *given, wanted), want, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(made(*given[:2]), distances(*given[:2], rooted=rooted))
    assert made(given[0], given[1][:0]).shape == (9, 0)


@traced
def test_compiled_with_queries_that_are_the_bank():
    torch._dynamo.reset()
    x, slope = data("coincident")[1], normal(4, 13, 13)
    made = torch.compile(NegativeL2(), backend="aot_eager", fullgraph=True)
    slopes = []
    for similarity in (NegativeL2(), made):
        leaf = x.clone().requires_grad_()
        slopes.append(torch.autograd.grad(similarity(leaf, leaf), leaf, slope)[0])
    torch.testing.assert_close(*slopes)


@traced
@rooted
def test_operators_keep_their_contract(rooted):
    q, x, slope = data("clusters")
    x = x.T.contiguous().T  # rows that are no rows of memory
    checks = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    ops = torch.ops.vicinal
    sides = (q.requires_grad_(), x.requires_grad_())
    torch.library.opcheck(ops.distances.default, (*sides, rooted), test_utils=checks)
    made = distances(q, x, rooted=rooted).detach()
    for wanted in ([True, True], [False, True]):
        given = (slope, q.detach(), x.detach(), made, rooted, wanted)
        torch.library.opcheck(ops.distances_backward.default, given, test_utils=checks)


@traced
def test_operators_may_be_defined_again():
    given = data("coincident")
    want = value_and_slopes(distances, *given)
    for _ in range(2):
        importlib.reload(euclidean)
        torch._dynamo.reset()
        made = torch.compile(NegativeL2(), backend="aot_eager", fullgraph=True)
        value, *slopes = value_and_slopes(made, *given)
        torch.testing.assert_close((-value, *(-each for each in slopes)), want)
