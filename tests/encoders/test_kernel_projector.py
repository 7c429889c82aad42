"""The columns of a plain table as a learned kernel sees them."""

import math

import numpy as np
import pytest
import torch

import references.table_kernel as reference
from vicinal.encoders.components import Components
from vicinal.encoders.kernel_projector import KernelProjector, TrendProjector


def fitted(n=50, seed=0):
    """A projector of two columns of numbers and one of zeros and ones, and its training rows."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    x[:, 1] = (x[:, 1] > 0).double()
    projector = KernelProjector(3, [0, 2]).fit(x)
    with torch.no_grad():
        projector.log_lengths.copy_(torch.tensor([0.1, 1.0, -0.5]))
        projector.log_linear.fill_(-0.7)
        projector.log_pieces.fill_(0.4)
    return projector, x


def test_pieces_are_those_of_the_reference_also_beyond_the_ends():
    projector, x = fitted()
    fresh = 3 * torch.randn(40, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    want = [np.hstack([reference.pieces(z[:, j].numpy(), x[:, j].numpy()) for j in (0, 2)]) for z in (x, fresh)]
    np.testing.assert_allclose(projector.terms(fresh)[1].numpy(), want[1] - want[0].mean(0), atol=1e-12)
    assert abs(want[1]).max() == pytest.approx(3 / math.sqrt(8))
    np.testing.assert_allclose(projector.terms(fresh)[0].numpy(), fresh - x.mean(0), atol=1e-12)


def test_products_and_distances_are_those_of_the_kernel():
    projector, x = fitted()
    with torch.no_grad():
        rows = projector(x).numpy()
    inputs, pieces = (part.numpy() for part in projector.terms(x))
    lengths = np.exp([0.1, 1.0, -0.5])
    r = np.sqrt((((inputs[:, None] - inputs) / lengths) ** 2).sum(-1))
    near, line = rows[:, :3], rows[:, 3:]
    assert line.shape[1] == projector.linear == projector.dim - 3
    np.testing.assert_allclose(((near[:, None] - near) ** 2).sum(-1), 3 * r**2, atol=1e-12)
    want = math.exp(-0.7) / 3 * inputs @ inputs.T + math.exp(0.4) * pieces @ pieces.T
    np.testing.assert_allclose(line @ line.T, want, atol=1e-12)


@pytest.mark.parametrize("weight", [1.0, 0.5])
def test_distances_of_steps_are_those_of_the_reference_also_beyond_the_ends(weight):
    projector, x = fitted()
    if weight != 1:  # numbers that share a length weigh less each
        projector.components = Components([3], [True], shared=[True])
        projector.scale = torch.full((3,), weight, dtype=torch.float64)
        projector.fit(x)
        projector.scale.fill_(weight)
        x = x / weight
    projector.read_steps(x)
    fresh = 3 * torch.randn(40, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    rows, others = (projector(part).detach().numpy()[:, : -projector.linear] for part in (x, fresh))
    assert rows.shape[1] == len(projector.places) == 1 + 2 * 16
    got = ((rows[:, None] - others) ** 2).sum(axis=2)
    first, second, lengths = x.numpy(), fresh.numpy(), np.exp([0.1, 1.0, -0.5])
    steps = [reference.steps_apart(first[:, j], second[:, j], first[:, j]) for j in (0, 2)]
    near = [steps[0], (first[:, 1, None] - second[:, 1]) ** 2, steps[1]]
    want = 3 * weight**2 * sum(part / length**2 for part, length in zip(near, lengths, strict=True))
    np.testing.assert_allclose(got, want, atol=1e-10)


def test_the_distance_of_the_kernel_is_that_of_the_vectors_up_to_third_order_and_never_more():
    projector, x = fitted()
    for step in (1.0, 1e-1, 1e-2, 1e-3):
        with torch.no_grad():
            first, second = projector(x), projector(x + step * torch.tensor([1.0, -1.0, 0.5]).double())
        apart = first - second
        squared = apart.square().sum(dim=1)
        line = apart[:, 3:].square().sum(dim=1)
        distance = (squared - line).sqrt()  # sqrt(3) r
        own = 2 - 2 * (1 + distance) * (-distance).exp() + line
        assert (own <= squared + 1e-15).all()
        assert ((squared - own) <= 0.67 * distance**3).all()


def test_lines_are_a_trend_of_their_folds_without_bends():
    kernel, x = fitted()
    draw = torch.Generator().manual_seed(2)
    slopes, starts = (torch.randn(*shape, generator=draw, dtype=torch.float64) for shape in ((4, 2, 3), (4, 2)))
    projector = TrendProjector(kernel, folds=4, targets=2)
    projector.take_lines(slopes, starts)
    folds = torch.arange(len(x)) % 5 - 1
    got = projector(x, folds)[:, projector.width :].unflatten(1, (2, 3))
    of_fold = torch.cat([slopes, slopes.mean(dim=0)[None]])[folds]  # of rows of no fold the mean
    torch.testing.assert_close(got, of_fold * (x - x.mean(dim=0))[:, None], rtol=0, atol=1e-12)
    torch.testing.assert_close(projector.base, starts.mean(dim=0), rtol=0, atol=1e-12)


def test_a_constant_column_says_nothing():
    x = torch.zeros(20, 2, dtype=torch.float64)
    x[:, 0] = torch.linspace(-1, 1, 20)
    projector = KernelProjector(2, [0, 1]).fit(x)
    _, pieces = projector.terms(torch.tensor([[0.0, 0.0], [0.0, 5.0]]))
    assert torch.equal(pieces[0], pieces[1])


def test_another_width_is_refused():
    projector, x = fitted()
    with pytest.raises(ValueError, match=r"^features: expected \[b, 3\], got \(50, 2\)"):
        projector(x[:, :2])
