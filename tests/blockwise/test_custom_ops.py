"""Operators of our own: the same values and gradients in eager mode and as one node of a compiled graph."""

import pytest
import torch
from torch import Tensor

from vicinal.blockwise import custom_op, opaque_op


def compiled(function):
    torch._dynamo.reset()
    return torch.compile(function, backend="aot_eager", fullgraph=True)


@pytest.fixture
def rows():
    return torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.slow
def test_steps_that_look_at_the_data_are_one_node(rows):
    @opaque_op("test_longest", lambda x: x.new_empty(x.shape[1]))
    def longest(x: Tensor) -> Tensor:
        return x[int(x.square().sum(1).argmax())].clone()

    torch.testing.assert_close(compiled(lambda x: 2 * longest(x))(rows), 2 * longest(rows))
    assert longest.__name__ == "longest"


def test_random_steps_are_drawn_anew(rows):
    @opaque_op("test_drawn", torch.empty_like, random=True)
    def drawn(x: Tensor) -> Tensor:
        return torch.rand_like(x)

    assert bool((compiled(lambda x: drawn(x) - drawn(x))(rows) != 0).all())


def test_a_backward_of_its_own(rows):
    def keep(ctx, inputs, output):
        ctx.save_for_backward(output)

    def backward(ctx, outer):
        return outer * ctx.saved_tensors[0]

    op = custom_op("test_exp", exponential, torch.empty_like, save=keep, backward=backward)
    x = rows.requires_grad_()
    (grad,) = torch.autograd.grad(compiled(lambda x: op(x).sum())(x), x)
    torch.testing.assert_close(grad, rows.exp())


def exponential(x: Tensor) -> Tensor:
    return x.exp()


def test_a_name_that_is_registered_again_takes_the_place_of_the_former(rows):
    def twice(x: Tensor) -> Tensor:
        return 2 * x

    custom_op("test_again", exponential, torch.empty_like)
    torch.testing.assert_close(custom_op("test_again", twice, torch.empty_like)(rows), 2 * rows)
