"""Memory ceilings: a streamed prediction needs a few blocks, not a matrix of all scores."""

from pathlib import Path

import pytest

from faults.warm import program, run_case

if not Path("/proc/self/clear_refs").exists():
    pytest.skip("the highest memory of a process cannot be reset on this system", allow_module_level=True)

MEASURE = """
import sys
import torch
from vicinal.heads import NONA
from vicinal.masks import SoftStep
torch.set_num_threads(1)
chunk, rows, train = (int(word) for word in sys.argv[1:4])
def peak():
    line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024
def reset():  # a new process starts with the highest memory of the one that made it
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
torch.manual_seed(0)
queries, bank, labels = torch.randn(64, 25), torch.randn(rows, 25), torch.rand(rows)
head = NONA(mask=SoftStep(25, "s2")).requires_grad_(bool(train))
if train:
    queries.requires_grad_(), bank.requires_grad_(), labels.requires_grad_()
def run(rows):
    with torch.set_grad_enabled(bool(train)):
        prediction = head(queries, bank[:rows], labels[:rows])
    if train:
        torch.autograd.grad(prediction.sum(), [queries, bank, labels, *head.parameters()])
from vicinal.blockwise import block_policy
run(4000)
with block_policy(streamed_entries=chunk):
    reset()
    before = peak()
    run(rows)
print(peak() - before)
"""


@pytest.fixture
def extra(tmp_path):
    """Mebibytes that one prediction adds to the highest memory of a process."""

    def measured(streamed, rows, *, train):
        arguments = (0 if streamed else 1 << 60, rows, int(train))
        done = run_case(tmp_path, program, MEASURE, *arguments, seconds=120, memory=8 << 30)
        assert done.code == 0, done.err
        return float(done.out)

    return measured


def test_prediction_stays_below_32_mib_where_one_matrix_of_scores_has_73(extra):
    assert extra(True, 300_000, train=False) < 32


@pytest.mark.slow
def test_the_dense_head_does_not(extra):
    assert extra(False, 300_000, train=False) > 73


@pytest.mark.slow
def test_training_step_takes_a_small_part_of_the_dense_one(extra):
    streamed, dense = (extra(way, 200_000, train=True) for way in (True, False))
    assert streamed < dense / 2  # about 180 MiB, a few matrices of the bank's size of 19, against 522


@pytest.mark.slow
def test_memory_does_not_grow_with_the_bank(extra):
    assert extra(True, 600_000, train=False) < extra(True, 150_000, train=False) + 8
