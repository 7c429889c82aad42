"""Passages that read one another by their first tokens."""

from pathlib import Path

import numpy as np
import pytest
import torch

from vicinal.encoders.sets import PassageAttention, PassageScorer

GOLDEN = Path(__file__).parents[2] / "golden/sets/set_encoder_attention.npz"
EXACT = {"rtol": 1e-10, "atol": 1e-10}


def normal(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def scorer(seed=0):
    torch.manual_seed(seed)
    return PassageScorer(8, heads=2).double()


def test_attention_is_that_of_the_papers_code():
    with np.load(GOLDEN) as data:
        arrays = {key: torch.from_numpy(np.asarray(data[key])) for key in data if data[key].dtype.kind != "U"}
    attention = PassageAttention(8, heads=2).double()
    attention.load_state_dict({key[2:]: value for key, value in arrays.items() if key.startswith("w.")})
    hidden, valid = torch.zeros(2, 3, 4, 8).double(), torch.zeros(2, 3, 4, dtype=torch.bool)
    places = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]  # groups of 3 and 2
    for row, place in enumerate(places):
        hidden[place], valid[place] = arrays["hidden"][row], arrays["token_mask"][row] > 0
    out = attention(hidden, valid)
    for row, place in enumerate(places):
        real = valid[place]
        torch.testing.assert_close(out[place][real], arrays["out"][row][real], **EXACT)
    assert not out[1, 2].any()
    one = attention(hidden[:1, :1], valid[:1, :1])[0, 0]
    real = valid[0, 0]
    torch.testing.assert_close(one[real], arrays["one_out"][0][real], **EXACT)


def test_one_passage_attends_to_itself_alone_as_torch_does():
    attention, x = PassageAttention(8, heads=2).double(), normal(0, 2, 1, 5, 8)
    plain = torch.nn.MultiheadAttention(8, 2, batch_first=True, dtype=torch.float64)
    parts = [attention.query, attention.key, attention.value]
    with torch.no_grad():
        plain.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
        plain.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
        plain.out_proj.weight.copy_(torch.eye(8))
        plain.out_proj.bias.zero_()
    torch.testing.assert_close(attention(x)[:, 0], plain(x[:, 0], x[:, 0], x[:, 0])[0], **EXACT)


def test_with_one_token_each_all_read_all():
    attention, x = PassageAttention(8, heads=2).double(), normal(1, 2, 4, 1, 8)
    flat = attention(x.transpose(1, 2).reshape(2, 1, 4, 8))  # the four as tokens of one passage
    torch.testing.assert_close(attention(x)[:, :, 0], flat[:, 0], **EXACT)


def test_scores_follow_their_passages_and_padding_never_leaks():
    model, x = scorer(), normal(2, 2, 4, 5, 8)
    valid = torch.ones(2, 4, 5, dtype=torch.bool)
    valid[0, 3], valid[1, 2, 3:] = False, False
    scores = model(x, valid)
    order = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(model(x[:, order], valid[:, order]), scores[:, order], **EXACT)
    assert scores[0, 3] == -torch.inf
    spoiled = torch.where(valid[..., None], x, torch.nan).requires_grad_()
    again = model(spoiled, valid)
    torch.testing.assert_close(again, scores, **EXACT)
    again[valid[..., 0]].sum().backward()
    assert not spoiled.grad[~valid].any()
    torch.testing.assert_close(model(x[:1, :3], valid[:1, :3]), scores[:1, :3], **EXACT)


def test_others_are_read_by_their_first_token_alone():
    attention, x = PassageAttention(8, heads=2).double(), normal(3, 1, 3, 5, 8)
    moved = x.clone()
    moved[0, 2, 1:] += 1
    torch.testing.assert_close(attention(moved)[0, :2], attention(x)[0, :2], **EXACT)
    moved = x.clone()
    moved[0, 2, 0] += 1
    assert not torch.allclose(attention(moved)[0, :2], attention(x)[0, :2])


def test_gradients_are_right():
    model = PassageAttention(4, heads=2).double()
    valid = torch.tensor([[[True, True], [True, False], [False, False]]])
    assert torch.autograd.gradcheck(lambda x: model(x, valid), (normal(4, 1, 3, 2, 4).requires_grad_(),))


def test_wrong_groups_are_refused():
    attention, x = PassageAttention(8, heads=2), torch.zeros(1, 2, 3, 8)
    with pytest.raises(ValueError, match=r"^tokens: expected floating \[b, g, t, 8\]"):
        attention(x[..., :4])
    with pytest.raises(ValueError, match=r"^valid: expected a passage at least in each group"):
        attention(x, torch.zeros(1, 2, 3, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"^valid: expected the first token"):
        attention(x, torch.tensor([[[True] * 3, [False, True, True]]]))
    with pytest.raises(ValueError, match=r"^valid: expected boolean"):
        attention(x, torch.ones(1, 2, 3))
