"""Steps of the paper's outlook: ranks in place of similarities, and S2 with a threshold, against numpy."""

import itertools

import numpy as np
import pytest
import torch

from references import nona as reference
from vicinal.estimators import NeighborRegressor
from vicinal.heads import NONA
from vicinal.masks import RankStep, RejectingStep, SoftStep

DIM, EPS = 3, 1e-6
MASKS = {
    **{f"rank {f} {p} {e}": RankStep(DIM, f, p, e) for f, p, e in itertools.product(
        ["s1", "s2"], ["pointwise", "global"], ["admissible", "all"])},
    **{f"rejecting {p} {e}": RejectingStep(DIM, p, e) for p, e in itertools.product(
        ["pointwise", "global"], ["admissible", "all"])},
}  # fmt: skip
each = pytest.mark.parametrize("name", list(MASKS))


def drawn(name, seed=0, b=5, n=9):
    """A mask with random numbers, queries, a bank with equally near rows, ids, and numpy's (a0, b0, t)."""
    generator = torch.Generator().manual_seed(seed)
    mask = MASKS[name].double()
    with torch.no_grad():
        for parameter in mask.parameters():
            parameter.copy_(1.5 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    queries, bank = (torch.randn(k, DIM, generator=generator, dtype=torch.float64) for k in (b, n))
    bank[3], bank[4] = bank[1], bank[2]
    ids = {"query_ids": torch.arange(b), "bank_ids": torch.arange(n)}
    logits = mask.step_logits(queries).detach().expand(b, 3).numpy()
    return mask, queries, bank, ids, EPS + (1 - 2 * EPS) / (1 + np.exp(-logits))


@each
@pytest.mark.parametrize("simplex", ["softmax", "entmax15"])
def test_weights_equal_numpy(name, simplex):
    mask, queries, bank, ids, shapes = drawn(name)
    got = NONA(mask=mask, simplex=simplex).weights(queries, bank, **ids).detach()
    settings = {"extent": mask.extent, "eps": EPS}
    if isinstance(mask, RankStep):
        mass = reference.rank_step(shapes, family=mask.family, **settings)
    else:
        mass = reference.rejecting_step(shapes, **settings)
    matrix = reference.scores("l2", queries.tolist(), bank.tolist())
    allowed = ids["query_ids"].numpy()[:, None] != ids["bank_ids"].numpy()
    want = reference.head_weights(matrix, allowed, mass, getattr(reference, simplex))
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-9, atol=1e-12)


@pytest.mark.sweep(3)
@each
def test_gradients_are_those_of_differences(name):
    mask, queries, bank, ids, _ = drawn(name, seed=1)
    bank[3], bank[4] = bank[3] + 1, bank[4] - 1  # no ties
    head, labels = NONA(mask=mask), torch.arange(9.0).double()

    def predict(queries, bank, *parameters):
        del parameters
        return head(queries, bank, labels, **ids)

    inputs = [queries.requires_grad_(), bank.requires_grad_(), *mask.parameters()]
    assert torch.autograd.gradcheck(predict, inputs, atol=1e-6)


@each
@pytest.mark.parametrize(
    ("dtype", "size"),  # as for SoftStep: the true slope of a step in float16 at 1e-4 is above the largest float16
    [(torch.float32, 1e4), (torch.float32, 1e-4), (torch.bfloat16, 1e4), (torch.bfloat16, 1e-4), (torch.float16, 1e4)],
)
def test_gradients_are_finite_at_any_size(name, dtype, size):
    mask, queries, bank, ids, _ = drawn(name, seed=2)
    mask, queries, bank = mask.float(), (size * queries).to(dtype).requires_grad_(), (size * bank).to(dtype)
    NONA(mask=mask)(queries, bank, torch.arange(9.0), **ids).float().square().sum().backward()
    assert all(each.grad.isfinite().all() for each in (queries, *mask.parameters()) if each.grad is not None)


def test_ranks_with_a_hard_step_are_k_nearest_neighbors():
    """S1 of t near 0 is a step at (a + b) / 2: of 11 rows those of unit rank above .625 are the four nearest."""
    mask = RankStep(1, "s1", "global").double()
    with torch.no_grad():
        mask.logits.copy_(torch.tensor([0.0, 0.0, -9.0]))  # a = b0 = .5, so b = .75: the step is at .625
    bank = torch.tensor([0.0, 0.3, 1, 2, 4, 8, 16, 32, 64, 128, 256]).double()[:, None]
    log_mask = mask(-bank.T, torch.zeros(1, 1).double())
    assert (log_mask.exp().round(decimals=3)[0] == 1).tolist() == [True] * 4 + [False] * 7
    plain = SoftStep(1, "s1", "global").double()
    plain.load_state_dict(mask.state_dict())
    assert int((plain(-bank.T, torch.zeros(1, 1).double()) > -1e-3).sum()) == 9  # of similarities above .625


def test_the_threshold_at_0_is_s2_and_at_1_the_nearest_row_alone():
    scores = torch.tensor([[-5.0, -4.0, -2.5, -1.0, 0.0]]).double()
    for a0, want in ((-30.0, None), (30.0, [0.0, 0.0, 0.0, 0.0, 1.0])):
        mask, plain = RejectingStep(1, "global").double(), SoftStep(1, "s2", "global").double()
        with torch.no_grad():
            for step in (mask, plain):
                step.logits.copy_(torch.tensor([a0, 0.3, 0.2]))
        got = mask(scores, torch.zeros(1, 1).double()).exp()
        want = plain(scores, torch.zeros(1, 1).double()).exp() if want is None else torch.tensor([want]).double()
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)


def test_the_threshold_is_never_above_the_nearest_row_that_may_be_seen():
    """By extent="all" the nearest admissible row may lie below a0: it alone is then above the threshold."""
    mask = RejectingStep(1, "global", "all").double()  # a0 = .5
    scores = torch.tensor([[0.0, -7.0, -8.0, -10.0]]).double()  # unit scores 1, .3, .2, 0
    log_mask = mask(scores, torch.zeros(1, 1).double(), torch.tensor([[0.0, 1, 1, 1]]))
    assert (log_mask > -torch.inf).tolist() == [[True, True, False, False]]


@each
def test_they_are_read_whole(name):
    mask, queries, bank, *_ = drawn(name)
    head = NONA(mask=mask)
    assert not head.can_stream
    with pytest.raises(ValueError, match=r"^chunk_size: expected None"):
        NONA(mask=mask, chunk_size=4)
    several = torch.stack([head(q[None], bank, torch.arange(9.0).double())[0] for q in queries])
    torch.testing.assert_close(head(queries, bank, torch.arange(9.0).double()), several)


@pytest.mark.parametrize(
    ("mask", "kind", "family"),
    [("s1-ranks", RankStep, "s1"), ("s2-ranks", RankStep, "s2"), ("s2-reject", RejectingStep, "s2")],
)
def test_a_regressor_names_them_and_keeps_them_when_it_is_saved(mask, kind, family, tmp_path):
    x = np.linspace(0, 6, 60)[:, None]
    model = NeighborRegressor(
        metric="network", readout="attention", mask=mask, members=2, hidden=(8, 2), max_epochs=2, batch_size=16
    ).fit(x, np.sin(x[:, 0]))
    steps = [head.mask for head in model.network_.head.heads]
    assert [(type(step), step.family) for step in steps] == [(kind, family)] * 2
    got = model.explain(x[:1], k=100)[0]
    assert sum(neighbor.contribution for neighbor in got.neighbors) == pytest.approx(model.predict(x[:1])[0])
    model.save(tmp_path / "model")
    np.testing.assert_allclose(NeighborRegressor.load(tmp_path / "model").predict(x), model.predict(x), rtol=1e-6)
