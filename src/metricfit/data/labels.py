"""The labels of a table: taken from its target column, and checked before anything is learned from them."""

from __future__ import annotations

import pandas as pd

from metricfit.data.column_names import did_you_mean
from metricfit.data.text_tables import separator_hint
from metricfit.errors import QUOTED, TableError, quote, shorten


def split_target(frame: pd.DataFrame, target: str, source: str) -> tuple[pd.DataFrame, pd.Series]:
    """Split a table into the columns to learn from and the labels.

    Args:
        frame: The table.
        target: Name of the column with the labels.
        source: Name of the table, for messages.

    Returns:
        The other columns, and the labels. Categories become the values they name, and dates become text.

    Raises:
        TableError: If there is no such column, a label is missing, or the labels have a type that cannot be used.
    """
    if target not in frame.columns:
        hint = did_you_mean(target, frame.columns) or separator_hint(list(frame.columns))
        listed = ", ".join(quote(name, 40) for name in frame.columns[:12]) + (", ..." if frame.shape[1] > 12 else "")
        raise TableError(f"{source} has no column {quote(target)}. It has {frame.shape[1]}: {listed}.{hint}")
    missing = int(frame[target].isna().sum())
    if missing:
        raise TableError(
            f"The target {quote(target)} is missing in {missing} of {len(frame)} rows of {source} (empty cells, "
            "infinite numbers, or words such as NA among numbers). Give those rows a label, or leave them out: "
            "--skip-unlabelled on the command line."
        )
    features = frame.drop(columns=target)
    if features.shape[1] == 0:
        raise TableError(f"{source} has no column except the target {quote(target)}: there is nothing to learn from.")
    labels = _as_plain_labels(frame[target])
    _check_label_types(labels, target, source)
    return features, labels


def _as_plain_labels(labels: pd.Series) -> pd.Series:
    """Replace categories by the values they name, and dates by text that does not depend on the other dates."""
    if isinstance(labels.dtype, pd.CategoricalDtype):
        labels = labels.astype(labels.cat.categories.dtype)
    if isinstance(labels.dtype, (pd.PeriodDtype, pd.IntervalDtype)):
        return labels.astype("str")
    if pd.api.types.infer_dtype(labels) in ("datetime64", "datetime", "date"):
        return labels.map(lambda day: str(day).removesuffix(" 00:00:00")).astype("str")
    return labels


def _check_label_types(labels: pd.Series, target: str, source: str) -> None:
    """Refuse labels that are neither all text, nor all numbers of at most 64 bits, nor all true and false."""
    if not pd.api.types.is_object_dtype(labels):
        return
    examples = {type(label): label for label in labels}
    if set(examples) in ({str}, {bool}):
        return
    large = [label for label in labels if isinstance(label, int) and not -(2**63) <= label < 2**64]
    examples = {int: large[0]} if large else examples
    listed = " and ".join(f"{quote_label(label)} ({kind.__name__})" for kind, label in list(examples.items())[:3])
    raise TableError(
        f"The target {quote(target)} of {source} holds {listed}; labels are all text, all whole numbers of at most 64 "
        "bits, or all true and false. Write them as text, or choose another column."
    )


def check_classes(labels: pd.Series, source: str) -> None:
    """Check that labels can be learned: at least two classes with two rows each, and not one class per row.

    Args:
        labels: The labels.
        source: Name of the table, for messages.

    Raises:
        TableError: If they cannot be learned; the message says why.
    """
    classes = labels.nunique()
    if classes < 2:
        raise TableError(
            f"All {len(labels)} rows of {source} have the same target, {quote_label(labels.iloc[0])}: there is nothing "
            "to learn. Add rows of another class, or choose another column."
        )
    if classes > max(20, len(labels) // 5):
        kind = "numbers to predict, not classes" if pd.api.types.is_numeric_dtype(labels) else "names, not classes"
        raise TableError(
            f"The target has {classes} different values in {len(labels)} rows of {source}: these look like {kind}. "
            "Choose another column, or group the values into classes."
        )
    fractions = labels[labels % 1 != 0].tolist() if pd.api.types.is_float_dtype(labels) else []
    if fractions:
        raise TableError(
            f"The target of {source} holds {fractions[0]}, which is not a whole number: numbers are labels only if "
            "they are whole. Write the labels as text or as whole numbers, or choose another column."
        )
    counts = labels.value_counts()
    if int(counts.iloc[-1]) < 2:
        raise TableError(
            f"The class {quote_label(counts.index[-1])} has a single row in {source}; a class needs at least two, one "
            "to learn from and one to check on. Merge it with another, or remove it."
        )


def quote_label(value: object) -> str:
    """Write a label for a message: text in quotes, and shortened if it is long."""
    return quote(value) if isinstance(value, (str, int)) else shorten(value, QUOTED)
