"""The rows of a command's files, scored by a saved model in batches."""

from __future__ import annotations

import logging
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from metricfit.cli.exit_codes import UserError
from metricfit.cli.options import TableOptions
from metricfit.cli.saved_model import model_columns
from metricfit.cli.terminal import err, print_message, relay_messages
from metricfit.data.columns import did_you_mean, split_target
from metricfit.data.reading import Batch, ColumnTypes, RowBatches
from metricfit.data.text_format import TableWarning, TextOptions
from metricfit.errors import QUOTED, quote, shorten
from metricfit.tabular import MetricClassifier
from metricfit.tabular.inputs import describe_unseen
from metricfit.tabular.scored_rows import ScoredRows, column_types, score_batch

#: Seconds between two lines about the progress where there is no terminal.
BETWEEN_LINES = 10.0


class ScoredBatch(NamedTuple):
    """Rows of a file with the logits of a model.

    Attributes:
        frame: The rows; of Parquet files, only the columns that are needed.
        scored: Their logits.
        labels: Their labels, if a target was named.
    """

    frame: pd.DataFrame
    scored: ScoredRows
    labels: pd.Series | None


def scored_batches(
    model: MetricClassifier,
    data: Sequence[Path],
    text: dict[str, str | None],
    *,
    target: str | None = None,
    carried: Sequence[str] = (),
    skip_unlabelled: bool = False,
    doing: str = "Predicting",
    quiet: bool = False,
    may_be_empty: bool = False,
) -> Iterator[ScoredBatch]:
    """Read the files of a command in batches, and score their rows.

    Args:
        model: The saved model.
        data: The files.
        text: How text files are written.
        target: Name of the column with the labels, if they are needed.
        carried: Names of further columns that are needed. In text files they are read as text, letter by letter.
        skip_unlabelled: Whether rows without a label are left out, which are otherwise refused; a message counts them.
        doing: What the progress is about.
        quiet: Whether to show no progress.
        may_be_empty: Whether a file may have a header and no rows; its one batch is then empty.

    Yields:
        The rows of each batch.

    Raises:
        TableError: A file cannot be read, or a row of it cannot be scored; the message names the row.
        UserError: A column is missing, or a label is not known to the model.
    """
    names = list(getattr(model, "feature_names_in_", ()))
    needed = dict.fromkeys([*names, *([] if target is None else [target]), *carried]) if names else None
    types = column_types(model, target)
    types = ColumnTypes(types.text, [*types.words, *(name for name in carried if name not in names)])
    rows, skipped, unseen = 0, 0, Counter[str]()
    reading = RowBatches(list(data), TextOptions(**text), needed, types, may_be_empty=may_be_empty)
    with reading as batches, _row_progress(doing, quiet) as update:
        warnings.simplefilter("always", TableWarning)
        for batch in batches:
            labelled = _labelled(batch, target) if skip_unlabelled and target is not None else None
            whole = batch if labelled is None else replace(batch, frame=batch.frame[labelled])
            skipped += len(batch.frame) - len(whole.frame)
            if len(batch.frame) and not len(whole.frame):
                continue
            labels = None if target is None else _labels_of(model, whole, target)
            frame = batch.frame if target is None or target in names else batch.frame.drop(columns=target)
            scored = score_batch(model, model_columns(model, frame, batch.source), batch)
            for name in carried:
                if name not in batch.frame.columns:
                    hint = did_you_mean(name, batch.frame.columns)
                    raise UserError(f"{batch.source} has no column {quote(name)} to carry through.{hint}")
            rows += len(batch.frame)
            unseen.update(scored.unseen)
            update(rows, batches.share_read)
            yield ScoredBatch(whole.frame, scored if labelled is None else scored.take(labelled), labels)
    if unseen:
        print_message(f"Warning: {describe_unseen(unseen, rows)}")
    if skipped:
        print_message(f"{skipped:,} rows have no label and are left out.")


def scored_rows(
    model: MetricClassifier, table: TableOptions, *, doing: str, quiet: bool
) -> tuple[ScoredRows, pd.Series, NDArray[Any] | None]:
    """Read the files of a command in batches, and return the logits, the labels and the groups of all rows.

    Args:
        model: The saved model.
        table: What the user said about the table.
        doing: What the progress is about.
        quiet: Whether to show no progress.

    Returns:
        The rows, which stand for the table in all functions that take a model and a table, their labels, and their
        groups or None.
    """
    parts: list[ScoredRows] = []
    numbers: list[NDArray[np.int64]] = []
    groups: list[NDArray[Any]] = []
    target, carried = table.target, [] if table.group is None else [table.group]
    reading = scored_batches(
        model,
        table.data,
        table.text,
        target=target,
        carried=carried,
        skip_unlabelled=table.skip_unlabelled,
        doing=doing,
        quiet=quiet,
    )
    for batch in reading:
        parts.append(batch.scored)
        numbers.append(np.searchsorted(model.classes_, np.asarray(batch.labels)))
        groups += [batch.frame[name].to_numpy() for name in carried]
    if not parts:
        raise UserError(f"No row has a label in {quote(target)}: there is nothing to compare with.")
    labels = model.classes_[np.concatenate(numbers)]
    return ScoredRows.join(parts), pd.Series(labels, name=target), np.concatenate(groups) if groups else None


def _labelled(batch: Batch, target: str) -> NDArray[np.bool_]:
    """Return which rows have a label; all of them if there is no such column, which is reported later."""
    there = target in batch.frame.columns
    return batch.frame[target].notna().to_numpy() if there else np.ones(len(batch.frame), dtype=bool)


def _labels_of(model: MetricClassifier, batch: Batch, target: str) -> pd.Series:
    """Return the labels of a batch; those that the model does not know are refused."""
    if target in batch.frame.columns:
        missing = batch.frame[target].isna().to_numpy()
        if missing.any():
            raise UserError(
                f"The target {quote(target)} is missing in row {batch.first + int(missing.argmax())} of "
                f"{batch.source} (an empty cell, an infinite number, or a word such as NA among numbers). Give such "
                "rows a label, or leave them out: --skip-unlabelled."
            )
    _, labels = split_target(batch.frame, target, batch.source)
    unknown = sorted(set(labels.unique()) - set(model.classes_), key=str)
    if unknown:
        listed, known = (
            ", ".join(shorten(label, QUOTED) for label in several[:5]) for several in (unknown, list(model.classes_))
        )
        row = batch.first + int(labels.isin(unknown).to_numpy().argmax())
        raise UserError(
            f"Labels that the model does not know: {listed}, first in row {row} of {batch.source}. It was trained on "
            f"{known}."
        )
    return labels


@contextmanager
def _row_progress(text: str, quiet: bool) -> Iterator[Callable[[int, float], None]]:
    """Show how many rows are done; where there is no terminal, print a line now and then."""
    if quiet:
        with relay_messages(logging.WARNING):
            yield lambda rows, share: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with (
        Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar,
        relay_messages(logging.INFO),
    ):
        task = bar.add_task(f"{text} ...", total=1.0)
        printed = time.monotonic()

        def update(rows: int, share: float) -> None:
            nonlocal printed
            bar.update(task, completed=share, description=f"{text}: {rows:,} rows")
            if not err.is_terminal and time.monotonic() - printed > BETWEEN_LINES:
                printed = time.monotonic()
                print_message(f"{text}: {rows:,} rows, {share:.0%}.")

        yield update
