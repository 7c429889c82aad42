"""Choosing rows by their last losses: windows of groups, unbiased pruning."""

from pathlib import Path

import numpy as np
import pytest

from vicinal.samplers import SlidingLossWindow, UnbiasedPruning, loss_groups

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "sets" / "seta_groups.npz"


def test_groups_and_windows_are_those_of_the_public_code() -> None:
    golden = np.load(GOLDEN, allow_pickle=False)
    losses = golden["losses"]
    assert loss_groups(losses, 5).tolist() == golden["group"].tolist()
    sampler = SlidingLossWindow(len(losses), epochs=100, keep=1.0, groups=5, window=0.5)
    sampler.record(range(len(losses)), losses)
    for epoch, (first, last) in enumerate(golden["window_first_last"]):
        sampler.set_epoch(epoch)
        assert sampler.span() == (first, last)
        wanted = np.flatnonzero((golden["group"] >= first) & (golden["group"] <= last))
        assert np.sort(sampler.chosen()).tolist() == wanted.tolist()


def test_a_cycle_of_windows_sees_every_group_from_easy_to_hard() -> None:
    losses = np.random.default_rng(0).permutation(400) / 100
    sampler = SlidingLossWindow(400, epochs=100, keep=1.0, groups=8, window=0.25)
    sampler.record(range(400), losses)
    means, seen = [], set()
    for epoch in range(7, 14):  # seven places of a window of two among eight
        sampler.set_epoch(epoch)
        rows = sampler.chosen()
        assert len(set(rows.tolist())) == len(rows) < 400
        means.append(losses[rows].mean())
        seen |= set(rows.tolist())
    assert means == sorted(means)
    assert len(seen) == 400


def test_the_last_eighth_is_not_pruned_by_loss() -> None:
    sampler = SlidingLossWindow(200, epochs=16, keep=0.8, groups=4)
    sampler.record(range(200), np.arange(200.0))
    sizes = [len(list(sampler)) for _ in range(16)]
    assert sizes[0] == sizes[14] == sizes[15] == 160
    assert max(sizes[1:14]) < 160


def test_the_same_seed_epoch_and_losses_draw_the_same_rows_and_survive_a_restart() -> None:
    losses = np.random.default_rng(1).random(120)
    first, second = (SlidingLossWindow(120, epochs=9, groups=5, seed=3) for _ in range(2))
    first.record(range(120), losses)
    first.set_epoch(4)
    second.load_state_dict(first.state_dict())
    assert list(first) == list(second)
    other = SlidingLossWindow(120, epochs=9, groups=5, seed=4)
    other.load_state_dict(first.state_dict() | {"epoch": 4})
    assert list(other) != list(SlidingLossWindow.chosen(first))


def test_equal_losses_make_equal_groups() -> None:
    assert np.bincount(loss_groups(np.ones(30), 5)).tolist() == [6] * 5


def test_pruning_keeps_the_expected_gradient() -> None:
    losses = np.random.default_rng(0).exponential(size=600)
    total = np.zeros(600)
    sampler = UnbiasedPruning(600, epochs=1000, keep=0.3)
    sampler.record(range(600), losses)
    for epoch in range(300):
        sampler.set_epoch(epoch)
        rows = sampler.chosen()
        total[rows] += sampler.weights(rows)
    easy = losses < losses.mean()
    assert (total[~easy] == 300).all()
    assert total[easy].mean() == pytest.approx(300)
    assert total[easy].std() < 60


@pytest.mark.parametrize("make", [SlidingLossWindow, UnbiasedPruning])
def test_asking_for_the_length_changes_nothing(make: type) -> None:
    """Progress bars and data loaders ask for it in the middle of a pass, when other losses are known already."""
    losses = np.random.default_rng(0).exponential(size=200)

    def epochs(ask: bool) -> list[list[float]]:
        sampler = make(200, epochs=40, seed=1)
        sampler.record(range(200), losses)
        seen = []
        for _ in range(3):
            if ask:
                wanted = len(sampler)
            rows = []
            for place, row in enumerate(sampler):
                rows.append(row)
                sampler.record([row], [losses[row] * (1 + place % 7)])
                if ask and place % 20 == 0:
                    assert len(sampler) <= 200
                if make is UnbiasedPruning:
                    rows.append(float(sampler.weights([row])[0]))
            if ask:
                assert wanted == len(rows) // (2 if make is UnbiasedPruning else 1)
            seen.append(rows)
        return seen

    assert epochs(ask=True) == epochs(ask=False)


def test_bad_input_is_refused() -> None:
    sampler = SlidingLossWindow(50, epochs=4, groups=5)
    with pytest.raises(ValueError, match=r"losses: expected finite numbers, got nan for row 7"):
        sampler.record([6, 7], [1.0, float("nan")])
    with pytest.raises(ValueError, match=r"indices: expected rows from 0 to 49, got 0\.\.50"):
        sampler.record([0, 50], [1.0, 1.0])
    with pytest.raises(ValueError, match="groups: expected fewer than the 9 rows kept, got 10"):
        SlidingLossWindow(10, epochs=4)
    with pytest.raises(ValueError, match="window: expected"):
        SlidingLossWindow(50, epochs=4, groups=5, window=0.0)
    with pytest.raises(ValueError, match="keep: expected a share from"):
        UnbiasedPruning(50, epochs=4, keep=0.01)
