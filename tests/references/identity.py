"""The same ids in every form in which tables, files and callers bring them."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import torch


def _mixed(numbers):
    makers = [int, str, float, np.int16, np.float64, "{} ".format, "{}.0".format, Decimal]
    return [makers[place % len(makers)](number) for place, number in enumerate(numbers)]


FORMS = {
    "int": list,
    "int64": lambda numbers: np.array(numbers, dtype=np.int64),
    "int32": lambda numbers: np.array(numbers, dtype=np.int32),
    "uint16": lambda numbers: np.array(numbers, dtype=np.uint16),
    "float": lambda numbers: [float(number) for number in numbers],
    "float64": lambda numbers: np.array(numbers, dtype=np.float64),
    "float32": lambda numbers: np.array(numbers, dtype=np.float32),
    "str": lambda numbers: [str(number) for number in numbers],
    "numpy str": lambda numbers: np.array([str(number) for number in numbers]),
    "padded str": lambda numbers: [f" {number}" for number in numbers],
    "str of float": lambda numbers: [f"{number}.0" for number in numbers],
    "Series of int": pd.Series,
    "Series of str": lambda numbers: pd.Series([str(number) for number in numbers]),
    "Series of object": lambda numbers: pd.Series(list(numbers), dtype=object),
    "Int64": lambda numbers: pd.Series(pd.array(numbers, dtype="Int64")),
    "Int32": lambda numbers: pd.array(numbers, dtype="Int32"),
    "Float64": lambda numbers: pd.Series(pd.array(np.array(numbers, dtype=float), dtype="Float64")),
    "Float32": lambda numbers: pd.array(np.array(numbers, dtype=np.float32), dtype="Float32"),
    "string": lambda numbers: pd.Series([str(number) for number in numbers], dtype="string"),
    "category of int": lambda numbers: pd.Series(numbers).astype("category"),
    "category of float": lambda numbers: pd.Series(np.array(numbers, dtype=float)).astype("category"),
    "category of str": lambda numbers: pd.Series([str(number) for number in numbers]).astype("category"),
    "Index": pd.Index,
    "Decimal": lambda numbers: [Decimal(number) for number in numbers],
    "tensor": torch.tensor,
    "tensor of float": lambda numbers: torch.tensor([float(number) for number in numbers]),
    "Arrow": pa.array,
    "Arrow of str": lambda numbers: pa.chunked_array([[str(number) for number in numbers]]),
    "mixed": _mixed,
}
"""Name of a form -> function of whole numbers from 0 to 32,767 that gives them in it."""

KINDS = ("int64", "float64", "str", "Int64", "category of str", "mixed")
"""One form of each kind."""

KEPT = ("int64", "str")
"""The forms in which a bank keeps them."""
