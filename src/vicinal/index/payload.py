"""The table of a bank's rows, kept beside its vectors and read only when it is asked for."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

Array = np.ndarray[Any, Any]


class Payload:
    """Rows of tables under running numbers.

    Removed rows stay in memory until they are half of all, and are in no file that is written later.

    Args:
        columns: names of the columns; None: those of the first table.
        read: gives the first rows when they are first needed, or None.
        rows: how many these are.
    """

    def __init__(
        self, columns: list[Any] | None = None, read: "Callable[[], pd.DataFrame] | None" = None, rows: int = 0
    ) -> None:
        self.columns, self.rows, self._read = columns, rows, read
        self._frames: list[pd.DataFrame] = []

    def add(self, frame: "pd.DataFrame") -> Array:
        """Put rows in; gives their numbers ``[n]``."""
        self.columns = list(frame.columns)
        numbers = np.arange(self.rows, self.rows + len(frame))
        self._frames.append(frame.reset_index(drop=True))
        self.rows += len(frame)
        return numbers

    def take(self, numbers: Array) -> "pd.DataFrame":
        """The rows of these numbers, in this order."""
        return self._whole().iloc[numbers].reset_index(drop=True)

    def _whole(self) -> "pd.DataFrame":
        import pandas as pd

        if self._read is not None:
            self._frames.insert(0, self._read())
            self._read = None
        if not self._frames:
            return pd.DataFrame(columns=self.columns)
        if len(self._frames) > 1:
            self._frames = [pd.concat(self._frames, ignore_index=True)]
        return self._frames[0]
