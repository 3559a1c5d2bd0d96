"""``examine_table``: all checks of a table before training, the most serious findings first.

The checks of single columns are in ``column_checks``; here are the checks of labels, rows, times and further tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit.data.columns import check_classes, did_you_mean, order_by_time, quote_label, split_target
from metricfit.decide.bounds import check_confidence
from metricfit.decide.choose import checked_guarantee
from metricfit.decide.class_requirements import class_requirements
from metricfit.errors import InvalidTypeError, InvalidValueError, MetricfitError, TableError, quote
from metricfit.metrics.curves import Requirements, as_requirements
from metricfit.metrics.feasibility import InfeasibleError
from metricfit.metrics.requirements import Requirement
from metricfit.tabular.doctor.column_checks import check_columns, check_groups, check_leaks
from metricfit.tabular.doctor.finding import (
    Finding,
    Severity,
    are_written_dates,
    as_codes,
    as_times,
    by_seriousness,
    column_hashes,
    describe_share,
    kind_of,
    list_names,
)
from metricfit.tabular.notebook import show_examination
from metricfit.tabular.positive_class import choose_positive_class

#: Columns of these findings say which row it is, and not what is in it.
NAMING_ROWS = ("identifier", "unnamed_column")
#: Classes of fewer rows are warned about.
FEW_ROWS = 10
#: The confidence at which requirements are judged that were asked for without one.
USUAL_CONFIDENCE = 0.95
#: A share of the rarest class, or of the rows, from which contradictions, copies and new words are worth a warning.
WORTH_A_WARNING = 0.01
#: With this share of distinct entries a column makes it unlikely that two rows are equal by chance, and its words are
#: free text or identifiers rather than categories.
MOSTLY_DISTINCT = 0.5
#: Cells that are compared, and rows by which chance is judged.
MOST_CELLS, ROWS_JUDGED = 10_000_000, 5_000
#: Distinct numbers of a column from which their order is no accident.
FEWEST_IN_ORDER = 30


@dataclass(frozen=True, repr=False)
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

    def __repr__(self) -> str:
        found = [f"{each.severity}: {each}" for each in self.findings] or ["Nothing looks wrong."]
        return "\n".join([f"{self.rows:,} rows, {self.columns:,} columns to learn from.", *found])

    def _repr_html_(self) -> str:
        return show_examination(self)

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
        raise TableError(f"The target {quote(target)} is missing in all rows of {name}.")
    X, y = split_target(labelled.reset_index(drop=True), target, name)
    if pd.api.types.is_float_dtype(y) and (y % 1 == 0).all():  # 1.0, because some labels were missing
        y = y.astype("int64")
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


def check_labels(y: pd.Series) -> Iterator[Finding]:
    """Find rows without a label, with which ``fit`` refuses to begin."""
    missing = int(y.isna().sum())
    if missing:
        message = f"The target {quote(y.name)} is missing in {describe_share(missing, len(y))}."
        remedy = "Give these rows a label, or leave them out: --skip-unlabelled. The other checks are without them."
        yield Finding("missing_labels", "serious", message, remedy, (str(y.name),))


def check_target(y: pd.Series, source: str) -> Iterator[Finding]:
    """Find labels that cannot be learned, labels that differ by blanks alone, and classes of few rows.

    Args:
        y: The labels, none missing.
        source: Name of the table, for messages.
    """
    columns = (str(y.name),)
    try:
        check_classes(y, source)
    except MetricfitError as error:
        yield Finding("target", "serious", str(error), "", columns)
        return
    labels = pd.Series(y.unique()).astype(str)
    for _, alike in labels.groupby(labels.str.strip().str.casefold()):
        if len(alike) > 1:
            how = "blanks" if alike.str.strip().nunique() == 1 else "blanks or capital letters"
            message = (
                f"The labels {' and '.join(map(quote, alike))} differ only by {how}, and count as different classes."
            )
            remedy = "Write them alike if they mean the same."
            yield Finding("similar_labels", "warning", message, remedy, columns)
    counts = y.value_counts()
    if int(counts.iloc[-1]) < FEW_ROWS:
        message = f"The class {quote_label(counts.index[-1])} has {int(counts.iloc[-1])} rows."
        remedy = "Decisions and values that rest on so few rows are uncertain; collect more of them if you can."
        yield Finding("few_rows", "warning", message, remedy, columns)


def check_requirements(
    y: pd.Series, positive: object, requirements: Sequence[Requirement], confidence: float | None
) -> Iterator[Finding]:
    """Find requirements that the rows are too few for, whatever the model is.

    Args:
        y: The labels.
        positive: The positive class of two; None for several classes.
        requirements: The requirements.
        confidence: The probability with which all must hold; None if they need only be met on held-out rows. Without a
            confidence it is a warning that requirements with exact bounds cannot be promised at 95 %.
    """
    if not requirements:
        return
    labels = sorted(y.unique().tolist(), key=lambda label: (label == positive, label))
    numbers = np.array(y.map({label: number for number, label in enumerate(labels)}), dtype=np.int64)
    asked = class_requirements(requirements, len(labels), names=labels)
    try:
        checked_guarantee(asked, numbers, USUAL_CONFIDENCE if confidence is None else confidence)
    except InfeasibleError as error:
        message, remedy, severity = f"{error}.", "Ask for less, or collect more rows.", "serious"
        if confidence is None:
            message = f"A requirement that is met on these rows may well fail on new ones: {message}"
            remedy = f"Ask for less, or collect more rows and give --confidence {USUAL_CONFIDENCE:g}."
            severity = "warning"
        yield Finding("too_few_rows", cast(Severity, severity), message, remedy)
    except InvalidValueError:
        if confidence is not None:
            raise


def check_repeated_rows(X: pd.DataFrame, y: pd.Series) -> Iterator[Finding]:
    """Find rows with equal features: those with different labels, and copies.

    Args:
        X: The features.
        y: The labels.
    """
    most = MOST_CELLS // X.shape[1]
    if len(X) > most:
        chosen = np.sort(np.random.default_rng(0).choice(len(X), most, replace=False))
        X, y = X.iloc[chosen], y.iloc[chosen]
    _, sets, sizes = np.unique(row_hashes(X), return_inverse=True, return_counts=True)
    if sizes.max() == 1:
        return
    codes = as_codes(y)
    pairs = pd.DataFrame({"set": sets, "label": codes})
    mixed = pairs.groupby("set")["label"].transform("nunique").to_numpy() > 1
    by_chance = not _has_distinct_entries(X)
    if mixed.any():
        yield _contradictions(pairs[mixed], codes, by_chance)
    copies = int((sizes - 1).sum())
    if not by_chance:
        message = f"{describe_share(copies, len(X))} are copies of other rows."
        remedy = "metricfit keeps copies in one fold. Check that they do not come from a join."
        yield Finding("copied_rows", "warning" if copies / len(X) >= WORTH_A_WARNING else "note", message, remedy)


def _contradictions(together: pd.DataFrame, codes: NDArray[np.int64], by_chance: bool) -> Finding:
    """Describe rows with equal features and different labels, and how many of them any model decides wrongly."""
    sizes = together.value_counts().groupby("set")
    wrong = int((sizes.sum() - sizes.max()).sum())
    rarest = int(np.bincount(codes).min())
    aside = " With so few distinct values per column, different rows can look alike." if by_chance else ""
    return Finding(
        "conflicting_rows",
        "warning" if wrong >= WORTH_A_WARNING * rarest and not by_chance else "note",
        f"{describe_share(len(together), len(codes))} have the same values as rows of another class: whatever the "
        f"model, at least {wrong:,} {'is' if wrong == 1 else 'are'} decided wrongly.{aside}",
        "Look for wrong labels, or for a column that is missing.",
    )


def row_hashes(X: pd.DataFrame) -> NDArray[np.uint64]:
    """Return one number per row; equal rows have equal ones, whatever the types of their columns are.

    Example:
        >>> first, second = row_hashes(pd.DataFrame({"a": [1, 1], "b": ["x", "x"]}))
        >>> bool(first == second)
        True
    """
    total = np.zeros(len(X), dtype=np.uint64)
    for name in X.columns:
        total = total * np.uint64(1_000_003) + column_hashes(X[name])
    return total


def _has_distinct_entries(X: pd.DataFrame) -> bool:
    head = X.iloc[:ROWS_JUDGED]
    return any(head[name].nunique() >= MOSTLY_DISTINCT * len(head) for name in head.columns)


def check_time(X: pd.DataFrame, time: str | None) -> Iterator[Finding]:
    """Find what is wrong with a column of times; without one, columns of dates that could be.

    Args:
        X: The features.
        time: Name of the column; None if rows have no order.
    """
    if time is None:
        yield from _possible_times(X)
        return
    try:
        order_by_time(X[time])
    except InvalidValueError as error:
        yield Finding("time", "serious", f"{str(error)[:1].upper()}{str(error)[1:]}.", "", (time,))
        return
    times = as_times(X[time])
    later = 0 if times is None else int((times.to_numpy()[1:] < times.to_numpy()[:-1]).sum())
    if later:
        message = f"The rows are not in the order of {quote(time)}: {later:,} of them are earlier than the row before."
        remedy = "fit --time sorts them; sort them yourself before you split the table by position."
        yield Finding("time", "note", message, remedy, (time,))


def _possible_times(X: pd.DataFrame) -> Iterator[Finding]:
    """Find columns of dates, and columns of repeated numbers that the rows are sorted by."""
    dates = [name for name in X.columns if kind_of(X[name]) == "dates"]
    if dates:
        message = f"{list_names(dates)} {'holds' if len(dates) == 1 else 'hold'} dates."
        remedy = (
            f"If new rows will be later than these, give --time {dates[0]}: every fold is then judged by a model of "
            "earlier rows."
        )
        yield Finding("dates", "note", message, remedy, tuple(dates))
    ordering = [
        name
        for name in X.columns
        if kind_of(X[name]) == "numbers"
        and X[name].iloc[:FEWEST_IN_ORDER].is_monotonic_increasing
        and X[name].is_monotonic_increasing
        and FEWEST_IN_ORDER <= X[name].nunique() < len(X)
    ]
    if ordering:
        message = f"The rows are in the order of {list_names(ordering)}."
        remedy = (
            f"If it is a time and new rows will be later, give --time {ordering[0]}; if rows of one value belong "
            f"together, give --group {ordering[0]}."
        )
        yield Finding("ordered_rows", "note", message, remedy, tuple(ordering))


def check_further_table(
    X: pd.DataFrame,
    y: pd.Series,
    further: pd.DataFrame,
    name: str,
    *,
    time: str | None = None,
    described: Sequence[str],
) -> Iterator[Finding]:
    """Find what a model of the first table would meet in a further one that it has not seen.

    Args:
        X: The features of the table to train on.
        y: Its labels.
        further: The other table, with or without labels.
        name: Its name, for messages.
        time: Name of the column of times, if rows have an order.
        described: The columns by which rows are compared.
    """
    lacking = [column for column in X.columns if column not in further.columns]
    if lacking:
        hint = did_you_mean(lacking[0], [column for column in further.columns if column not in X.columns])
        message = f"{name} lacks {len(lacking)} of the {X.shape[1]} columns to learn from: {list_names(lacking)}.{hint}"
        remedy = "predict needs the columns of training; add them, or train without them."
        yield Finding("missing_columns", "serious", message, remedy, tuple(lacking), name)
    unseen = further[y.name].dropna().unique().tolist() if y.name in further.columns else []
    unseen = [label for label in unseen if not (y == label).any()]
    if unseen:
        listed = ", ".join(map(quote_label, unseen[:5])) + (", ..." if len(unseen) > 5 else "")
        message = f"{name} has labels that the table to train on lacks: {listed}."
        remedy = "evaluate refuses them; write the labels of both tables alike."
        yield Finding("unseen_labels", "serious", message, remedy, (str(y.name),), name)
    for column in X.columns.intersection(further.columns):
        yield from _compare_columns(X[column], further[column], name)
    if not lacking and described:
        yield from _shared_rows(X[list(described)], further, name)
    if time is not None and time in further.columns:
        yield from _overlap_in_time(X[time], further[time], name)


def _compare_columns(column: pd.Series, other: pd.Series, name: str) -> Iterator[Finding]:
    """Find a column of another type, or categories that the table to train on lacks."""
    before, after = kind_of(column), kind_of(other)
    if before != after and column.notna().any() and other.notna().any():
        example = quote(str(other.dropna().iloc[0]), 40)
        message = f"{quote(column.name)} holds {before}, and in {name} {after} such as {example}."
        remedy = "Write the column alike in both tables."
        severity: Severity = "serious" if before == "numbers" else "warning"
        yield Finding("changed_type", severity, message, remedy, (str(column.name),), name)
        return
    if before != "words" or column.nunique() > MOSTLY_DISTINCT * len(column) or are_written_dates(column):
        return
    words = other.dropna().astype(str)
    counts = words[~words.isin(set(column.dropna().astype(str)))].value_counts()
    if len(counts):
        rows = int(counts.sum())
        message = (
            f"{quote(column.name)} has {len(counts):,} {'category' if len(counts) == 1 else 'categories'} in {name} "
            f"that the table to train on lacks: {list_names(counts.index.tolist(), 3)}, in "
            f"{describe_share(rows, len(other))}."
        )
        remedy = "The model treats them as unknown; check the spelling, and add rows with them if you can."
        severity = "warning" if rows >= WORTH_A_WARNING * len(other) else "note"
        yield Finding("unseen_categories", severity, message, remedy, (str(column.name),), name)


def _shared_rows(X: pd.DataFrame, further: pd.DataFrame, name: str) -> Iterator[Finding]:
    """Find rows of a further table that the first one has too, unless different rows can look alike."""
    if not _has_distinct_entries(X):
        return
    shared = int(np.isin(row_hashes(further[list(X.columns)]), row_hashes(X)).sum())
    if shared:
        message = f"{describe_share(shared, len(further))} of {name} are in the table to train on too."
        remedy = "A model is better on rows that it was trained on: remove them from one of the tables."
        severity: Severity = "serious" if shared >= 0.1 * len(further) else "warning"
        yield Finding("shared_rows", severity, message, remedy, table=name)


def _overlap_in_time(times: pd.Series, further: pd.Series, name: str) -> Iterator[Finding]:
    """Find out whether a further table begins before the first one ends."""
    first, second = as_times(times.dropna()), as_times(further.dropna())
    if first is None or second is None or not len(first) or not len(second):
        return
    if (first.dtype.kind == "M") != (second.dtype.kind == "M"):
        return
    first, second = (pd.to_datetime(each, utc=True) if each.dtype.kind == "M" else each for each in (first, second))
    early = int((second < first.max()).sum())
    if early:
        message = (
            f"{describe_share(early, len(further))} of {name} are earlier than the last row to train on "
            f"({str(first.max()).removesuffix(' 00:00:00+00:00')})."
        )
        remedy = "A model that is judged on them knows their future: split the tables at one time."
        yield Finding("time", "serious", message, remedy, (str(times.name),), name)
