"""A saved model, and the rows of a command's files scored by it in batches."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit.cli.command_rows import choose_columns, name_data, read_data
from metricfit.cli.options import TableOptions
from metricfit.cli.progress_display import row_progress
from metricfit.cli.terminal import UserError, print_message
from metricfit.data.columns import did_you_mean, split_target
from metricfit.data.reading import Batch, ColumnTypes, read_batches
from metricfit.data.text_format import TableWarning, TextOptions
from metricfit.errors import QUOTED, quote, shorten
from metricfit.metrics import get_metric
from metricfit.tabular import MetricClassifier, TunedDecisionClassifier
from metricfit.tabular.checks import columns_of_fit, describe_unseen
from metricfit.tabular.classifier import ScoredRows, column_types, score_batch
from metricfit.tabular.storage import name_of_estimator


def load_model(path: Path) -> MetricClassifier:
    """Load a model from its folder, or from the folder that ``metricfit fit`` wrote."""
    return MetricClassifier.load(_folder_of(path))


def load_any_model(path: Path) -> MetricClassifier | TunedDecisionClassifier:
    """Load a MetricClassifier or a TunedDecisionClassifier."""
    folder = _folder_of(path)
    is_tuned = name_of_estimator(folder) == TunedDecisionClassifier.__name__
    return TunedDecisionClassifier.load(folder) if is_tuned else MetricClassifier.load(folder)


def _folder_of(path: Path) -> Path:
    if not path.exists():
        raise UserError(f"There is no model {path}.")
    inside = path / "model"  # where fit puts it
    return inside if inside.is_dir() else path


def check_threshold(model: MetricClassifier, threshold: float | None) -> None:
    """Refuse a threshold for a model that decides by none."""
    if threshold is not None and len(model.classes_) > 2:
        raise UserError(
            "--threshold is for two classes; of several, the largest sum of a class's log-probability and its tuned "
            "offset decides."
        )
    if threshold is not None and get_metric(model.metric).columns:
        raise UserError(f"--threshold cannot be used with {model.metric}: every row has a threshold of its own.")


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
    given: TableOptions,
    *,
    carried: Sequence[str] = (),
    doing: str = "Predicting",
    may_be_empty: bool = False,
) -> Iterator[ScoredBatch]:
    """Read the files of a command in batches, and score their rows.

    Args:
        model: The saved model.
        given: The options: files, how text is written, and whether rows without a label are left out. A message counts
            these. Labels are read if there is a target.
        carried: Names of further columns that are needed. In text files they are read as text, letter by letter.
        doing: What the progress is about.
        may_be_empty: Whether a file may have a header and no rows; its one batch is then empty.

    Yields:
        The rows of each batch.

    Raises:
        TableError: A file cannot be read, or a row of it cannot be scored; the message names the row.
        UserError: A column is missing, or a label is not known to the model.
    """
    target = given.target or None
    names = list(getattr(model, "feature_names_in_", ()))
    needed = dict.fromkeys([*names, *([] if target is None else [target]), *carried]) if names else None
    types = column_types(model, target)
    types = ColumnTypes(types.text, [*types.words, *(name for name in carried if name not in names)])
    rows, skipped, unseen = 0, 0, Counter[str]()
    reading = read_batches(
        list(given.data), TextOptions(**given.text), columns=needed, types=types, may_be_empty=may_be_empty
    )
    with row_progress(doing, given.quiet) as update:
        warnings.simplefilter("always", TableWarning)
        for batch in reading:
            labelled = _labelled(batch, target) if given.skip_unlabelled and target is not None else None
            whole = batch if labelled is None else replace(batch, frame=batch.frame[labelled])
            skipped += len(batch.frame) - len(whole.frame)
            if len(batch.frame) and not len(whole.frame):
                continue
            labels = None if target is None else _labels_of(model, whole, target)
            frame = batch.frame if target is None or target in names else batch.frame.drop(columns=target)
            scored = score_batch(model, columns_of_fit(model, frame, batch.source), batch)
            for name in carried:
                if name not in batch.frame.columns:
                    hint = did_you_mean(name, batch.frame.columns)
                    raise UserError(f"{batch.source} has no column {quote(name)} to carry through.{hint}")
            rows += len(batch.frame)
            unseen.update(scored.unseen)
            update(rows, batch.share_read)
            yield ScoredBatch(whole.frame, scored if labelled is None else scored.take(labelled), labels)
    if unseen:
        print_message(f"Warning: {describe_unseen(unseen, rows)}")
    if skipped:
        print_message(f"{skipped:,} rows have no label and are left out.")


def scored_rows(
    model: MetricClassifier, given: TableOptions, carried: Sequence[str | None], *, doing: str
) -> tuple[ScoredRows, pd.Series, dict[str, NDArray[Any]]]:
    """Read the files of a command in batches, and return the logits, the labels and further columns of all rows.

    Args:
        model: The saved model.
        given: The options.
        carried: Names of further columns; None for an option that was not given.
        doing: What the progress is about.

    Returns:
        The rows, which stand for the table in all functions that take a model and a table, their labels, and the
        further columns by their names.
    """
    parts: list[ScoredRows] = []
    numbers: list[NDArray[np.int64]] = []
    target, names = given.target, [name for name in carried if name is not None]
    columns: dict[str, list[NDArray[Any]]] = {name: [] for name in names}
    for batch in scored_batches(model, given, carried=names, doing=doing):
        parts.append(batch.scored)
        numbers.append(np.searchsorted(model.classes_, np.asarray(batch.labels)))
        for name, entries in columns.items():
            entries.append(batch.frame[name].to_numpy())
    if not parts:
        raise UserError(f"No row has a label in {quote(target)}: there is nothing to compare with.")
    labels = model.classes_[np.concatenate(numbers)]
    joined = {name: np.concatenate(entries) for name, entries in columns.items()}
    return ScoredRows.join(parts), pd.Series(labels, name=target), joined


def whole_rows(
    model: Any, given: TableOptions, carried: Sequence[str | None], *, scored: bool
) -> tuple[pd.DataFrame | None, pd.Series, dict[str, NDArray[Any]]]:
    """Read the files of a command at once, for a model that does not score batches, or for no model.

    Args:
        model: The saved model.
        given: The options.
        carried: Names of further columns; None for an option that was not given.
        scored: Whether the model scores the rows.

    Returns:
        The columns that the model scores, or None; the labels, and the further columns by their names.
    """
    frame, source = read_data(given.data, given.target, given.text), name_data(given.data)
    frame = choose_columns(given, frame, source)
    labels = _labels_of(model, Batch(frame, source, 1, 1.0), given.target)
    columns = {}
    for name in (name for name in carried if name is not None):
        if name not in frame.columns:
            raise UserError(f"{source} has no column {quote(name)}.{did_you_mean(name, frame.columns)}")
        columns[name] = frame[name].to_numpy()
    return columns_of_fit(model, frame.drop(columns=given.target), source) if scored else None, labels, columns


def read_weights(column: NDArray[Any], name: str) -> NDArray[np.float64]:
    """Read a column of weights, which is text in text files.

    Raises:
        UserError: An entry is no number of at least 0.
    """
    numbers = pd.to_numeric(pd.Series(column), errors="coerce").to_numpy(np.float64)
    wrong = ~(np.isfinite(numbers) & (numbers >= 0))
    if wrong.any():
        row, entry = int(wrong.argmax()) + 1, quote(column[int(wrong.argmax())])
        raise UserError(
            f"The column {quote(name)} of weights holds {entry} in row {row}; weights are numbers from 0 on."
        )
    return numbers


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
