"""What people pass from habit: rows as dictionaries, texts as a list."""

import numpy as np
import pandas as pd

from vicinal.estimators.inputs import as_table


def test_dictionaries_and_texts_are_tables():
    table = as_table("X", [{"size": 1.0, "town": "a"}, {"size": 2.0, "town": "b"}])
    pd.testing.assert_frame_equal(table, pd.DataFrame({"size": [1.0, 2.0], "town": ["a", "b"]}))
    for texts in (["red lamp", "blue oak"], np.array(["red lamp", "blue oak"])):
        assert as_table("X", texts)["x0"].tolist() == ["red lamp", "blue oak"]
    assert as_table("X", [1.0, 2.0]) == [1.0, 2.0]
