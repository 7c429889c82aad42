"""The paper's projector."""

import pytest
import torch
from torch import nn

from vicinal.encoders import MemberProjectors, Projector


def test_is_batch_norm_linear_tanh_twice():
    torch.manual_seed(0)
    projector = Projector(7, (5, 3))
    assert [type(layer) for layer in projector.layers] == [nn.BatchNorm1d, nn.Linear, nn.Tanh] * 2
    assert projector.dim == 3
    x = torch.randn(9, 7, dtype=torch.float64) * 5 + 2
    projector.double()
    want = x
    for number in (1, 4):
        want = (want - want.mean(0)) / (want.var(0, correction=0) + 1e-5).sqrt()
        line = projector.layers[number]
        want = torch.tanh(want @ line.weight.T + line.bias)
    torch.testing.assert_close(projector(x), want)


def test_computes_in_its_own_dtype():
    projector = Projector(4, (3,)).eval()
    assert projector(torch.randn(2, 4, dtype=torch.float64)).dtype == torch.float32
    assert projector.double()(torch.randn(2, 4)).dtype == torch.float64


def test_without_layers_nothing_happens():
    x = torch.randn(2, 4, dtype=torch.float64)
    assert Projector(4, ())(x) is x
    assert Projector(4, ()).dim == 4


def test_dropout_only_while_training():
    torch.manual_seed(0)
    projector = Projector(50, (4,), dropout=0.5)
    x = torch.randn(8, 50)
    assert not torch.equal(projector(x), projector(x))
    projector.eval()
    assert torch.equal(projector(x), projector(x))


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match=r"^embeddings: expected \[b, 4\], got \(2, 5\)"):
        Projector(4)(torch.zeros(2, 5))
    with pytest.raises(ValueError, match=r"^dropout: expected a number between 0 and 1, got 1"):
        Projector(4, dropout=1)
    with pytest.raises(ValueError, match=r"^in_dim: expected a whole number of at least 1"):
        Projector(0)
    with pytest.raises(ValueError, match=r"^sizes: expected a whole number of at least 1"):
        Projector(3, (4, 0))


def test_members_drop_the_share_that_is_asked_for_and_keep_the_mean():
    torch.manual_seed(0)
    projectors = MemberProjectors(64, (8,), dropout=0.25, members=4)
    dropped = projectors._drop(torch.ones(4, 501, 63))
    assert float((dropped == 0).float().mean()) == pytest.approx(0.25, abs=0.005)
    assert dropped[dropped > 0].unique().tolist() == pytest.approx([4 / 3])
    alike = (dropped[..., 1:] == dropped[..., :-1]).float().mean()
    assert float(alike) == pytest.approx(0.25**2 + 0.75**2, abs=0.01)
    assert (projectors.eval()._drop(torch.ones(2, 3)) == 1).all()
