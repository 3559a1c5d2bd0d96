"""A command's rows: the table, its target, its groups, and which label is the positive one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from metricfit.cli.errors import UserError
from metricfit.cli.tables import check_classes, read_table, split_target
from metricfit.metrics import get_metric, parse_requirement


def check_words(metric: str, subject_to: list[str] | None) -> None:
    """The metric and the requirements can be read: said before the table is."""
    get_metric(metric)
    for each in subject_to or ():
        parse_requirement(each)


def rows_of(data: Path, target: str, group: str | None) -> tuple[pd.DataFrame, pd.Series, Any]:
    """What to learn from, the labels, and the groups if a column of them is named."""
    frame = read_table(data)
    if group is not None and group == target:
        raise UserError(f"--group and --target both name {group!r}; groups are another column than the labels.")
    X, y = split_target(frame, target, str(data))
    check_classes(y, str(data))
    if group is None:
        return X, y, None
    if group not in X.columns:
        raise UserError(f"{data} has no column {group!r} to group by.")
    missing = int(X[group].isna().sum())
    if missing:
        raise UserError(
            f"The column {group!r} to group by is missing in {missing} of {len(X)} rows of {data}. Remove those rows, "
            "or give each a group."
        )
    if X[group].nunique() == 1:
        raise UserError(
            f"All rows of {data} have one value of {group!r}: one group cannot be parted. Leave --group out."
        )
    return X.drop(columns=group), y, X[group].to_numpy()


def check_folder(to: Path) -> None:
    """A folder that can be made there, or is there."""
    for each in (to, *to.parents):
        if each.exists():
            if not each.is_dir():
                raise UserError(f"{each} is a file; give a new folder to --out.")
            return


def positive_of(y: pd.Series, positive: str | None) -> Any:
    """The positive label: the one named, else the rarer of two, of equally many the last."""
    counts = y.value_counts()
    if positive is None:
        if len(counts) > 2:
            return None
        return sorted(counts.index, key=lambda label: (-counts[label], str(label)))[-1]
    for label in counts.index:
        if str(label) == positive:
            return label
    shown = ", ".join(str(label) for label in counts.index[:10])
    raise UserError(f"No row has the label {positive!r}; the labels are {shown}.")
