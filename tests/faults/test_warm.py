"""The fault suite's own promises: a case is seen as it is."""

import sys
import time

import pytest

from faults.warm import check_promise, command, contents, run_case


def use_memory(size):
    return len(bytearray(size)) % 2


def sleep(seconds):
    time.sleep(seconds)


def work_on():
    while True:
        pass


def imported():
    return 0 if "faults.preload" in sys.modules and "vicinal.estimators" in sys.modules else 3


def fail():
    raise RuntimeError("as a defect would")


def test_a_command_and_its_sentence(tmp_path):
    outcome = run_case(tmp_path / "case", command, "predict", tmp_path / "none", tmp_path / "rows.csv")
    assert outcome.code == 2
    check_promise(outcome)
    outcome = run_case(tmp_path / "case", command, "links")
    assert outcome.code == 0
    assert "sigmoid" in outcome.out
    check_promise(outcome)


def test_cases_find_the_library_imported(tmp_path):
    assert run_case(tmp_path / "case", imported).code == 0


@pytest.mark.slow
def test_a_defect_is_seen(tmp_path):
    for work, args, limits in (
        (fail, (), {}),
        (use_memory, (1 << 30,), {"memory": 256 << 20}),
        (sleep, (60,), {"seconds": 0.02}),
        (work_on, (), {"seconds": 1}),
    ):
        outcome = run_case(tmp_path / "case", work, *args, **limits)
        with pytest.raises(AssertionError):
            check_promise(outcome)


def test_memory_is_measured(tmp_path):
    outcome = run_case(tmp_path / "case", use_memory, 300 << 20)
    assert 250 << 20 < outcome.grown < 400 << 20


def test_contents_tell_what_changed(tmp_path):
    (tmp_path / "a").write_text("one")
    before = contents(tmp_path)
    (tmp_path / "b").symlink_to("a")
    assert contents(tmp_path) != before
