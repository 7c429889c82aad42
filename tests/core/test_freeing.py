"""Promises of the memory that is given back."""

import subprocess
import sys

import pytest

PROGRAM = """
from pathlib import Path
from vicinal.core.freeing import large_blocks_apart

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

block = b"1" * (31 << 20)
del block  # from now on blocks of up to its size are none of their own
with large_blocks_apart():
    blocks = [(b"1" * (4 << 20), bytearray(100_000)) for _ in range(50)]
    small, high = [one for _, one in blocks], resident()
    del blocks
    print(high - resident())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the allocator of Linux")
def test_large_blocks_are_given_back_as_they_are_freed_between_small_ones_that_stay():
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert int(ran.stdout) > 190 << 20  # of 200
