"""The rows that a command trains on: features, labels, groups, and which label is the positive one."""

from __future__ import annotations

import logging
import shlex
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from metricfit.cli.column_choice import EVERYTHING, ColumnChoice
from metricfit.cli.exit_codes import UserError
from metricfit.cli.terminal import print_message, relay_messages
from metricfit.cli.time_order import sort_by_time
from metricfit.data.column_names import did_you_mean
from metricfit.data.labels import check_classes, quote_label, split_target
from metricfit.data.table_files import read_table
from metricfit.data.table_sources import SPOKEN, STANDARD_INPUT
from metricfit.data.text_format import TableWarning, TextOptions
from metricfit.decide.estimators.positive_class import choose_positive_class
from metricfit.decide.guarantees.bounds import check_confidence, rate_of
from metricfit.errors import QUOTED, quote, shorten
from metricfit.metrics import get_metric, parse_requirement
from metricfit.tabular.doctor.examination import examine_table
from metricfit.tabular.doctor.finding import Finding

#: Findings about a table that fit and compare print; doctor prints all.
FINDINGS_SHOWN = 2
#: Separator, decimal mark and encoding are guessed.
GUESSED = TextOptions()


def check_metric_options(metric: str, subject_to: list[str] | None, confidence: float | None = None) -> None:
    """Check the metric, the requirements and the confidence, before the table is read."""
    get_metric(metric)
    requirements = [parse_requirement(requirement) for requirement in subject_to or ()]
    if confidence is not None:
        check_confidence(confidence)
        if not requirements:
            raise UserError("--confidence is about requirements; give --subject-to, such as 'recall >= 0.9'.")
        for requirement in requirements:
            rate_of(requirement)


def read_data(data: Sequence[Path], target: str | None, written: TextOptions, text: Sequence[str] = ()) -> pd.DataFrame:
    """Read the table that a command is about, and print the warnings about it; ``text`` are columns of codes."""
    with relay_messages(logging.WARNING):
        warnings.simplefilter("always", TableWarning)
        return read_table(data, target, **written._asdict(), text=text)


def name_data(data: Sequence[Path]) -> str:
    """Return the name of a table for messages: its file, or its first file and the number of the others.

    >>> name_data([Path("a.csv"), Path("b.csv")])
    'a.csv and 1 more'
    """
    first = SPOKEN if str(data[0]) == STANDARD_INPUT else str(data[0])
    return first if len(data) == 1 else f"{first} and {len(data) - 1} more"


def title_data(data: Sequence[Path]) -> str:
    """Return the name of a table for reports, without folders."""
    return name_data([Path(data[0].name or str(data[0])), *data[1:]])


class CommandRows(NamedTuple):
    """The rows that a command trains on.

    Attributes:
        X: The features; of a large Parquet table, the files that they are read from.
        y: The labels.
        groups: The group of each row, or None.
        findings: What looks wrong in the table, the most serious first.
    """

    X: Any
    y: pd.Series
    groups: pd.Series | None
    findings: tuple[Finding, ...]


def read_rows(
    data: Sequence[Path],
    target: str,
    group: str | None,
    written: TextOptions = GUESSED,
    time: str | None = None,
    *,
    subject_to: Sequence[str] | None = None,
    choice: ColumnChoice = EVERYTHING,
) -> CommandRows:
    """Read a table, and return the features, the labels, and the groups if a column of groups is named.

    With a column of times, the rows are in the order of time. The most serious findings about the table are printed.
    """
    if group is not None and time is not None:
        raise UserError("--group and --time both say how rows are split into folds; give one of them.")
    frame, source = read_data(data, target, written, choice.category), name_data(data)
    if group is not None and group == target:
        raise UserError(f"--group and --target both name {quote(group)}; choose another column for the groups.")
    choice.check(list(frame.columns), source, {"--target": target, "--group": group, "--time": time})
    frame = choice.apply(frame, target, source)
    X, y = split_target(frame, target, source)
    check_classes(y, source)
    if time is not None:
        X, y = sort_by_time(X, y, time, source)
    if group is None:
        findings = print_findings(frame, data, target, time=time, subject_to=subject_to)
        return CommandRows(X, y, None, findings)
    check_groups(X, group, source)
    findings = print_findings(frame, data, target, groups=group, subject_to=subject_to)
    return CommandRows(X.drop(columns=group), y, X[group], findings)


def check_groups(X: pd.DataFrame, group: str, source: str) -> None:
    """Refuse a column of groups that is not there, that has missing values, or that is one group."""
    if group not in X.columns:
        raise UserError(f"{source} has no column {quote(group)} to group by.{did_you_mean(group, X.columns)}")
    missing = int(X[group].isna().sum())
    if missing:
        raise UserError(
            f"The column {quote(group)} to group by is missing in {missing} of {len(X)} rows of {source}. Remove those "
            "rows, or give each a group."
        )
    if X[group].nunique() == 1:
        raise UserError(
            f"All rows of {source} have one value of {quote(group)}: one group cannot be split. Leave --group out."
        )


def check_binary_options(y: pd.Series, positive: str | None) -> None:
    """Refuse options for two classes if there are more."""
    if positive and y.nunique() > 2:
        raise UserError(
            f"--positive is for two classes; the target has {y.nunique()}: {_listed(y.unique())}. Leave it out, or "
            "make one class against the rest in your table."
        )


def choose_positive_label(y: pd.Series, positive: str | None) -> Any:
    """Choose the positive label: the one that ``--positive`` names, otherwise by ``choose_positive_class``.

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
    matching = [*exact, *(label for label in labels if _means(positive, label))]
    if matching:
        return matching[0]
    raise UserError(f"No row has the label {quote(positive)}; the labels are {_listed(labels)}.")


def describe_classes(counts: pd.Series, positive: Any) -> str:
    """List the classes with their numbers of rows, most frequent first, and name the positive one of two.

    >>> describe_classes(pd.Series({"no": 90, "yes": 9, "yes ": 1}), None)
    "Classes: 'no' (90 rows), 'yes' (9 rows), 'yes ' (1 row)."
    """
    classes = [f"{quote_label(label)} ({rows} {'row' if rows == 1 else 'rows'})" for label, rows in counts.items()]
    listed = ", ".join(classes[:20]) + (f" and {len(classes) - 20} more" if len(classes) > 20 else "")
    return f"Classes: {listed}" + ("." if positive is None else f"; the positive one is {quote_label(positive)}.")


def _means(text: str, label: Any) -> bool:
    """Return whether the text is another spelling of a label that is a number, or true or false."""
    if isinstance(label, (bool, np.bool_)):
        return text.strip().lower() == str(label).lower()
    try:
        return isinstance(label, (int, float, np.number)) and float(text) == label
    except ValueError:
        return False


def _listed(labels: Any) -> str:
    return ", ".join(shorten(label, QUOTED) for label in labels[:10]) + (", ..." if len(labels) > 10 else "")


def print_findings(frame: pd.DataFrame, data: Sequence[Path], target: str, **asked: Any) -> tuple[Finding, ...]:
    """Print the most serious findings about a table, and how to see the others; return all of them."""
    findings = examine_table(frame, target, name=name_data(data), **asked).findings
    found = [finding for finding in findings if finding.severity != "note"]
    for finding in found[:FINDINGS_SHOWN]:
        print_message(f"Warning: {finding}")
    if len(found) > FINDINGS_SHOWN:
        command = shlex.join(["metricfit", "doctor", *map(str, data), "--target", target])
        print_message(f"Warning: {len(found) - FINDINGS_SHOWN} more in the table; {command} lists all.")
    return findings
