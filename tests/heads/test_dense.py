"""The dense head."""

import numpy as np
import pytest
import torch

from vicinal.heads import Dense


def test_equals_numpy(generator):
    head = Dense(3, outputs=2).double()
    queries = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    weight, bias = (p.detach().numpy() for p in (head.linear.weight, head.linear.bias))
    np.testing.assert_allclose(head(queries).detach().numpy(), queries.numpy() @ weight.T + bias, rtol=1e-12)


def test_one_target_has_no_dimension_of_its_own():
    assert Dense(3)(torch.zeros(5, 3)).shape == (5,)
    assert Dense(3, outputs=1)(torch.zeros(5, 3)).shape == (5, 1)
    assert Dense(3)(torch.zeros(0, 3)).shape == (0,)


def test_softmax_gives_probabilities(generator):
    got = Dense(3, outputs=4, activation="softmax")(10 * torch.randn(6, 3, generator=generator))
    assert (got >= 0).all()
    torch.testing.assert_close(got.sum(dim=-1), torch.ones(6))
    assert Dense(3, outputs=1, activation="softmax")(torch.ones(2, 3)).tolist() == [[1.0], [1.0]]


@pytest.mark.parametrize("bias", [0.5, torch.tensor(0.5)])
def test_bias_starts_where_it_is_told_and_is_trained(bias):
    head = Dense(3, bias=bias)
    assert head(torch.zeros(2, 3)).tolist() == [0.5, 0.5]
    assert head.linear.bias.requires_grad
    several = Dense(3, outputs=2, bias=torch.tensor([1.0, -1.0]))
    assert several(torch.zeros(1, 3)).tolist() == [[1.0, -1.0]]


def test_half_precision_queries_meet_float32_parameters():
    assert Dense(3)(torch.zeros(2, 3, dtype=torch.bfloat16)).dtype == torch.float32


@pytest.mark.parametrize(
    ("settings", "error", "sentence"),
    [
        ({"dim": 0}, ValueError, "^dim: expected a whole number of at least 1, got 0$"),
        ({"outputs": 0}, ValueError, "^outputs: expected a whole number of at least 1, got 0$"),
        ({"activation": "softmx"}, ValueError, r"^activation: .*; did you mean 'softmax'\?$"),
        ({"activation": "softmax"}, ValueError, "^outputs: expected the number of classes .*, got None$"),
        ({"outputs": 2, "bias": torch.zeros(3)}, ValueError, r"^bias: expected a number or one an output, .*\(3,\)$"),
    ],
)
def test_wrong_settings_are_refused(settings, error, sentence):
    with pytest.raises(error, match=sentence):
        Dense(**{"dim": 3, **settings})


def test_queries_of_another_width_are_refused():
    with pytest.raises(ValueError, match=r"^queries: expected \[b, 3\], got \(2, 4\)$"):
        Dense(3)(torch.zeros(2, 4))


def test_names_that_no_head_knows_raise():
    with pytest.raises(TypeError, match="bank_idss"):
        Dense(2)(torch.ones(1, 2), bank_idss=torch.zeros(1))
