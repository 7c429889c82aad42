"""Blocks: every row once, no more than the policy allows, and a policy that lasts as long as it is asked for."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vicinal.blockwise import block_policy, policy
from vicinal.blockwise.blocks import BlockPolicy, attention_sizes, block_rows, row_slices

CPU = torch.device("cpu")
sizes = st.integers(1, 5000)


@given(st.integers(0, 300), st.integers(1, 400))
def test_slices_hold_every_row_once(rows, size):
    parts = row_slices(rows, size)
    assert [i for part in parts for i in range(part.start, part.stop)] == list(range(rows))
    assert all(part.stop - part.start <= size for part in parts)
    assert parts  # what is made of blocks can be joined


@given(sizes, st.integers(0, 5000), st.integers(1, 1 << 20), st.integers(1, 9), st.integers(1, 64))
def test_a_block_is_no_larger_than_it_may(rows, columns, entries, uncut, least):
    size = block_rows(rows, columns, CPU, entries=entries, uncut=uncut, least=least)
    assert 1 <= size <= rows
    if rows * columns <= entries * uncut:
        assert size == rows
    else:
        assert size == min(rows, least) or size * columns <= entries


@given(sizes, st.integers(1, 4096))
def test_tiles_of_attention_stay_in_cache(queries, dim):
    chunk, tile = attention_sizes(queries, dim, CPU)
    budget = policy().attention_entries
    assert 1 <= tile <= min(queries, policy().query_rows)
    assert chunk == 256 or (chunk * tile <= budget and chunk * dim <= budget)


def test_an_accelerator_gets_larger_blocks():
    assert block_rows(1 << 14, 1 << 14, torch.device("meta")) > block_rows(1 << 14, 1 << 14, CPU)
    assert attention_sizes(1 << 14, 8, torch.device("meta"))[1] == policy().device_query_rows


def test_changes_last_as_long_as_the_block():
    with block_policy(block_entries=64) as outer:
        assert policy() is outer
        with block_policy(query_rows=2):
            assert (policy().block_entries, policy().query_rows) == (64, 2)
        assert policy() is outer
        with pytest.raises(ZeroDivisionError), block_policy(block_entries=1):
            raise ZeroDivisionError
        assert policy() is outer
    assert policy() == BlockPolicy()


def test_an_unknown_size_is_refused():
    with pytest.raises(TypeError, match="blocks"), block_policy(blocks=3):
        pass
    assert policy() == BlockPolicy()
