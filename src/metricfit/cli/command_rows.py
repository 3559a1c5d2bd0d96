"""The table that a command learns from: columns and rows as the user chose them, sorted, sampled or read in batches."""

from __future__ import annotations

import logging
import shlex
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from metricfit.cli.options import TableOptions
from metricfit.cli.terminal import UserError, print_message, relay_messages
from metricfit.core.arrays import Integers
from metricfit.data.columns import (
    check_classes,
    did_you_mean,
    first_part_of_dates,
    order_by_time,
    quote_label,
    split_target,
)
from metricfit.data.files import SPOKEN, STANDARD_INPUT
from metricfit.data.reading import ParquetTable, large_parquet_table, read_table
from metricfit.data.text_format import TableWarning
from metricfit.decide.bounds import check_confidence, rate_of
from metricfit.errors import QUOTED, quote, shorten
from metricfit.metrics import get_metric, parse_requirement
from metricfit.metrics.average import check_average
from metricfit.metrics.class_order import declared_order
from metricfit.tabular import large_rows
from metricfit.tabular.doctor.examination import examine_table
from metricfit.tabular.doctor.finding import Finding
from metricfit.tabular.encoding.columns import as_text
from metricfit.tabular.large_rows import stratified_sample
from metricfit.tabular.positive_class import choose_positive_class

#: Findings about a table that fit and compare print; doctor prints all.
FINDINGS_SHOWN = 2
#: Rows of a large table that are looked at for findings.
EXAMINED = 100_000


def check_aim(aim: TableOptions) -> None:
    """Check the metric, its average, the requirements and the confidence, before the table is read."""
    check_average(get_metric(aim.metric), aim.average)
    requirements = [parse_requirement(requirement) for requirement in aim.subject_to]
    if aim.confidence is not None:
        check_confidence(aim.confidence)
        if not requirements:
            raise UserError("--confidence is about requirements; give --subject-to, such as 'recall >= 0.9'.")
        for requirement in requirements:
            rate_of(requirement)


def read_data(
    data: Sequence[Path], target: str | None, text: dict[str, str | None], codes: Sequence[str] = ()
) -> pd.DataFrame:
    """Read the table that a command is about, and print the warnings about it.

    Args:
        data: The files.
        target: Name of the column with the labels, or None.
        text: How text tables are written.
        codes: Columns of codes, which are read as they are written.
    """
    with relay_messages(logging.WARNING):
        warnings.simplefilter("always", TableWarning)
        return read_table(data, target, **text, text=codes)


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


def check_columns(table: TableOptions, columns: Sequence[str], source: str) -> None:
    """Refuse columns that are not there, and columns that two options name.

    Args:
        table: What the user said about the table.
        columns: The columns of the table.
        source: Name of the table, for messages.

    Raises:
        UserError: A column is not there, or named by two options.
    """
    if table.group is not None and table.time is not None:
        raise UserError("--group and --time both say how rows are split into folds; give one of them.")
    check_named(table)
    for option, names in (
        ("--group", [table.group]),
        ("--weight", [table.weight]),
        ("--time", [table.time]),
        ("--today", [table.today]),
        ("--drop", table.drop),
        ("--category", table.category),
    ):
        for name in names:
            if name is not None and name not in columns:
                hint = did_you_mean(name, columns)
                raise UserError(f"{source} has no column {quote(name)} for {option}.{hint}")


def check_named(table: TableOptions) -> None:
    """Refuse a column that two options name.

    Raises:
        UserError: The message names the options.
    """
    named: dict[str, str] = {table.target: "--target"}
    for option in ("group", "weight", "time", "today", "drop", "category"):
        value = getattr(table, option)
        for name in dict.fromkeys(value) if isinstance(value, list) else [value]:
            if name is not None and name in named:
                raise UserError(f"--{option} and {named[name]} both name {quote(name)}; choose another column for one.")
            named[name] = f"--{option}"


def choose_columns(table: TableOptions, frame: pd.DataFrame, source: str) -> pd.DataFrame:
    """Return a table without what is left out, and with its codes as categories; a message counts rows left out."""
    frame = frame.drop(columns=[name for name in table.drop if name in frame.columns])
    if table.skip_unlabelled and table.target in frame.columns:
        labelled = frame[table.target].notna()
        missing = int((~labelled).sum())
        if missing:
            print_message(f"{missing:,} of {len(frame):,} rows of {source} have no label and are left out.")
            frame = frame[labelled].reset_index(drop=True)
    codes = {name: as_text(frame[name]) for name in table.category if name in frame.columns}
    return frame.assign(**{name: pd.Categorical(code) for name, code in codes.items()})


class CommandRows(NamedTuple):
    """The rows that a command trains on.

    Attributes:
        X: The features; of a large Parquet table, the files that they are read from.
        y: The labels.
        groups: The group of each row, or None.
        findings: What looks wrong in the table, the most serious first.
        numbers: The number of each row in the table as it was read.
        order: The classes in their order, if the user or the file declares one.
        times: The time of each row, if rows are in the order of time.
        weight: The weight of each row, or None.
        today: Today's decision about each row, or None.
    """

    X: Any
    y: pd.Series
    groups: pd.Series | None
    findings: tuple[Finding, ...]
    numbers: Integers
    order: list[Any] | None = None
    times: pd.Series | None = None
    weight: pd.Series | None = None
    today: pd.Series | None = None

    @property
    def ordered_labels(self) -> pd.Series:
        """The labels, with the order of the classes if there is one."""
        if self.order is None:
            return self.y
        categories = pd.CategoricalDtype(self.order, ordered=True)
        return self.y.astype(categories)


def read_rows(table: TableOptions, subject_to: Sequence[str] = ()) -> CommandRows:
    """Read a table, and return the features, the labels, and the groups and weights if their columns are named.

    With a column of times, the rows are in the order of time. The most serious findings about the table are printed.

    Args:
        table: What the user said about the table.
        subject_to: Requirements for which there must be enough rows.

    Raises:
        UserError: A column cannot be used.
        TableError: The table cannot be read.
    """
    frame, source = read_data(table.data, table.target, table.text, table.category), name_data(table.data)
    if table.target in frame.columns:
        check_columns(table, list(frame.columns), source)
    numbers = np.arange(len(frame))
    if table.skip_unlabelled and table.target in frame.columns:
        numbers = np.flatnonzero(frame[table.target].notna())
    frame = choose_columns(table, frame, source)
    X, y = split_target(frame, table.target, source)
    check_classes(y, source)
    order = _order_of_classes(table.order, y, frame[table.target])
    times = None
    if table.time is not None:
        numbers = numbers[order_by_time(X[table.time])]
        X, y, times = _sort_by_time(X, y, table.time, source)
    if table.group is not None:
        _check_groups(X[table.group], source)
    names = (table.group, table.weight, table.today)
    groups, weight, today = (None if name is None else X[name] for name in names)
    apart = [name for name in names if name is not None]
    if weight is not None and weight.dtype.kind not in "biuf":
        raise UserError(f"The column {quote(table.weight)} of weights holds {weight.dtype}; weights are numbers.")
    examined = frame.drop(columns=[name for name in names[1:] if name is not None])
    findings = print_findings(examined, table, subject_to)
    return CommandRows(X.drop(columns=apart), y, groups, findings, numbers, order, times, weight, today)


def _order_of_classes(order: str | None, y: pd.Series, column: pd.Series) -> list[Any] | None:
    """Return the classes in the order of ``--order``, or in the order that the type of the column declares."""
    if order is None:
        return declared_order(column)
    labels, named = y.unique().tolist(), list[Any]()
    for word in (word.strip() for word in order.split(",")):
        same = [label for label in labels if str(label) == word] or [label for label in labels if _means(word, label)]
        if not same:
            raise UserError(f"No row has the label {quote(word)} of --order; the labels are {_listed(labels)}.")
        named += same[:1]
    missing = [label for label in labels if label not in named]
    if missing or len(set(named)) < len(named):
        problem = f"lacks {_listed(missing)}" if missing else "names a class twice"
        raise UserError(f"--order {problem}. Name every class once, the lowest first, separated by commas.")
    return named


def _sort_by_time(X: pd.DataFrame, y: pd.Series, column: str, source: str) -> tuple[pd.DataFrame, pd.Series, pd.Series]:
    """Sort rows by a column of times, and take the column out of the features; a message says so."""
    if X.shape[1] == 1:
        raise UserError(
            f"{source} has no column except the target and {quote(column)}: there is nothing to learn from."
        )
    order = order_by_time(X[column])
    first, last = (str(X[column].iloc[order[end]]).removesuffix(" 00:00:00") for end in (0, -1))
    part = None if X[column].dtype.kind in "biufM" else first_part_of_dates(X[column])
    read = "" if part is None else f", which is read with the {part} first"
    print_message(
        f"Rows are in the order of {quote(column)}{read}, from {first} to {last}: every fold is judged by a model of "
        f"earlier rows. {quote(column)} itself is not learned from."
    )
    features, labels, times = (
        part.iloc[order].reset_index(drop=True) for part in (X.drop(columns=column), y, X[column])
    )
    return features, labels, times


def _check_groups(groups: pd.Series, source: str) -> None:
    """Refuse groups with missing values, and a single group."""
    missing, name = int(groups.isna().sum()), quote(groups.name)
    if missing:
        raise UserError(
            f"The column {name} to group by is missing in {missing} of {len(groups)} rows of {source}. Remove those "
            "rows, or give each a group."
        )
    if groups.nunique() == 1:
        raise UserError(f"All rows of {source} have one value of {name}: one group cannot be split. Leave --group out.")


def read_fitted_rows(table: TableOptions, subject_to: Sequence[str] = ()) -> CommandRows:
    """Return the rows of ``fit``: a large Parquet table is read in batches, any other table at once.

    Args:
        table: What the user said about the table.
        subject_to: Requirements for which there must be enough rows.

    Raises:
        UserError: An option does not apply to a large table, or names columns that are not there.
    """
    plain_text = not any(table.text.values())
    files = large_parquet_table(list(table.data), large_rows.LARGE_ROWS) if plain_text and not table.time else None
    if files is None:
        rows = read_rows(table, subject_to)
        if len(rows.y) > large_rows.LARGE_ROWS:
            print_message(
                f"{name_data(table.data)} has {len(rows.y):,} rows, which are read at once. Parquet files are read in "
                "batches, in a fraction of the memory, unless rows are sorted by --time."
            )
        return rows
    source, target, group = name_data(table.data), table.target, table.group
    if table.category or table.skip_unlabelled or table.weight or table.today:
        raise UserError(
            f"{source} has {len(files):,} rows and is read in batches, where --category, --skip-unlabelled, "
            "--weight and --today do not apply: write codes as a column of categories (pyarrow: dictionary_encode), "
            "and leave such rows out. In Python, MetricClassifier.fit takes sample_weight."
        )
    head = files.head()
    split_target(head, target, source)  # a missing column is reported with the names of the others
    check_columns(table, list(head.columns), source)
    there = [name for name in files.columns if name in head.columns]  # an index of pandas is no column
    print_message(
        f"{source} has {len(files):,} rows: it is read in batches, and what looks wrong is looked for in a sample."
    )
    _, y = split_target(pd.DataFrame({target: files[target], "": 0}), target, source)
    check_classes(y, source)
    groups = None if group is None else files[group].rename(group)
    if groups is not None:
        _check_groups(groups, source)
    findings = print_findings(choose_columns(table, files.sample(EXAMINED), source), table)
    unused = (target, group, *table.drop)
    features = ParquetTable(files.files, [name for name in there if name not in unused])
    order = _order_of_classes(table.order, y, head[target])
    return CommandRows(features, y, groups, findings, np.arange(len(y)), order)


def read_compared_rows(
    table: TableOptions, subject_to: Sequence[str] = (), *, most: int
) -> tuple[CommandRows, int, str | None]:
    """Read a table; of one with more than this many rows, a sample in which each class has its share.

    Of a table with groups, whole groups are drawn. Rows stay in their order.

    Returns:
        The rows, the number of rows of the table, and what was left out; None if these are all rows.
    """
    rows = read_fitted_rows(table, subject_to)
    X, y, groups, total = rows.X, rows.y, rows.groups, len(rows.y)
    if total <= most:
        return rows._replace(X=X.take(np.arange(total)) if isinstance(X, ParquetTable) else X), total, None
    index = (
        sample_of_groups(groups, most)
        if groups is not None
        else stratified_sample(np.arange(total), pd.factorize(y)[0].astype(np.int64), most, 0)
    )
    X = X.take(index) if isinstance(X, ParquetTable) else X.iloc[index]
    beside = {name: getattr(rows, name) for name in ("y", "groups", "times", "weight", "today")}
    sampled = rows._replace(
        X=X.reset_index(drop=True),
        numbers=rows.numbers[index],
        **{name: each.iloc[index].reset_index(drop=True) for name, each in beside.items() if each is not None},
    )
    check_classes(sampled.y, f"A sample of {name_data(table.data)}")
    note = f"The methods are compared on a random sample of {len(index):,} of {total:,} rows; --max-rows sets its size"
    return sampled, total, note


def sample_of_groups(groups: pd.Series, most: int) -> Integers:
    """Draw whole groups of at most this many rows together, at least two groups; return their rows in order."""
    numbers, names = pd.factorize(groups)
    sizes = np.bincount(numbers)
    order = np.random.default_rng(0).permutation(len(names))
    drawn = order[: max(2, int(np.searchsorted(np.cumsum(sizes[order]), most, side="right")))]
    return np.flatnonzero(np.isin(numbers, drawn)).astype(np.int64)


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


def print_findings(frame: pd.DataFrame, table: TableOptions, subject_to: Sequence[str] = ()) -> tuple[Finding, ...]:
    """Print the most serious findings about a table, and how to see the others; return all of them."""
    findings = examine_table(
        frame,
        table.target,
        time=table.time,
        groups=table.group,
        subject_to=list(subject_to) or None,
        name=name_data(table.data),
    ).findings
    serious = [finding for finding in findings if finding.severity != "note"]
    for finding in serious[:FINDINGS_SHOWN]:
        print_message(f"Warning: {finding}")
    if len(serious) > FINDINGS_SHOWN:
        command = shlex.join(["metricfit", "doctor", *map(str, table.data), "--target", table.target])
        print_message(f"Warning: {len(serious) - FINDINGS_SHOWN} more in the table; {command} lists all.")
    return findings
