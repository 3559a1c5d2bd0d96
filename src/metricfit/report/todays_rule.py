"""The rule that decides today, from a column with its decisions: it is judged on the same rows as the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from metricfit.core.arrays import Integers
from metricfit.errors import InvalidValueError, quote
from metricfit.report.first_screen import YES

NO = {"0", "0.0", "False", "false", "FALSE", "no", "No", "NO"}


class Today(NamedTuple):
    """Today's decisions.

    Attributes:
        name: What to call them.
        decided: The class number that is decided for each row.
    """

    name: str
    decided: Integers


def read_today(column: Any, name: str, classes: Sequence[Any]) -> Today:
    """Read a column with today's decisions: labels, or of two classes yes and no in any usual spelling.

    Args:
        column: One decision per row.
        name: The name of the column.
        classes: The labels by their class numbers; of two, the positive one is second.

    Raises:
        InvalidValueError: An entry is neither.

    Example:
        >>> read_today([True, False, True], "flagged", ["kept", "left"])
        Today(name="Today's rule (flagged)", decided=array([1, 0, 1]))
    """
    entries = pd.Series(np.asarray(column))
    if entries.isna().any():
        row = int(entries.isna().to_numpy().argmax()) + 1
        raise InvalidValueError(
            f"the column {quote(name)} with today's decisions is missing in row {row}; leave such rows out, or write "
            "what is decided there"
        )
    texts = entries.map(str)
    numbers = {str(label): number for number, label in enumerate(classes)}
    if len(classes) == 2 and not set(texts) <= set(numbers):
        numbers = dict.fromkeys(NO, 0) | dict.fromkeys(YES, 1)
    unknown = texts[~texts.isin(list(numbers))]
    if len(unknown):
        raise InvalidValueError(
            f"the column {quote(name)} with today's decisions holds {quote(unknown.iloc[0])}, which is no class; "
            f"write {' or '.join(quote(str(label)) for label in classes[:5])}" + ", or 1 and 0" * (len(classes) == 2)
        )
    return Today(f"Today's rule ({name})", texts.map(numbers).to_numpy(np.int64))
