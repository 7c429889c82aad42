"""Bad tables, through every command that reads one: a result, or one sentence and exit code 2; nothing else changed."""

import json
import math

import numpy as np
import pytest

from faults.tables import EITHER, FAULTS, ROWS, bad_table, chosen_faults, good
from faults.warm import check_promise, command, contents, run_case, seeded

CASES = 300
QUICK = ("--max-epochs", 1, "--members", 1, "--hidden", "8,4", "--accelerator", "cpu")
ROLES = ("--id", "house", "--group", "street")


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """Models of the good table: of its price, and of its mood."""
    folder = tmp_path_factory.mktemp("models")
    good(np.random.default_rng(0)).to_csv(folder / "rows.csv", index=False)
    for target in ("price", "mood"):
        options = (*ROLES, *QUICK, "--no-baselines", "--out", folder / target)
        arguments = ("fit", folder / "rows.csv", "--target", target, *options)
        outcome = run_case(folder / "case", command, *arguments)
        assert outcome.code == 0, outcome.err
    return folder


def chosen_command(seed, rng, names, models):
    """The command of a case, its arguments without the table, and the exit codes that are right."""
    in_file = [FAULTS[name][2] for name in names]
    codes = FAULTS[names[0]][1] if len(names) == 1 else EITHER
    if not all(in_file) or seed % 4 < 2:
        if rng.random() < 0.1:
            return "compare", ("--splits", 2, "--heads", "nona"), EITHER if codes == (0,) else codes
        return "fit", (), codes
    model = models / str(rng.choice(["price", "mood"]))
    if rng.random() < 0.5:
        return "evaluate", (model,), codes if codes == (2,) else EITHER
    return "predict", (model, "--explain", 2), codes


@pytest.mark.sweep(3)
@pytest.mark.parametrize("seed", seeded(CASES))
def test_a_bad_table(seed, models, tmp_path):
    table, names, rng = bad_table(seed)
    verb, more, codes = chosen_command(seed, rng, names, models)
    data = tmp_path / "data"
    data.mkdir()
    (data / "other.txt").write_text("to be left alone")
    path = table.write(data)
    before = listing(data), contents(models)
    if verb in ("fit", "compare"):
        measured = () if seed % 90 == 30 else ("--no-baselines",)  # they take seconds
        arguments = (verb, path, *table.options, *more, *QUICK, *measured, "--out", tmp_path / "made", "--json")
    else:
        arguments = (verb, more[0], path, *more[1:], "--json")
    outcome = run_case(tmp_path / "case", command, *arguments)
    told = f"{names} {verb}: {outcome.err[-1500:]}"
    check_promise(outcome)
    assert outcome.code in codes, told
    assert (listing(data), contents(models)) == before, told
    if outcome.code == 2:
        assert ": expected " in outcome.err.splitlines()[-1], told
        assert outcome.err.splitlines()[-1].isprintable(), told
        left = {file.name for file in (tmp_path / "made").glob("*")}
        assert left <= ({"runs.json", "splits-rows.json"} if verb == "compare" else set()), (
            told
        )  # it goes on from these
        assert verb == "compare" or not (tmp_path / "made").exists(), told
        assert outcome.out == "", told
    else:
        result = json.loads(outcome.out)
        assert all(map(math.isfinite, numbers(result))), told
        if verb == "predict":
            assert len(result) > 0
            assert all(row["prediction"] is not None for row in result), told


def listing(folder):
    """What is in a folder; of a link, a pipe and the like what it is."""
    return contents(folder), sorted((path.name, path.lstat().st_mode) for path in folder.rglob("*"))


def numbers(value):
    """All numbers in a JSON value."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from numbers(item)
    elif isinstance(value, float):
        yield value


def test_every_fault_is_tried():
    tried = {name for seed in range(CASES) for name in chosen_faults(seed)}
    assert tried == set(FAULTS)
    alone = {names[0] for seed in range(CASES) if len(names := chosen_faults(seed)) == 1}
    assert alone == set(FAULTS)
    assert ROWS >= 30
