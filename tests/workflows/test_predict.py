"""What ``predict`` writes beside its predictions: kept columns of any name, and which rows lie far beyond the fit."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vicinal.estimators import NeighborRegressor
from vicinal.workflows import predict_table
from vicinal.workflows.predict import _kept_names
from vicinal.workflows.streaming import predict_file

draw = np.random.default_rng(15)
TABLE = pd.DataFrame({"key": [f"p{i}" for i in range(60)], "a": draw.normal(size=60), "b": draw.normal(size=60)})
OUTPUTS = ["row", "prediction", "low", "high", "neighbor_1_id", "others_weight", "neighbors", "scale"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("predict") / "m"
    model = NeighborRegressor(metric="kernel").fit(TABLE[["a", "b"]], 2 * TABLE["a"] - TABLE["b"], ids=TABLE["key"])
    model.notes_ = {"id": "key"}
    model.save(folder)
    return folder


@given(st.lists(st.sampled_from([*OUTPUTS, *(f"{name} (kept)" for name in OUTPUTS), "age"]), unique=True))
def test_kept_columns_take_no_place_of_predictions_or_of_one_another(keep):
    names = _kept_names(keep, ["prediction", "low", "high"])
    assert list(names) == keep
    assert len(set(names.values())) == len(keep)
    assert not set(names.values()) & set(OUTPUTS)
    assert all(names[name].startswith(name) for name in keep)


@pytest.mark.parametrize("explain", [0, 2])
def test_ids_predictions_and_kept_columns_all_come_out(folder, tmp_path, explain):
    new = TABLE.assign(**{name: [f"{name} {i}" for i in range(60)] for name in OUTPUTS})
    said = []
    answers = predict_table(folder, new, keep=OUTPUTS, coverage=0.5, explain=explain, log=said.append)
    plain = predict_table(folder, new, coverage=0.5, explain=explain).flat()
    flat = answers.flat()
    assert flat.columns.is_unique
    assert flat["row"].tolist() == TABLE["key"].tolist()
    pd.testing.assert_frame_equal(flat[plain.columns], plain)
    for name in OUTPUTS:
        assert flat[f"{name} (kept)"].tolist() == new[name].tolist()
        assert any(f"'{name}' is called '{name} (kept)'" in line for line in said)
    assert all(record["scale (kept)"] for record in answers.records())
    new.to_csv(tmp_path / "new.csv", index=False)
    predict_file(folder, tmp_path / "new.csv", tmp_path / "out.csv", keep=["row", "key"])
    written = pd.read_csv(tmp_path / "out.csv")
    assert written["row"].tolist() == written["key"].tolist() == TABLE["key"].tolist()
    assert written["row (kept)"].tolist() == new["row"].tolist()


def test_a_setting_of_predictions_that_is_none_is_refused_by_name(folder):
    with pytest.raises(TypeError, match=r"^settings: expected 'explain', .*, got 'explian'"):
        predict_table(folder, pd.DataFrame({"x": [0.5]}), explian=3)
