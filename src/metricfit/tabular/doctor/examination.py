"""``examine_table``: all checks of a table before training, most serious findings first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from metricfit.data.columns import split_target
from metricfit.decide.bounds import check_confidence
from metricfit.errors import InvalidTypeError, InvalidValueError, TableError, quote
from metricfit.metrics.curves import Requirements, as_requirements
from metricfit.tabular.doctor.column_checks import check_columns
from metricfit.tabular.doctor.finding import Finding, by_seriousness
from metricfit.tabular.doctor.leaks import check_groups, check_leaks
from metricfit.tabular.doctor.row_checks import (
    check_further_table,
    check_labels,
    check_repeated_rows,
    check_requirements,
    check_target,
    check_time,
)
from metricfit.tabular.positive_class import choose_positive_class

#: Columns of these findings say which row it is, and not what is in it.
NAMING_ROWS = ("identifier", "unnamed_column")


@dataclass(frozen=True)
class Examination:
    """What a table looks like before training.

    Attributes:
        rows: Number of rows.
        columns: Number of columns to learn from.
        classes: Number of rows of each class, the most frequent first.
        positive: The positive class of two; None for several classes.
        findings: What looks wrong, the most serious first.

    Example:
        >>> import pandas as pd
        >>> examination = examine_table(pd.DataFrame({"a": [1, 1, 2] * 20, "b": 7, "y": [0, 1, 1] * 20}), "y")
        >>> examination.classes, examination.positive, [finding.kind for finding in examination.findings]
        ({1: 40, 0: 20}, 1, ['conflicting_rows', 'constant_column'])
    """

    rows: int
    columns: int
    classes: Mapping[Any, int]
    positive: Any
    findings: tuple[Finding, ...]

    def to_dict(self) -> dict[str, Any]:
        """Describe the examination in plain values, as ``metricfit doctor --json`` prints it.

        Returns:
            The size of the table, the classes by their names, and the findings.
        """
        return {
            "rows": self.rows,
            "columns": self.columns,
            "classes": {str(label): rows for label, rows in self.classes.items()},
            "positive": self.positive,
            "findings": [finding.to_dict() for finding in self.findings],
        }


def examine_table(
    table: pd.DataFrame,
    target: str,
    *,
    further: Mapping[str, pd.DataFrame] | None = None,
    time: str | None = None,
    groups: str | None = None,
    subject_to: Requirements | None = None,
    confidence: float | None = None,
    pos_label: Any = None,
    name: str = "the table",
) -> Examination:
    """Find what looks wrong in a table before training; nothing is trained.

    Large tables are examined in part: leaks on at most 10,000 rows of each class.

    Args:
        table: The table to train on, with its labels.
        target: Name of the column with the labels.
        further: Other tables by name, such as the rows to test on. They are compared with the first one.
        time: Name of a column of times, if new rows are later than these.
        groups: Name of a column of groups, whose rows belong together.
        subject_to: Requirements such as ``"recall >= 0.95"``, for which there must be enough rows.
        confidence: The probability with which the requirements must hold on new rows.
        pos_label: The positive class of two; by default as in ``MetricClassifier``.
        name: Name of the table, for messages.

    Returns:
        The size of the table, its classes and the findings.

    Raises:
        InvalidTypeError: The table is no pandas DataFrame.
        InvalidValueError: A column does not exist, or a requirement cannot be read.
        TableError: There is no target column, or no other column.

    Example:
        >>> import pandas as pd
        >>> table = pd.DataFrame({"amount": [7, 8, 9, 7, 9, 8] * 30, "paid": ["no", "yes"] * 90, "late": [1, 0] * 90})
        >>> for finding in examine_table(table, "late").findings:
        ...     print(finding.severity, finding.kind, finding.columns)
        serious leak ('paid',)
    """
    if not isinstance(table, pd.DataFrame):
        raise InvalidTypeError(f"table is a pandas DataFrame with the column of labels; got {type(table).__name__}")
    requirements = as_requirements(subject_to)
    if confidence is not None:
        check_confidence(confidence)
        if not requirements:
            raise InvalidValueError("confidence= is about requirements: give subject_to=, or leave confidence out")
    if target not in table.columns:
        split_target(table, target, name)  # raises with a hint
    for option, column in (("time", time), ("groups", groups)):
        if column is not None and (column == target or column not in table.columns):
            raise InvalidValueError(f"{option}={quote(column)} is none of the other columns of {name}")
    findings = list(check_labels(table[target]))
    labelled = table if not findings else table[table[target].notna()]
    if not len(labelled):
        raise TableError(
            f"The target {quote(target)} is missing in all rows of {name}: there is nothing to learn from."
        )
    X, y = split_target(labelled.reset_index(drop=True), target, name)
    y = _as_whole_numbers(y).rename(target)
    asides = [column for column in (time, groups) if column is not None]
    suspects = list(check_columns(X, known=tuple(asides)))
    findings += [*check_target(y, name), *suspects, *check_time(X, time)]
    positive = None
    if not any(finding.kind == "target" for finding in findings):
        positive = choose_positive_class(y.to_numpy(), pos_label)
        if X.shape[1] > len(asides):
            features = X.drop(columns=asides)
            findings += check_leaks(features, y, positive=positive)
            findings += [] if groups is not None else check_groups(features, y)
        findings += check_requirements(y, positive, requirements, confidence)
    naming = {column for finding in suspects if finding.kind in NAMING_ROWS for column in finding.columns}
    described = X.drop(columns=[column for column in X.columns if column in naming or column in asides])
    if described.shape[1]:
        findings += check_repeated_rows(described, y)
    for other, rows in (further or {}).items():
        findings += check_further_table(X, y, rows, other, time=time, described=list(described.columns))
    classes = {label: int(rows) for label, rows in y.value_counts().items()}
    return Examination(len(table), X.shape[1], classes, positive, by_seriousness(findings))


def _as_whole_numbers(y: pd.Series) -> pd.Series:
    """Return labels such as 1.0, which are fractions only because some were missing, as whole numbers."""
    return y.astype("int64") if pd.api.types.is_float_dtype(y) and (y % 1 == 0).all() else y
