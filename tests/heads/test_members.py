"""Several heads side by side are the mean of themselves, in prediction and in weights."""

import pytest
import torch

from vicinal.encoders import MemberProjectors, Projector
from vicinal.heads import NONA, Dense, Ensemble
from vicinal.heads.members import alike_members
from vicinal.masks import SoftStep, TopK


@pytest.fixture
def rows():
    generator = torch.Generator().manual_seed(0)
    queries, bank = (torch.randn(n, 6, generator=generator, dtype=torch.float64) for n in (5, 9))
    return queries, bank, torch.rand(9, generator=generator, dtype=torch.float64)


def heads():
    torch.manual_seed(1)
    return [NONA(mask=SoftStep(3)).double(), NONA("squared_l2").double()]


def identity():
    return {"query_ids": torch.arange(5), "bank_ids": torch.arange(9)}


def test_prediction_is_the_mean_and_weights_explain_it(rows):
    queries, bank, labels = rows
    head = Ensemble(heads())
    alone = [
        one(queries[:, 3 * m : 3 * m + 3], bank[:, 3 * m : 3 * m + 3], labels, **identity())
        for m, one in enumerate(head.heads)
    ]
    torch.testing.assert_close(head(*rows, **identity()), (alone[0] + alone[1]) / 2)
    torch.testing.assert_close(head.each(*rows, **identity()), torch.stack(alone, dim=-1))
    weights = head.weights(queries, bank, **identity())
    torch.testing.assert_close(weights.sum(-1), torch.ones(5, dtype=torch.float64))
    assert torch.equal(weights.diagonal(), torch.zeros(5, dtype=torch.float64))
    torch.testing.assert_close(weights @ labels, head(*rows, **identity()))
    values, places = head.top_weights(queries, bank, 4, **identity())
    torch.testing.assert_close(weights.gather(1, places), values)
    assert head.uses_bank
    assert head.can_stream


def test_classes_have_the_members_last(rows):
    queries, bank, _ = rows
    labels = torch.eye(3, dtype=torch.float64)[torch.arange(9) % 3]
    head = Ensemble(heads())
    assert head.each(queries, bank, labels).shape == (5, 3, 2)
    torch.testing.assert_close(head(queries, bank, labels).sum(-1), torch.ones(5, dtype=torch.float64))


def test_dense_members(rows):
    head = Ensemble([Dense(2).double() for _ in range(3)])
    assert not head.uses_bank
    assert not head.can_stream
    assert head(*rows).shape == (5,)


def test_refused(rows):
    with pytest.raises(ValueError, match=r"^heads: expected at least one head, got none"):
        Ensemble([])
    with pytest.raises(ValueError, match=r"^heads: expected all to use the bank or none"):
        Ensemble([NONA(), Dense(2)])
    with pytest.raises(ValueError, match=r"^queries: expected \[rows, d \* 4\]"):
        Ensemble([NONA() for _ in range(4)])(*rows)


def single(members, m, in_dim, sizes):
    """Member ``m`` as a projector of its own."""
    alone = Projector(in_dim, sizes).double()
    state = members.state_dict()
    for layer in range(len(sizes)):
        norm, linear = alone.layers[3 * layer], alone.layers[3 * layer + 1]
        width = norm.num_features
        cut = slice(m * width, (m + 1) * width)
        with torch.no_grad():
            linear.weight.copy_(members.weights[layer][m].T)
            linear.bias.copy_(members.biases[layer][m])
            norm.weight.copy_(members.gain[m] if layer == 0 else state[f"norms.{layer}.weight"][cut])
            norm.bias.copy_(members.offset[m] if layer == 0 else state[f"norms.{layer}.bias"][cut])
    return alone


@pytest.mark.parametrize("sizes", [(5, 3), (4,), (6, 5, 2)])
def test_each_member_is_a_projector(sizes):
    torch.manual_seed(0)
    members = MemberProjectors(7, sizes, members=3).double()
    with torch.no_grad():
        for parameter in members.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    alone = [single(members, m, 7, sizes) for m in range(3)]
    x = torch.randn(20, 7, dtype=torch.float64)
    for training in (True, False):  # in evaluation the running statistics of the training pass are compared too
        for module in (members, *alone):
            module.train(training)
        torch.testing.assert_close(members(x), torch.cat([one(x) for one in alone], dim=1))


def test_gradients_with_and_without_dropout_paths():
    torch.manual_seed(0)
    members = MemberProjectors(4, (3, 2), members=2, final_tanh=False).double()
    x = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(members, (x,))
    folded = members(x)
    members.dropout = 1e-12  # the other way to the same numbers: nothing is dropped at this rate
    torch.testing.assert_close(members(x), folded)


def test_members_drop_different_inputs():
    torch.manual_seed(0)
    members = MemberProjectors(8, (4, 3), 0.5, members=2)
    with torch.no_grad():
        for stacked in (*members.weights, *members.biases):
            stacked[1] = stacked[0]
    members.eval()
    first, second = members(torch.randn(16, 8)).chunk(2, dim=1)
    torch.testing.assert_close(first, second)
    members.train()
    first, second = members(torch.randn(16, 8)).chunk(2, dim=1)
    assert not torch.allclose(first, second)


def test_projectors_refused():
    with pytest.raises(ValueError, match=r"^sizes: expected the width of at least one layer"):
        MemberProjectors(3, ())
    with pytest.raises(ValueError, match=r"^embeddings: expected \[b, 3\]"):
        MemberProjectors(3, (2,))(torch.zeros(2, 4))


@pytest.mark.parametrize("similarity", ["l2", "l1", "cosine", "dot", "squared_l2"])
@pytest.mark.parametrize("mask", ["none", "s1", "s2", "global", "topk"])
@pytest.mark.parametrize("simplex", ["softmax", "entmax15"])
def test_members_that_are_alike_are_computed_as_one_head_and_give_what_each_gives_alone(similarity, mask, simplex):
    makes = {
        "none": lambda: None,
        "s1": lambda: SoftStep(3, "s1"),
        "s2": lambda: SoftStep(3),
        "global": lambda: SoftStep(3, parameters="global", extent="all"),
        "topk": lambda: TopK(4),
    }
    torch.manual_seed(1)
    heads = [NONA(similarity, makes[mask](), simplex).double() for _ in range(3)]
    for parameter in Ensemble(heads).parameters():
        torch.nn.init.normal_(parameter)
    assert alike_members(heads) == heads
    rows, labels, ids = torch.randn(11, 9).double(), torch.rand(11).double(), torch.arange(11)
    identity = {"query_ids": ids, "bank_ids": ids, "query_groups": ids // 3, "bank_groups": ids // 3}
    x = rows.clone().requires_grad_()
    together = Ensemble(heads).each(x, x, labels, **identity)
    z = rows.clone().requires_grad_()
    parts = z.chunk(3, dim=1)
    apart = torch.stack([head(part, part, labels, **identity) for head, part in zip(heads, parts, strict=True)], dim=-1)
    torch.testing.assert_close(together, apart, rtol=0, atol=1e-14)
    direction = torch.randn(11, 3).double()
    (got,), (want,) = (torch.autograd.grad(value, leaf, direction) for value, leaf in ((together, x), (apart, z)))
    torch.testing.assert_close(got, want)
    one_hot = torch.nn.functional.one_hot(ids % 4).double()
    torch.testing.assert_close(
        Ensemble(heads).each(rows, rows, one_hot, **identity),
        torch.stack([h(p, p, one_hot, **identity) for h, p in zip(heads, rows.chunk(3, dim=1), strict=True)], dim=-1),
    )


def test_members_that_differ_are_computed_apart():
    assert alike_members([NONA()]) == []
    assert alike_members([NONA(), NONA("cosine")]) == []
    assert alike_members([NONA(mask=SoftStep(2)), NONA(mask=SoftStep(2, "s1"))]) == []
    assert alike_members([NONA(mask=SoftStep(2)), NONA(mask=SoftStep(2, eps=1e-4))]) == []
    assert alike_members([NONA(simplex="entmax15"), NONA()]) == []
    assert alike_members([NONA(), Dense(2)]) == []
    assert alike_members([NONA(mask=torch.nn.Identity()), NONA(mask=torch.nn.Identity())]) == []
