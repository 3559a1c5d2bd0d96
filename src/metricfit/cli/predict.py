"""``metricfit predict``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np
import pandas as pd

from metricfit._files import check_writable
from metricfit.cli.options import Predict
from metricfit.cli.output_paths import check_file
from metricfit.cli.scored_data import check_threshold, load_model, scored_batches
from metricfit.cli.terminal import UserError, print_result
from metricfit.data.columns import quote_label
from metricfit.data.files import WRITABLE, new_table
from metricfit.errors import quote
from metricfit.tabular import MetricClassifier
from metricfit.tabular.classifier import ScoredRows

#: The columns of the labels, and of the rows that are referred to a person.
PREDICTED, WAS_REFERRED = "predicted", "referred"


class Result(TypedDict):
    """What ``predict --json`` prints.

    Attributes:
        rows: Number of rows.
        file: The file of the predictions.
        predicted: Number of rows that are predicted as each class.
        new_categories: Number of rows with a category that the training rows did not have, by column.
        threshold: The probability of the positive class from which rows are flagged; null for several classes.
        referred: Rows that are referred to a person; null if the model refers none.
    """

    rows: int
    file: str
    predicted: dict[str, int]
    new_categories: dict[str, int]
    threshold: float | None
    referred: int | None


def run(options: Predict) -> None:
    """Predict new rows with a saved model; ``options.Predict`` lists the options."""
    out, threshold = options.out, options.threshold
    check_file(out, "--out", options.overwrite)
    if out.suffix.lower() not in WRITABLE:
        raise UserError(f"Predictions are written as {' or '.join(WRITABLE)}; {out.name!r} ends in neither.")
    check_writable(out)
    classifier = load_model(options.model)
    check_threshold(classifier, threshold)
    carried = list(dict.fromkeys(options.id_columns))
    _check_names(classifier, carried, threshold)
    rows, counts, unseen = 0, Counter[Any](), Counter[str]()
    batches = scored_batches(classifier, options, carried=carried, may_be_empty=True)
    with new_table(out) as write:
        for batch in batches:
            predictions = _predictions(classifier, batch.scored, threshold)
            write(pd.concat([batch.frame[carried].reset_index(drop=True), predictions], axis=1))
            called = predictions[PREDICTED].value_counts()
            counts.update({str(label): int(count) for label, count in called.items()})
            rows += len(batch.scored)
            unseen.update(batch.scored.unseen)
    result = Result(
        rows=rows,
        file=str(out),
        predicted={str(label): counts[str(label)] for label in classifier.classes_},
        new_categories=dict(unseen),
        threshold=classifier.threshold_ if threshold is None else threshold,
        referred=counts[str(classifier.chosen_.refer_label)] if _refers(classifier, threshold) else None,
    )
    print_result(result, options.as_json, _lines(result, classifier))


def _check_names(model: MetricClassifier, carried: Sequence[str], threshold: float | None) -> None:
    """Refuse columns to carry through that have the name of a column of the predictions."""
    names = [PREDICTED, *([WAS_REFERRED] if _refers(model, threshold) else []), *map(_probability_name, model.classes_)]
    for name in carried:
        if name in names:
            raise UserError(
                f"--id {quote(name)} has the name of a column of the predictions; rename the column in the table."
            )


def _predictions(model: MetricClassifier, scored: ScoredRows, threshold: float | None) -> pd.DataFrame:
    """Return the labels and probabilities of some rows, as they are written."""
    labels, probabilities = model.predict(scored), model.predict_proba(scored)
    if threshold is not None:
        positive = model.classes_.tolist().index(model.pos_label_)
        labels = model.classes_[np.where(probabilities[:, positive] >= threshold, positive, 1 - positive)]
    # A column of a file has one type, and the label of referred rows may be of another than the classes.
    columns = {PREDICTED: labels.astype(str) if labels.dtype == object else labels}
    if _refers(model, threshold):
        columns[WAS_REFERRED] = labels == model.chosen_.refer_label
    names = map(_probability_name, model.classes_)
    return pd.DataFrame(columns | dict(zip(names, probabilities.T, strict=True)))


def _refers(model: MetricClassifier, threshold: float | None) -> bool:
    """Return whether rows can be referred to a person; at another threshold than the model's, all are decided."""
    return threshold is None and model.refer_region_ is not None


def _probability_name(label: Any) -> str:
    return f"probability of {label}"


def _lines(result: Result, model: MetricClassifier) -> list[str]:
    called = [f"{result['predicted'][str(label)]:,} {quote_label(label)}" for label in model.classes_.tolist()]
    listed = ", ".join(called[:20]) + (f" and {len(called) - 20} more classes" if len(called) > 20 else "")
    referred = "" if result["referred"] is None else f", {result['referred']:,} referred to a person"
    return [f"{result['rows']:,} rows: {result['file']}", f"Predicted: {listed}{referred}."]
