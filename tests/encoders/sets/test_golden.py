"""Encoders of sets against what the programs of their authors give, in float64; and what defines each."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import references.sets as reference
from vicinal.encoders.sets import (
    UMBC,
    AttentionPooling,
    AttSets,
    CommutativeFold,
    Counts,
    DeepSets,
    EquivariantLayer,
    ExponentialSums,
    FeatureAttention,
    InducedAttentionBlock,
    Moments,
    PowerSums,
    PreNormBlock,
    SelfAttentionBlock,
    SetConvolution,
    SetConvolution2d,
    SetTransformer,
    SlicedQuantiles,
    SlotSums,
    two_phase_backward,
)
from vicinal.encoders.sets.view_transformer import ViewTransformer, max_mean
from vicinal.transport import sliced_wasserstein

GOLDEN = Path(__file__).parents[2] / "golden/sets"
EXACT = {"rtol": 1e-9, "atol": 1e-9}


def load(name):
    with np.load(GOLDEN / f"{name}.npz") as data:
        return {key: torch.from_numpy(data[key]) for key in data if data[key].dtype.kind != "U"}


def put(module, pairs):
    """Set parameters by their names; what is not named stays."""
    state = module.state_dict()
    module.double().load_state_dict(state | {name: value.reshape(state[name].shape) for name, value in pairs.items()})
    return module.eval()


def check(got, want, x=None, want_dx=None, power=2):
    torch.testing.assert_close(got.detach(), want, **EXACT)
    if x is not None:
        (grad,) = torch.autograd.grad((got**power).sum(), x)
        torch.testing.assert_close(grad, want_dx, **EXACT)


def normal(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def ragged(values, index):
    """Rows with the number of their set, as a padded batch."""
    sizes = torch.bincount(index)
    valid = torch.arange(int(sizes.max())) < sizes[:, None]
    elements = values.new_full((*valid.shape, values.shape[1]), 1e6)
    elements[valid] = values
    return elements, valid


NAMES = {"fc_q": "query", "fc_k": "key", "fc_v": "value", "fc_o": "out", "ln0": "norms.0", "ln1": "norms.1"}


def block(data, prefix, place):
    """Weights of a MAB of the authors under the names of ours."""
    found = {key.removeprefix(f"{prefix}."): value for key, value in data.items() if key.startswith(f"{prefix}.")}
    parts = [key.split(".") for key in found]
    return {f"{place}.{NAMES[part]}.{kind}": found[f"{part}.{kind}"] for part, kind in parts}


@pytest.mark.parametrize("case", ["sab", "sab_ln"])
def test_self_attention_block(case):
    data = load("set_transformer")
    module = SelfAttentionBlock(3, 8, heads=2, normalize=case == "sab_ln")
    put(module, block(data, f"{case}.mab", "block"))
    x = data["x"].requires_grad_()
    check(module(x), data[f"{case}_out"], x, data[f"{case}_dx"])
    if case == "sab":
        check(module(data["one_x"]), data["one_sab_out"])


def test_induced_attention_block():
    data = load("set_transformer")
    module = InducedAttentionBlock(3, 8, points=4, heads=2, normalize=True)
    pairs = block(data, "isab.mab0", "gather") | block(data, "isab.mab1", "spread")
    put(module, pairs | {"points": data["isab.I"]})
    x = data["x"].requires_grad_()
    check(module(x), data["isab_out"], x, data["isab_dx"])
    check(module(data["one_x"]), data["one_isab_out"])


def test_attention_pooling():
    data = load("set_transformer")
    module = AttentionPooling(8, seeds=3, heads=4, normalize=True)
    put(module, block(data, "pma.mab", "block") | {"seeds": data["pma.S"]})
    x = data["pma_in"].requires_grad_()
    check(module(x), data["pma_out"], x, data["pma_dx"])
    check(module(data["one_pma_in"]), data["one_pma_out"])
    torch.testing.assert_close(module(x.repeat(1, 2, 1)), module(x))  # a set twice is the set


def test_a_set_transformer_is_its_blocks():
    encoder = SetTransformer(3, 4, hidden=8, points=4, heads=2, scale="head").double()
    x = normal(0, 2, 5, 3)
    values = encoder.out(encoder.pooling(encoder.blocks[1](encoder.blocks[0](x)))[:, 0])
    torch.testing.assert_close(encoder(x), values)
    wide = SetTransformer(3, 4, hidden=8, points=4, heads=2).double()
    wide.load_state_dict(encoder.state_dict())
    assert (wide(x) - encoder(x)).abs().max() > 1e-6  # another scale


def test_deep_sets():
    data = load("deepsets_invariant")
    encoder = DeepSets(4, 3)
    encoder.phi = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5))
    encoder.rho = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3))
    names = {"phi": "local_nn", "rho": "global_nn"}
    put(
        encoder,
        {f"{ours}.{k}": data[f"w.{theirs}.{k}"] for ours, theirs in names.items() for k in encoder.phi.state_dict()},
    )
    x = data["x"].requires_grad_()
    check(encoder(*ragged(x, data["index"])), data["out"], x, data["dx"])


def test_pools_of_deep_sets():
    x = normal(1, 2, 3, 4)
    for pool, reduce in {"mean": lambda v: v.mean(1), "max": lambda v: v.amax(1), "sum": lambda v: v.sum(1)}.items():
        encoder = DeepSets(4, 3, pool=pool).double()
        torch.testing.assert_close(encoder(x), encoder.rho(reduce(encoder.phi(x))))
        if pool != "sum":
            torch.testing.assert_close(encoder(x.repeat(1, 2, 1)), encoder(x))


@pytest.mark.parametrize("pool", ["max", "mean"])
@pytest.mark.parametrize("centered", [True, False])
def test_equivariant_layer(pool, centered):
    data = load("deepsets_equivariant")
    name = f"PermEqui{1 if centered else 2}_{pool}"
    module = EquivariantLayer(3, 6, pool=pool, centered=centered)
    pairs = {"gamma.weight": data[f"{name}.Gamma.weight"], "gamma.bias": data[f"{name}.Gamma.bias"]}
    if not centered:
        pairs["pooled.weight"] = data[f"{name}.Lambda.weight"]
    put(module, pairs)
    for case in ("x", "one_x", "tie_x"):
        check(module(data[case]), data[f"{name}_out_{case}"])
    x = data["x"]
    padded = torch.cat([x, torch.full((2, 2, 3), 1e6)], dim=1)
    valid = torch.tensor([[True] * 4 + [False] * 2] * 2)
    torch.testing.assert_close(module(padded, valid)[:, :4], module(x))
    assert (module(padded, valid)[:, 4:] == 0).all()
    torch.testing.assert_close(module(x[:, [2, 0, 3, 1]]), module(x)[:, [2, 0, 3, 1]])
    if centered:
        torch.testing.assert_close(module(x + 7), module(x))


def test_commutative_fold():
    data = load("lcm")
    module = CommutativeFold(4, 6)
    names = {"lift.": "w.lin.", "cell.": "w.gru_cell."}
    pairs = {
        name: data[theirs + name.removeprefix(ours)]
        for ours, theirs in names.items()
        for name in module.state_dict()
        if name.startswith(ours)
    }
    put(module, pairs)
    x = data["x"].requires_grad_()
    elements, valid = ragged(x, data["index"])
    check(module(elements, valid), data["out"], x, data["dx"])
    five = data["x5"][None]
    check(module(five), data["out5"])
    check(module(five[:, data["out5_perm_order"]]), data["out5_perm"])
    check(module(five[:, :1]), data["out_single"])
    check(module(five[:, :2]), data["out2"])
    check(module(five[:, [1, 0]]), data["out2_swapped"])


def test_a_fold_by_a_sum_or_a_maximum_is_one_and_has_no_penalty_of_order():
    x = normal(2, 3, 5, 4)
    for operation, reduce in {"sum": lambda v: v.sum(1), "max": lambda v: v.amax(1)}.items():
        module = CommutativeFold(4, 6, operation=operation).double()
        torch.testing.assert_close(module(x), reduce(module.lift(x).relu()))
        associative, identity = module.penalties(x.flatten(0, 1))
        assert associative < 1e-25
        assert identity == 0
    learned = CommutativeFold(4, 6).double()
    assert all(penalty > 1e-4 for penalty in learned.penalties(x.flatten(0, 1)))


def test_feature_attention():
    data = load("attsets")
    module = put(FeatureAttention(4), {f"gate.{k}": data[f"w.gate_nn.{k}"] for k in ("weight", "bias")})
    x = data["x"].requires_grad_()
    elements, valid = ragged(x, data["index"])
    got = module(elements, valid)
    check(got, data["out"])
    (got**2).sum().backward()
    torch.testing.assert_close(x.grad, data["dx"], **EXACT)
    for kind in ("weight", "bias"):
        torch.testing.assert_close(getattr(module.gate, kind).grad, data[f"g.gate_nn.{kind}"], **EXACT)


def test_feature_attention_lies_within_its_set_and_one_element_is_itself():
    module, x = FeatureAttention(3, outputs=2).double(), normal(3, 4, 5, 3)
    got = module(x).unflatten(1, (2, 3))
    assert ((got >= x.amin(1)[:, None]) & (got <= x.amax(1)[:, None])).all()
    single = module(x[:, :1])
    torch.testing.assert_close(single, x[:, 0].repeat(1, 2))
    assert all((grad == 0).all() for grad in torch.autograd.grad(single.sum(), module.parameters()))
    with torch.no_grad():
        module.gate.weight.zero_()
    torch.testing.assert_close(module(x), x.mean(1).repeat(1, 2))
    bounded = FeatureAttention(3, tanh=True).double()
    weights = bounded.gate(x).tanh().softmax(dim=1)
    torch.testing.assert_close(bounded(x), (weights * x).sum(1))


def test_two_phases_train_attention_by_sets_and_the_rest_by_single_elements():
    encoder, x, targets = AttSets(3, 2, hidden=5).double(), normal(4, 4, 5, 3), normal(5, 4, 2)
    valid = torch.arange(5) < torch.tensor([5, 3, 1, 2])[:, None]
    loss = nn.functional.mse_loss
    single, whole = two_phase_backward(encoder, x, valid, targets, loss)
    gradients = {name: parameter.grad for name, parameter in encoder.named_parameters()}
    encoder.zero_grad()
    alone = loss(encoder(x[valid][:, None]), targets.repeat_interleave(valid.sum(1), dim=0))
    together = loss(encoder(x, valid), targets)
    assert (single, whole) == (alone, together)
    for name, parameter in encoder.named_parameters():
        source = together if name.startswith("attention") else alone
        want = torch.autograd.grad(source, parameter, retain_graph=True, allow_unused=True)[0]
        assert (gradients[name] is None) == (want is None)
        if want is not None:
            torch.testing.assert_close(gradients[name], want)
    with pytest.raises(ValueError, match=r"^model: expected a module with a FeatureAttention"):
        two_phase_backward(DeepSets(3, 2).double(), x, valid, targets, loss)
    with pytest.raises(ValueError, match=r"^valid: expected an element at least"):
        two_phase_backward(encoder, x, valid & False, targets, loss)


def slots(activation="slot-sigmoid"):
    data = load("umbc_slot_set_encoder")
    module = SlotSums(5, 8, slots=3, slot_width=6, heads=2, activation=activation)
    names = {
        "query": "q.linear",
        "key": "k.linear",
        "value": "v.linear",
        "slot_norm": "norm_slots",
        "norm": "norm_after",
    }
    pairs = {f"{ours}.{k}": data[f"w.{theirs}.{k}"] for ours, theirs in names.items() for k in ("weight", "bias")}
    return data, put(module, pairs | {"slots": data["w.slots.S"]}), names | {"slots": "slots.S"}


@pytest.mark.parametrize("activation", ["softmax", "sigmoid", "slot-sigmoid", "slot-softmax", "slot-exp"])
def test_slots(activation):
    data, module, _ = slots(activation)
    x, every = data["x"].requires_grad_(), torch.ones(2, 7, dtype=torch.bool)
    got = module.read_out(module.sums(x, every))
    check(got, data[f"{activation}_out"], x, data[f"{activation}_dx"], power=3)
    check(module.read_out(module.sums(x, data["mask"].bool())), data[f"{activation}_out_masked"])
    parts = [module.sums(part, every[:, : part.shape[1]]) for part in x.split([3, 4], dim=1)]
    check(
        module.read_out(tuple(one + other for one, other in zip(*parts, strict=True))),
        data[f"{activation}_out_chunks_3_4"],
    )


def test_the_gradient_of_chunks_is_unbiased_where_the_public_rule_is_not():
    """Its mean over all choices of 2 of 7 elements is that of the whole set, for every parameter."""
    data, module, names = slots("softmax")
    encoder = UMBC(5, 8, hidden=8, heads=2).double()
    encoder.slots, encoder.block, encoder.pooling, encoder.out = module, nn.Identity(), nn.Identity(), nn.Identity()
    encoder.read_out = module.read_out
    encoder.with_empty = lambda vectors, some: vectors
    total = {name: 0 for name, _ in module.named_parameters()}
    choices = list(combinations(range(7), 2))
    for picked in choices:
        value = encoder.encode_sampled(data["x"], None, torch.tensor([picked] * 2), chunk_size=3)
        torch.testing.assert_close(value.detach(), data["softmax_out"], **EXACT)
        grads = torch.autograd.grad((value**3).sum(), list(module.parameters()))
        for name, grad in zip(total, grads, strict=True):
            total[name] = total[name] + grad / len(choices)
    biased = []
    for name, grad in total.items():
        theirs = names[name] if name == "slots" else f"{names[name.split('.')[0]]}.{name.split('.')[1]}"
        torch.testing.assert_close(grad.reshape(data[f"fullgrad.{theirs}"].shape), data[f"fullgrad.{theirs}"], **EXACT)
        if (data[f"meanchunkgrad.{theirs}"] - data[f"fullgrad.{theirs}"]).abs().max() > 1e-3:
            biased.append(name.split(".")[0])
    assert set(biased) == {"slots", "query", "slot_norm"}


def test_pre_norm_blocks_with_largest_and_mean():
    data = load("vsformer_encoder")
    blocks = [PreNormBlock(8, heads=2) for _ in range(2)]
    names = {
        "norm": "sa.norm",
        "query": "sa.attention.q_proj",
        "key": "sa.attention.k_proj",
        "value": "sa.attention.v_proj",
        "out": "sa.attention.o_proj",
        "network.0": "mlp.0",
        "network.1": "mlp.1",
        "network.3": "mlp.3",
    }
    for i, each in enumerate(blocks):
        keys = [key.rpartition(".") for key in each.state_dict()]
        put(each, {f"{part}.{kind}": data[f"w.sa_layers.{i}.{names[part]}.{kind}"] for part, _, kind in keys})
    x, every = data["x"].requires_grad_(), torch.ones(2, 5, dtype=torch.bool)
    tokens = blocks[1](blocks[0](x))
    torch.testing.assert_close(tokens.detach(), data["tokens"], **EXACT)
    check(max_mean(tokens, every), data["pool"], x, data["dx"])
    check(max_mean(blocks[1](blocks[0](data["one_x"])), every[:1, :1]), data["one_pool"])


def test_a_view_transformer_is_its_parts_and_trains_on_a_batch_of_one():
    encoder, x = ViewTransformer(3, 4, hidden=8, blocks=2, heads=2).double(), normal(6, 2, 5, 3)
    encoder.eval()
    values = encoder.blocks[1](encoder.blocks[0](encoder.lift(x)))
    pooled = torch.cat([values.amax(1), values.mean(1)], dim=1)
    torch.testing.assert_close(encoder(x), encoder.rho(pooled))
    assert encoder.train()(x[:1]).isfinite().all()


@pytest.mark.parametrize("case", ["out", "out_bias"])
def test_set_convolution(case):
    data = load("set_conv2d")
    w = {key.removeprefix("w."): value for key, value in data.items() if key.startswith("w.")}
    if case == "out_bias":
        w |= {key.removeprefix("wb."): value for key, value in data.items() if key.startswith("wb.")}
    pairs = {"convolution.weight": w["conv.kernel"].permute(3, 2, 0, 1), "convolution.bias": w["conv.bias"]}
    for part in ("query", "key", "value"):
        pairs |= {f"{part}.weight": w[f"mhsa.{part}.kernel"][:, 0].T, f"{part}.bias": w[f"mhsa.{part}.bias"]}
    pairs |= {"out.weight": w["mhsa.attention_output.kernel"][0].T, "out.bias": w["mhsa.attention_output.bias"]}
    module = put(SetConvolution2d(3, 8), pairs)
    images = data["x"].permute(0, 3, 1, 2).reshape(2, 3, 3, 5, 5)
    got = module(images).flatten(0, 1).permute(0, 2, 3, 1)
    torch.testing.assert_close(got, data[case], rtol=1e-6, atol=1e-6)
    if case == "out_bias":
        moved = images.flatten(0, 1)[data["perm"]].unflatten(0, (2, 3))
        torch.testing.assert_close(
            module(moved).flatten(0, 1).permute(0, 2, 3, 1), data["out_perm"], rtol=1e-6, atol=1e-6
        )
        one = module(data["one_x"].permute(0, 3, 1, 2)[None])[0].permute(0, 2, 3, 1)
        torch.testing.assert_close(one, data["one_out"], rtol=1e-6, atol=1e-6)


def test_without_attention_a_set_convolution_is_a_convolution():
    encoder, x = SetConvolution(48, 3, image_shape=(3, 4, 4), filters=(5, 6)).double(), normal(7, 2, 4, 48)
    for layer in encoder.layers:
        nn.init.zeros_(layer.out.weight)
        nn.init.zeros_(layer.out.bias)
    images = x.reshape(8, 3, 4, 4)
    for layer in encoder.layers:
        images = layer.convolution(images).relu()
    assert images.shape == (8, 6, 2, 2)
    want = encoder.out(images.mean(dim=(-2, -1)).unflatten(0, (2, 4)).mean(dim=1))
    torch.testing.assert_close(encoder(x), want)


def test_sums_of_powers_and_exponentials_equal_numpy():
    x = normal(8, 3, 4, 2)
    for kind, name in ((PowerSums, "power_sums"), (ExponentialSums, "exponential_sums")):
        encoder = kind(2, 3, hidden=6).double()
        for scale in (1.0, x.abs().max().item()):
            want = [getattr(reference, name)(encoder, rows.numpy(), scale) for rows in x]
            np.testing.assert_allclose(encoder.eval()(x).detach().numpy(), want, rtol=1e-9, atol=1e-12)
            encoder.train()(x)  # sees the largest number
        halves = kind(2, 3, hidden=6, mean=True).double().eval()
        torch.testing.assert_close(halves(x.repeat(1, 3, 1)), halves(x))


@pytest.mark.parametrize(("kind", "formula"), [(Moments, reference.moments), (Counts, reference.counts)])
def test_moments_and_counts_equal_numpy_and_are_mapped_if_a_width_is_given(kind, formula):
    x, encoder = normal(8, 3, 4, 2), kind(2).double()
    want = np.stack([formula(encoder, rows.numpy()) for rows in x])
    np.testing.assert_allclose(encoder(x).detach().numpy(), want, rtol=1e-9, atol=1e-12)
    assert encoder.dim == 5
    assert [name for name, _ in encoder.named_parameters()] == ["empty"]
    mapped = kind(2, 3).double()
    torch.testing.assert_close(mapped(x), mapped.out(torch.from_numpy(want)))


@pytest.mark.parametrize("width", [1, 3, 40])
def test_quantiles_equal_numpy_and_their_distance_is_the_sliced_wasserstein_distance(width):
    encoder = SlicedQuantiles(width, directions=5, levels=4).double()
    x = normal(8, 6, 7, width)
    valid = torch.arange(7) < torch.tensor([1, 2, 3, 4, 5, 7])[:, None]
    want = np.stack([reference.sliced_quantiles(encoder, x[row, some].numpy()) for row, some in enumerate(valid)])
    np.testing.assert_allclose(encoder(x, valid).detach().numpy(), want, rtol=1e-12, atol=1e-12)
    assert encoder.dim == (5 if width > 1 else 1) * 4 + 1
    assert [name for name, _ in encoder.named_parameters()] == ["empty"]
    one, other = normal(1, 3, 4, width), normal(2, 3, 2, width)  # as many elements as levels, and half as many
    apart = (encoder(one) - encoder(other))[:, :-1].norm(dim=1)
    torch.testing.assert_close(apart, sliced_wasserstein(one, other, directions=encoder.along))
    mapped = SlicedQuantiles(width, 3, directions=5, levels=4).double()
    torch.testing.assert_close(mapped(x, valid), mapped.out(torch.from_numpy(want)))


def test_power_sums_of_one_projection_give_the_multiset_back():
    """Newton's identities: with as many powers as elements the sums are those of one multiset only."""
    encoder = PowerSums(1, 2, projections=1, powers=5).double().eval()
    nn.init.ones_(encoder.projection.weight)
    x = normal(9, 1, 5, 1)
    p = encoder.sums(x, torch.ones(1, 5, dtype=torch.bool))[0][0].detach().numpy()
    np.testing.assert_allclose(p, [(x.numpy() ** k).sum() for k in range(1, 6)])
    e = [1.0]
    for k in range(1, 6):
        e.append(sum((-1) ** (i - 1) * e[k - i] * p[i - 1] for i in range(1, k + 1)) / k)
    roots = np.roots([(-1) ** k * e[k] for k in range(6)])
    np.testing.assert_allclose(np.sort(roots.real), np.sort(x.numpy().ravel()), rtol=1e-6)


def test_multisets_that_differ_in_how_often_an_element_occurs_differ():
    a, b = normal(10, 2, 2)
    for kind in (PowerSums, ExponentialSums, DeepSets, UMBC):
        encoder = kind(2, 3).double().eval()
        assert (encoder(torch.stack([a, a, b])[None]) - encoder(torch.stack([a, b, b])[None])).abs().max() > 1e-6
