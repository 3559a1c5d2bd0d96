"""The rows that a model gets most wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import issparse

from metricfit.decide.calibration import log_softmax
from metricfit.decide.refer import labels_with_referred
from metricfit.tabular.checks import check_whole
from metricfit.tabular.insight.judged_rows import JudgedRows, take_rows

SHOWN = 12


@dataclass(frozen=True, repr=False)
class WorstRows:
    """The rows that a model gets most wrong, the worst first.

    Attributes:
        table: One line per row, with its label in the index of a DataFrame, or its number: ``truth``, ``decision``,
            ``probability`` (of the positive class; of the true class if there are several), ``cost`` for costs from
            columns, and then the columns of the user's table. A name that the user's table has too ends in "_".
        numbers: The number of each row, counted from 0.
        total: The number of rows among which they are the worst.
        wrong: How many of these were decided wrongly; referred rows are not decided.
        positive: The class whose probability is given; None for the true class of each row.
        judged: The number of columns of ``table`` that come before those of the user's table.
        notes: What is to know about it.

    Example:
        >>> from metricfit import MetricClassifier
        >>> X = np.random.default_rng(0).normal(size=(400, 3))
        >>> y = X[:, 1] > 1
        >>> y[399] = not y[399]  # a wrong label
        >>> model = MetricClassifier("f1", models=["linear"], random_state=0).fit(X[:200], y[:200])
        >>> model.worst(X[200:], y[200:], n=1).numbers
        array([199])
    """

    table: pd.DataFrame
    numbers: NDArray[np.int64]
    total: int
    wrong: int
    positive: Any = None
    judged: int = 3
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        head = f"The {len(self.table)} worst of {self.total:,} rows; {self.wrong:,} were decided wrongly"
        rest = len(self.table) - SHOWN
        more = [f"... and {rest} more in .table"] if rest > 0 else []
        return "\n".join([head, self.table.head(SHOWN).to_string(max_cols=10), *more, *self.notes])


def find_worst_rows(rows: JudgedRows, n: int = 20) -> WorstRows:
    """Find the rows whose calibrated probability is farthest from the truth, or with costs those that cost most.

    Args:
        rows: The rows.
        n: Number of rows to return, at most.

    Returns:
        The rows with their truth, decision and probability.

    Raises:
        InvalidTypeError: ``n`` is no whole number.
        InvalidValueError: ``n`` is below 1.
    """
    check_whole("n", n, 1, "rows to show")
    model, y = rows.model, rows.y
    logits = rows.logits()
    by_class = np.concatenate([np.zeros_like(logits), logits], axis=1) if rows.classes == 2 else logits
    log_probability = log_softmax(by_class)
    of_truth = log_probability[np.arange(len(y)), y]  # logarithms, because most wrong rows have tiny ones
    decided = model.decision_.decide_or_refer(logits if rows.costs is None else rows.costs.margins(logits))
    paid = None if rows.costs is None else rows.costs.of_decisions(decided, y)
    keys = [of_truth] if paid is None else [of_truth, -paid]
    order = np.lexsort(keys)[:n]
    names, shown = model.classes_[model._order], log_probability[:, 1] if rows.classes == 2 else of_truth
    found = {
        "truth": names[rows.y[order]],
        "decision": labels_with_referred(decided[order], names, model.refer_label_),
        "probability": np.exp(shown[order]),
        **({} if paid is None else {"cost": paid[order]}),
    }
    values = _frame(model, take_rows(rows.table, order), rows.numbers[order])
    taken = set(values.columns)
    judged = pd.DataFrame({_free_name(name, taken): column for name, column in found.items()}, index=values.index)
    return WorstRows(
        pd.concat([judged, values], axis=1),
        rows.numbers[order],
        len(rows),
        int(((decided >= 0) & (decided != y)).sum()),
        model.pos_label_,
        judged.shape[1],
        () if rows.folds is None else ("Each row was decided by models that were not trained on it.",),
    )


def _frame(model: Any, part: Any, numbers: NDArray[np.int64]) -> pd.DataFrame:
    """Return rows as a DataFrame."""
    if isinstance(part, pd.DataFrame):
        return part
    values = part.toarray() if issparse(part) else np.asarray(part)
    if values.ndim == 1:
        return pd.DataFrame({"x": values}, index=numbers)
    known = getattr(model, "feature_names_in_", None)
    names = [f"x{place}" for place in range(values.shape[1])] if known is None else known
    return pd.DataFrame(values, columns=names, index=numbers)


def _free_name(name: str, taken: set[Any]) -> str:
    while name in taken:
        name += "_"
    return name
