"""``metricfit predict``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from metricfit.cli import options
from metricfit.cli.exit_codes import UserError
from metricfit.cli.output_paths import check_file
from metricfit.cli.saved_model import load_model
from metricfit.cli.scored_data import scored_batches
from metricfit.cli.terminal import print_result
from metricfit.data.table_writing import WRITABLE, new_table
from metricfit.data.text_format import TextOptions
from metricfit.tabular import MetricClassifier
from metricfit.tabular.scored_rows import ScoredRows


def predict(
    model: options.ModelFolder,
    data: options.Data,
    out: Annotated[Path, typer.Option("--out", help="A new file for the predictions, .csv or .parquet.")],
    sep: options.Separator = None,
    decimal: options.Decimal = None,
    encoding: options.Encoding = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Predict labels and probabilities of new rows with a saved model."""
    check_file(out, "--out")
    if out.suffix.lower() not in WRITABLE:
        raise UserError(f"Predictions are written as {' or '.join(WRITABLE)}; {out.name!r} ends in neither.")
    classifier = load_model(model)
    rows = 0
    with new_table(out) as table:
        for batch in scored_batches(classifier, data, TextOptions(sep, decimal, encoding), quiet=quiet):
            table.write(_predictions(classifier, batch.scored))
            rows += len(batch.scored)
    result = {"rows": rows, "file": str(out)}
    print_result(result, as_json, [f"{rows} rows: {out}"])


def _predictions(model: MetricClassifier, scored: ScoredRows) -> pd.DataFrame:
    """Return the labels and probabilities of some rows, as they are written."""
    labels = model.predict(scored)
    # A column of a file has one type, and the label of referred rows may be of another than the classes.
    predictions = pd.DataFrame({"predicted": labels.astype(str) if labels.dtype == object else labels})
    for label, column in zip(model.classes_, model.predict_proba(scored).T, strict=True):
        predictions[f"probability of {label}"] = column
    return predictions
