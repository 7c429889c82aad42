"""Where a function falls below 0, found by bounds over cells that are halved."""

import pytest

from vicinal.links.ranges import least, turning_range


@pytest.mark.parametrize("turn", [0.07, 0.5, 0.93])
def test_a_narrow_fall_is_found_in_either_half_of_a_cell(turn):
    def dip(low, high):
        lower, upper = turning_range(lambda z: (z - turn) ** 2, low, high, [turn])
        return lower - 1e-8, upper - 1e-8

    assert least(dip, (0.0, 1.0), []).value < 0


def test_a_function_that_stays_above_is_proven_to():
    def square(low, high):
        lower, upper = turning_range(lambda z: (z - 0.5) ** 2, low, high, [0.5])
        return lower + 1e-3, upper + 1e-3

    found = least(square, (0.0, 1.0), [])
    assert found.proven
    assert found.value >= 1e-3
