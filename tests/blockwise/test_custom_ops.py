"""Operators of our own: the same values and gradients in eager mode and as one node of a compiled graph."""

import pytest
import torch
from torch import Tensor

from vicinal.blockwise import custom_op, opaque_op, value_and_grad_op


def cubes(x: Tensor, scale: Tensor, with_grad: bool) -> tuple[Tensor, Tensor, Tensor]:
    grad = 3 * scale * x.square() if with_grad else x[:, :0].clone()
    return (scale * x**3).sum(1), (x > 0).sum(1), grad


def like_cubes(x: Tensor, scale: Tensor, with_grad: bool) -> tuple[Tensor, Tensor, Tensor]:
    rows = x.new_empty(len(x))
    return rows, rows.new_empty(len(x), dtype=torch.int64), x.new_empty(len(x), x.shape[1] if with_grad else 0)


def compiled(function):
    torch._dynamo.reset()
    return torch.compile(function, backend="aot_eager", fullgraph=True)


@pytest.fixture
def rows():
    return torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("around", [lambda f: f, compiled])
def test_value_and_grad(rows, around):
    op = value_and_grad_op("test_cubes", cubes, like_cubes)
    scale, outer = torch.rand(4, 1, dtype=torch.float64), torch.rand(4, dtype=torch.float64)
    x = rows.clone().requires_grad_()
    value, count = around(op)(x, scale)
    torch.testing.assert_close(value, (scale * rows**3).sum(1))
    assert count.tolist() == (rows > 0).sum(1).tolist()
    assert not count.requires_grad
    (grad,) = torch.autograd.grad((value * outer).sum(), x)
    torch.testing.assert_close(grad, outer[:, None] * 3 * scale * rows**2)
    assert torch.autograd.gradcheck(lambda x: op(x, scale)[0], x)


@pytest.mark.parametrize("around", [lambda f: f, compiled])
def test_no_gradient_is_computed_that_nobody_asks_for(rows, around):
    asked = []

    def watched(x: Tensor, with_grad: bool) -> tuple[Tensor, Tensor]:
        asked.append(with_grad)
        return x.sum().clone(), torch.ones_like(x)

    op = value_and_grad_op("test_watched", watched, lambda x, _: (x.new_empty(()), torch.empty_like(x)))
    around(op)(rows)
    around(op)(rows.requires_grad_())
    assert asked == [False, True]


def test_a_gradient_can_be_taken_once(rows):
    op = value_and_grad_op("test_once", cubes, like_cubes)
    x = rows.requires_grad_()
    (grad,) = torch.autograd.grad(op(x, torch.ones(4, 1).double())[0].square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


def test_another_argument_that_needs_a_gradient_is_refused(rows):
    op = value_and_grad_op("test_refused", cubes, like_cubes, others="scale")
    with pytest.raises(ValueError, match="scale: expected none that needs a gradient, which test_refused gives of"):
        op(rows, torch.ones(4, 1, requires_grad=True))
    with torch.no_grad():
        op(rows, torch.ones(4, 1, requires_grad=True))


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
