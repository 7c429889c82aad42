"""One test per promise of an encoder of sets, each over every registered one."""

import copy
import math
import subprocess
import sys
from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vicinal.core import entries, make
from vicinal.encoders.sets import AdditiveSetEncoder, DeepSets, draw_elements, order_gap

each = pytest.mark.parametrize("entry", entries("set_encoder"), ids=lambda e: e.name)
additive = pytest.mark.parametrize(
    "entry", [e for e in entries("set_encoder") if "mini-batch-consistent" in e.facts], ids=lambda e: e.name
)
CLOSE = {"rtol": 1e-10, "atol": 1e-11}


def encoder_of(entry, width=3, dim=4, **settings):
    torch.manual_seed(0)
    encoder = entry.factory(width, dim, **settings).double().eval()
    with torch.no_grad():
        encoder.empty.copy_(torch.arange(dim))
    return encoder


@cache
def small(entry):
    """One that is only read."""
    known = {"set_convolution": {"filters": (4, 8)}} | {key: {} for key in ("moments", "counts", "sliced")}
    return encoder_of(entry, **known.get(entry.name, {"hidden": 8}))


def sets(seed, b=4, n=6, d=3):
    generator = torch.Generator().manual_seed(seed)
    elements = torch.randn(b, n, d, generator=generator, dtype=torch.float64)
    sizes = torch.randint(1, n + 1, (b,), generator=generator)
    return elements, torch.arange(n) < sizes[:, None]


@each
@given(seed=st.integers(0, 10_000), n=st.integers(1, 9))
def test_order_does_not_matter_or_its_gap_is_declared(entry, seed, n):
    encoder = small(entry)
    elements, valid = sets(seed, n=n)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    first, other = encoder(elements, valid), encoder(elements[:, order], valid[:, order])
    few = valid.sum(1) <= 2
    if "order-gap" not in entry.facts:
        few |= True
        assert order_gap(encoder, elements, valid) < 1e-10
    torch.testing.assert_close(first[few], other[few], **CLOSE)


@each
def test_what_is_declared_to_have_an_order_gap_has_one(entry):
    gap = order_gap(encoder_of(entry), *sets(1), shuffles=20, generator=torch.Generator().manual_seed(0))
    assert (gap > 1e-6) == ("order-gap" in entry.facts)


@each
@given(seed=st.integers(0, 10_000), n=st.integers(0, 6), more=st.integers(0, 4))
def test_padding_changes_nothing_and_gets_no_gradient(entry, seed, n, more):
    encoder = small(entry)
    elements, valid = sets(seed, n=max(n, 1))
    elements, valid = elements[:, :n], valid[:, :n]
    generator = torch.Generator().manual_seed(seed)
    filling = 1e6 * torch.randn(4, more, 3, generator=generator, dtype=torch.float64)
    filling[:, :1] = torch.nan
    padded = torch.cat([elements, filling], dim=1)
    padded = torch.where(torch.cat([valid, torch.zeros(4, more, dtype=torch.bool)], 1)[..., None], padded, torch.inf)
    known = torch.cat([valid, torch.zeros(4, more, dtype=torch.bool)], dim=1)
    shift = int(torch.randint(0, n + more + 1, (), generator=generator))
    padded, known = padded.roll(shift, 1).requires_grad_(), known.roll(shift, 1)
    if shift and "order-gap" in entry.facts:
        padded, known = padded.detach().roll(-shift, 1).requires_grad_(), known.roll(-shift, 1)
    got = encoder(padded, known)
    torch.testing.assert_close(got, encoder(elements, valid), **CLOSE)
    grad = torch.autograd.grad(got.sum(), padded, materialize_grads=True, allow_unused=True)[0]
    assert (grad[~known] == 0).all()
    assert grad.isfinite().all()


@each
@given(seed=st.integers(0, 10_000))
def test_a_set_does_not_see_the_others_of_its_batch(entry, seed):
    encoder = small(entry)
    elements, valid = sets(seed)
    alone = torch.cat([encoder(x[None, v], None) for x, v in zip(elements, valid, strict=True)])
    torch.testing.assert_close(encoder(elements, valid), alone, **CLOSE)


@each
def test_sets_of_one_and_without_elements(entry):
    encoder = encoder_of(entry)
    one = sets(2)[0][:, :1].requires_grad_()
    assert encoder(one).isfinite().all()
    want = torch.arange(4.0, dtype=torch.float64).expand(2, 4)
    torch.testing.assert_close(encoder(torch.zeros(2, 0, 3).double()), want)
    valid = torch.tensor([[False], [True], [False], [True]])
    got = encoder(one, valid)
    torch.testing.assert_close(got[[0, 2]], want)
    torch.testing.assert_close(got[1], encoder(one)[1])
    got.sum().backward()
    assert (one.grad[[0, 2]] == 0).all()
    assert one.grad.isfinite().all()
    assert (encoder.empty.grad == 2).all()
    assert encoder(torch.zeros(0, 5, 3).double()).shape == (0, 4)


@each
def test_gradients_agree_with_differences_and_are_finite_beside_padding_and_empty_sets(entry):
    encoder = copy.deepcopy(small(entry))
    elements, valid = sets(3, b=3, n=3)
    valid[0], valid[1] = torch.tensor([False, True, False]), False
    elements[2, 0] = elements[2, 1]  # a tie
    inputs = (elements + 0.01 * torch.arange(3)[:, None]).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: encoder(x, valid), inputs)
    for mode in (True, False):
        encoder.train(mode)(inputs, valid).square().sum().backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in encoder.parameters())


@each
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_finite_for_large_numbers_and_in_half_precision(entry, dtype):
    encoder = encoder_of(entry).to(dtype)
    elements = 1e4 * sets(4)[0].to(dtype)
    if entry.name == "power_sums":
        encoder.train()(elements)  # scales by what it has seen
    assert encoder.eval()(elements, sets(4)[1]).isfinite().all()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert encoder.float()(elements.float() / 1e4, sets(4)[1]).isfinite().all()


@each
def test_training_changes_what_is_given_and_the_state_restores_it(entry):
    encoder, (elements, valid) = encoder_of(entry).train(), sets(5)
    optimizer = torch.optim.Adam(encoder.parameters(), 0.01)
    before = encoder.eval()(elements, valid)
    encoder.train()
    losses = []
    for _ in range(30):
        loss = (encoder(elements, valid) - valid.sum(1)[:, None]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    after = encoder.eval()(elements, valid)
    assert (after - before).abs().max() > 1e-4
    other = encoder_of(entry)
    other.load_state_dict(encoder.state_dict())
    torch.testing.assert_close(other(elements, valid), after)


@additive
@given(seed=st.integers(0, 10_000), n=st.integers(1, 9))
def test_any_partition_encodes_as_the_whole_set(entry, seed, n):
    encoder = small(entry)
    elements, valid = sets(seed, n=n)
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(n, generator=generator)
    cuts = torch.randint(0, n + 1, (2,), generator=generator).sort().values.tolist()
    chunks = [(elements[:, part], valid[:, part]) for part in torch.tensor_split(order, cuts)]
    torch.testing.assert_close(encoder.encode_chunks(chunks), encoder(elements, valid), **CLOSE)


@each
def test_mini_batch_consistent_are_exactly_those_that_add(entry):
    assert isinstance(encoder_of(entry), AdditiveSetEncoder) == ("mini-batch-consistent" in entry.facts)


@additive
def test_the_sampled_gradient_is_unbiased_for_all_parameters(entry):
    """Its mean over all choices of 2 elements equals the full gradient; the loss is linear in what is read out."""
    encoder, (elements, _) = small(entry), sets(6, b=2, n=5)
    valid = torch.tensor([[True] * 5, [True] * 4 + [False]])
    value = encoder(elements, valid)
    weight = torch.randn(2, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    full = torch.autograd.grad((value * weight).sum(), list(encoder.parameters()), materialize_grads=True)
    means = [torch.zeros_like(p) for p in encoder.parameters()]
    for row, size in ((0, 5), (1, 4)):
        pairs = torch.combinations(torch.arange(size))
        for picked in pairs:
            got = encoder.encode_sampled(elements[[row]], valid[[row]], picked[None], chunk_size=2)
            torch.testing.assert_close(got, value[[row]], **CLOSE)
            grads = torch.autograd.grad((got * weight[[row]]).sum(), list(encoder.parameters()), materialize_grads=True)
            means = [mean + grad / len(pairs) for mean, grad in zip(means, grads, strict=True)]
    for mean, grad in zip(means, full, strict=True):
        torch.testing.assert_close(mean, grad, rtol=1e-9, atol=1e-10)


@pytest.mark.slow
@additive
def test_a_million_elements_in_chunks_are_the_whole(entry):
    encoder = make(
        "set_encoder", entry.name, width=2, dim=3, **({} if entry.family == "moments" else {"hidden": 16})
    ).eval()
    generator = torch.Generator().manual_seed(0)
    elements = torch.rand(1, 1_000_000, 2, generator=generator)
    with torch.no_grad():
        whole = encoder.double()(elements.double())
        chunks = encoder.float().encode_chunks((part, None) for part in elements.split(10_000, dim=1))
    assert ((whole - chunks).abs() / whole.abs().max()).max() < 1e-5


@pytest.mark.slow
def test_the_memory_of_chunks_does_not_grow_with_the_set():
    """A set of 1e6 elements, drawn as they are read, takes no more than one of 1e5; whole, it would take 8 MB."""
    program = """
import resource, torch
from vicinal.encoders.sets import UMBC
encoder = UMBC(2, 3, hidden=16).eval()
peaks = []
for count in (10, 100):
    with torch.no_grad():
        encoder.encode_chunks((torch.rand(1, 10_000, 2), None) for _ in range(count))
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
print(peaks[1] - peaks[0])
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(told.stdout) < 4096  # KiB


def test_drawn_elements_are_of_the_set_and_each_once():
    valid = torch.arange(9) < torch.tensor([9, 4, 2])[:, None]
    counts = torch.zeros(3, 9)
    generator = torch.Generator().manual_seed(0)
    for _ in range(900):
        picked = draw_elements(valid, 3, generator)
        counts.scatter_add_(1, picked, torch.ones(3, 3))
        assert (picked.sort(1).values.diff(dim=1) > 0).all()
        assert valid.gather(1, picked)[:2].all()
        assert valid.gather(1, picked)[2].sum() == 2
    assert (counts[0] / 900 - 1 / 3).abs().max() < 0.06
    assert (counts[1, :4] / 900 - 3 / 4).abs().max() < 0.06


def test_a_largest_value_cannot_be_sampled():
    encoder = DeepSets(3, 4, pool="max").double()
    elements, valid = sets(7)
    chunks = [(elements[:, i : i + 2], valid[:, i : i + 2]) for i in range(0, 6, 2)]
    torch.testing.assert_close(encoder.encode_chunks(chunks), encoder(elements, valid))
    with pytest.raises(ValueError, match=r"^encode_sampled: expected an encoder that adds"):
        encoder.encode_sampled(elements, valid, draw_elements(valid, 2))


@each
@pytest.mark.parametrize(
    ("elements", "valid", "error", "sentence"),
    [
        (torch.zeros(2, 3), None, ValueError, r"^elements: expected \[b, n, 3\]"),
        (torch.zeros(2, 5, 4), None, ValueError, r"^elements: expected \[b, n, 3\]"),
        (torch.zeros(2, 5, 3, dtype=torch.int64), None, TypeError, "^elements: expected a floating dtype"),
        (torch.zeros(2, 5, 3), torch.ones(2, 5), TypeError, "^valid: expected booleans"),
        (torch.zeros(2, 5, 3), torch.ones(2, 4, dtype=torch.bool), ValueError, r"^valid: expected \(2, 5\)"),
        (torch.full((2, 5, 3), math.nan), None, ValueError, "^elements: expected finite numbers where valid"),
        ([[[0.0]]], None, TypeError, "^elements: expected a tensor"),
    ],
)
def test_what_is_no_batch_of_sets_is_refused(entry, elements, valid, error, sentence):
    with pytest.raises(error, match=sentence):
        encoder_of(entry).float()(elements, valid)


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("deep_sets", {"pool": "min"}, "^pool: expected one of 'sum', 'mean', 'max'"),
        ("set_transformer", {"heads": 3}, "^heads: expected a divisor of the width 64, got 3"),
        ("set_transformer", {"scale": "length"}, "^scale: expected one of"),
        ("set_transformer", {"points": 0}, "^points: expected a whole number of at least 1"),
        ("power_sums", {"powers": 0}, "^powers: expected a whole number of at least 1"),
        ("power_sums", {"projections": 0}, "^projections: expected a whole number of at least 1"),
        ("umbc", {"activation": "relu"}, "^activation: expected one of"),
        ("commutative_monoid", {"operation": "min"}, "^operation: expected one of"),
        ("set_convolution", {"image_shape": (3, 2, 2)}, "^image_shape: expected three numbers of product 3"),
        ("set_convolution", {"filters": ()}, "^filters: expected a layer at least"),
    ],
)
def test_settings_that_do_not_fit_are_refused(name, settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        make("set_encoder", name, width=3, dim=4, **settings)


def test_chunks_and_picks_that_do_not_fit_are_refused():
    encoder = DeepSets(3, 4)
    with pytest.raises(ValueError, match=r"^chunks: expected at least one, got none"):
        encoder.encode_chunks([])
    with pytest.raises(ValueError, match=r"^picked: expected int64 \[2, m\]"):
        encoder.encode_sampled(torch.zeros(2, 5, 3), None, torch.zeros(3, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"^size: expected a whole number of at most 5"):
        draw_elements(torch.ones(2, 5, dtype=torch.bool), 6)
