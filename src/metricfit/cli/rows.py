"""A command's rows: the table, its target, its groups, and which label is the positive one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from metricfit.cli.errors import UserError
from metricfit.cli.printing import say
from metricfit.cli.tables import check_classes, read_table, shown, split_target
from metricfit.errors import QUOTED, quote, shorten
from metricfit.metrics import get_metric, parse_requirement
from metricfit.tabular.positive_class import choose_positive_class


def check_words(metric: str, subject_to: list[str] | None) -> None:
    """The metric and the requirements can be read: said before the table is."""
    get_metric(metric)
    for each in subject_to or ():
        parse_requirement(each)


def rows_of(data: Path, target: str, group: str | None) -> tuple[pd.DataFrame, pd.Series, Any]:
    """What to learn from, the labels, and the groups if a column of them is named."""
    frame = read_table(data, target)
    if group is not None and group == target:
        raise UserError(f"--group and --target both name {quote(group)}; groups are another column than the labels.")
    X, y = split_target(frame, target, str(data))
    check_classes(y, str(data))
    _warn(X, y)
    if group is None:
        return X, y, None
    if group not in X.columns:
        raise UserError(f"{data} has no column {quote(group)} to group by.")
    missing = int(X[group].isna().sum())
    if missing:
        raise UserError(
            f"The column {quote(group)} to group by is missing in {missing} of {len(X)} rows of {data}. Remove those "
            "rows, or give each a group."
        )
    if X[group].nunique() == 1:
        raise UserError(
            f"All rows of {data} have one value of {quote(group)}: one group cannot be parted. Leave --group out."
        )
    return X.drop(columns=group), y, X[group]


def check_file(to: Path, option: str) -> None:
    """A file that is not there yet, in a folder that is: nothing is overwritten, and nothing made in passing."""
    if to.is_dir():
        raise UserError(f"{to} is a folder; give a file to {option}.")
    if not to.parent.is_dir():
        raise UserError(f"There is no folder {to.parent}; make it first.")
    if to.exists():
        raise UserError(f"{to} is there already; give another file to {option}, or remove it first.")


def check_folder(to: Path) -> None:
    """Refuse a path where no folder is and none can be made."""
    for each in (to, *to.parents):
        if each.exists():
            if not each.is_dir():
                raise UserError(f"{each} is a file; give a new folder to --out.")
            return


def check_several(y: pd.Series, positive: str | None, subject_to: list[str] | None) -> None:
    """Options that are for two classes are given for two."""
    for option, given in (("--positive", positive), ("--subject-to", subject_to)):
        if given and y.nunique() > 2:
            raise UserError(
                f"{option} is for two classes; the target has {y.nunique()}: {_listed(y.unique())}. Leave it out, or "
                "make one class against the rest in your table."
            )


def positive_of(y: pd.Series, positive: str | None) -> Any:
    """The positive label: the one that ``--positive`` names, else by the rule of ``choose_positive_class``.

    Args:
        y: The labels.
        positive: The option's text, or None if it was not given.

    Returns:
        The label; None for several classes.

    Raises:
        UserError: If no label is written like ``positive``.
    """
    if positive is None:
        return choose_positive_class(y.to_numpy())
    labels = y.value_counts().index
    exact = [label for label in labels if str(label) == positive]
    alike = [*exact, *(label for label in labels if _means(positive, label))]
    if alike:
        return alike[0]
    raise UserError(f"No row has the label {quote(positive)}; the labels are {_listed(labels)}.")


def in_words(counts: pd.Series, positive: Any) -> str:
    """The classes with their numbers of rows, the most frequent first; of two, which is the positive.

    >>> in_words(pd.Series({"no": 90, "yes": 9, "yes ": 1}), None)
    "Classes: 'no' (90 rows), 'yes' (9 rows), 'yes ' (1 row)."
    """
    each = [f"{shown(label)} ({rows} {'row' if rows == 1 else 'rows'})" for label, rows in counts.items()]
    said = ", ".join(each[:20]) + (f" and {len(each) - 20} more" if len(each) > 20 else "")
    return f"Classes: {said}" + ("." if positive is None else f"; the positive one is {shown(positive)}.")


def _means(text: str, label: Any) -> bool:
    """Whether the text is another spelling of a number, or of true or false."""
    if isinstance(label, (bool, np.bool_)):
        return text.strip().lower() == str(label).lower()
    try:
        return isinstance(label, (int, float, np.number)) and float(text) == label
    except ValueError:
        return False


def _listed(labels: Any) -> str:
    return ", ".join(shorten(label, QUOTED) for label in labels[:10]) + (", ..." if len(labels) > 10 else "")


def _warn(X: pd.DataFrame, y: pd.Series) -> None:
    """Say what is odd about a table that can yet be learnt from."""
    for name in X.columns:
        if name.startswith("Unnamed: "):
            say(
                f"Warning: a column without a name, here {quote(name)}, is learnt from as any other. If it holds row "
                "numbers (pandas writes them without index=False), remove it."
            )
    by_text: dict[str, list[str]] = {}
    for label in y.unique():
        by_text.setdefault(str(label).strip(), []).append(quote(str(label)))
    for alike in by_text.values():
        if len(alike) > 1:
            say(f"Warning: the labels {' and '.join(alike)} differ by blanks alone, and count as different classes.")
