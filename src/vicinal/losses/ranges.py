"""Types of the settings of losses that say which numbers a setting may be."""

import math
from typing import Annotated, NamedTuple


class Between(NamedTuple):
    """What a setting whose type it annotates must be: a number between two, or one of them if ``closed``."""

    low: float
    high: float = math.inf
    closed: bool = False


Number = Annotated[float, Between(-math.inf)]
Positive = Annotated[float, Between(0)]
NonNegative = Annotated[float, Between(0, closed=True)]
Degrees = Annotated[float, Between(0, 180, closed=True)]
Share = Annotated[float, Between(0, 1, closed=True)]
Count = Annotated[int, Between(1, closed=True)]
